#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! - [`coll`]: the command `coll-bench`, over the crate `collectives`.
//! - [`mux`]: the command `mux-bench`, over the crate `gpu-mux`.
//! - `ops`: the command `op-bench`, over the crates `deeppool` and `layer-profile`; feature `cuda`.
//! - Private modules are shared by all: exit codes, files, reports, tables, order statistics and
//!   progress.

pub mod coll;
mod command;
pub mod mux;
#[cfg(feature = "cuda")]
pub mod ops;
mod progress;
mod report_file;
mod statistics;
mod table;
