#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
// Registers are untyped bits: casts that change the sign are intended, and so is exact comparison
// of floating-point numbers. Code compiled for vector instructions must be inlined.
#![allow(clippy::cast_possible_wrap, clippy::float_cmp, clippy::inline_always)]

mod address_state;
mod decode;
mod error;
mod execute;
mod fault;
mod memory;
mod module;
mod operations;
mod options;
mod parse;

pub use address_state::AddressState;
pub use decode::instruction_forms;
pub use error::{LaunchError, LoadError, MemoryError};
pub use fault::{Fault, FaultKind, MemorySpace};
pub use memory::{AccessKind, AccessedRange, Memory};
pub use module::{KernelAttributes, Module};
pub use options::{Dimensions, Options};
