//! Integration tests: measuring, reading, fitting and querying layer times.

mod a100_fit;
mod device;
mod fit;
mod import;
mod json;
mod published;
mod table;

#[cfg(feature = "measure")]
mod profiler;
