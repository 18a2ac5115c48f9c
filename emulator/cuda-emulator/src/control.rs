//! The library found, opened and controlled from a test.

mod library;
mod reports;

pub use library::{Emulator, Error, VirtualClock};
pub use reports::{KernelRun, Setting};
