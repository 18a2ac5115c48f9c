#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! - [`coll`]: the command `coll-bench`, over the crate `collectives`.
//! - [`mux`]: the command `mux-bench`, over the crate `gpu-mux`.
//! - Private modules are shared by both: exit codes, files, reports, tables, order statistics and
//!   progress.

pub mod coll;
mod command;
pub mod mux;
mod progress;
mod report_file;
mod statistics;
mod table;
