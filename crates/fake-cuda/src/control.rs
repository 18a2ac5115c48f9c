//! The library found, opened and controlled from a test.

mod library;
mod reports;

pub use library::{Error, FakeCuda, VirtualClock};
pub use reports::{KernelRun, Setting};
