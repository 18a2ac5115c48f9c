//! Interface for tests: finding, opening and controlling the library.

mod library;
mod reports;

pub use library::{Emulator, Error, VirtualClock};
pub use reports::{KernelRun, Setting};
