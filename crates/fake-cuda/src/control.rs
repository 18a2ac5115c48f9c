//! The library found, opened and controlled from a test.

mod library;
mod reports;

pub use library::{Error, FakeCuda};
pub use reports::{KernelRun, Setting};
