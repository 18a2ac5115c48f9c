#![doc = include_str!("../README.md")]

mod abi;
mod host;
mod state;

#[cfg(feature = "control")]
mod control;
#[cfg(feature = "control")]
pub use control::{Emulator, Error, KernelRun, Setting, VirtualClock};
