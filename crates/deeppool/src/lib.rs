#![doc = include_str!("../README.md")]

pub mod costs;
pub mod data;
mod error;
pub mod files;
pub mod planning;
pub mod program;
pub mod runtime;
pub mod simulate;
pub mod train;

pub use error::Error;
