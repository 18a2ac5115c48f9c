#![doc = include_str!("../README.md")]
//!
//! # Where things are
//!
//! - [`coll`]: the command `coll-bench`, over the crate `collectives`.
//! - [`mux`]: the command `mux-bench`, over the crate `gpu-mux`.
//! - What both have in common is private: how a command ends, files, reports, tables, order statistics and progress.

pub mod coll;
mod command;
pub mod mux;
mod progress;
mod report_file;
mod statistics;
mod table;
