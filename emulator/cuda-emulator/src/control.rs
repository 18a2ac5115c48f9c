//! Interface for tests: opens the library of the emulated driver and controls it.

mod library;
mod reports;

pub use library::{Emulator, Error, VirtualClock};
pub use reports::{KernelRun, Setting};
