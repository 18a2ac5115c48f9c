//! Integration tests: measuring, reading, fitting and querying layer times.

mod device;
mod fit;
mod import;
mod json;
mod kineto;
mod table;

#[cfg(feature = "measure")]
mod profiler;
