#![doc = include_str!("../README.md")]

#[cfg(feature = "train")]
pub mod accuracy;
mod batch;
pub mod compare;
pub mod costs;
#[cfg(feature = "train")]
pub mod data;
mod document;
mod error;
pub mod job;
#[cfg(feature = "train")]
pub mod machine;
pub mod plan;
pub mod planning;
pub mod problem;
pub mod program;
#[cfg(feature = "train")]
pub mod runtime;
pub mod simulate;
pub mod timeline;
#[cfg(feature = "train")]
pub mod train;

pub use error::{Error, is_failure};
// Re-exports of the crates in this crate's public signatures.
pub use {burst_planner, collectives, gpu_mux, layer_engine, layer_graph, layer_profile, time_to_accuracy};
