//! Layer times, as their users measure, read, fit and ask for them.

mod a100_fit;
mod device;
mod fit;
mod import;
mod json;
mod published;
mod table;

#[cfg(feature = "measure")]
mod profiler;
