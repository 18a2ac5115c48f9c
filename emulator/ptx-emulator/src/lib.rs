#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
// A register is bits: whether they are a sign or equal to the bit is the kernel's affair. What is to be compiled for the
// processor's vectors has to be inlined.
#![allow(clippy::cast_possible_wrap, clippy::float_cmp, clippy::inline_always)]

mod decode;
mod error;
mod execute;
mod fault;
mod memory;
mod module;
mod parse;

pub use decode::instruction_forms;
pub use error::{AddressState, LaunchError, LoadError, MemoryError};
pub use fault::{Fault, FaultKind, MemorySpace};
pub use memory::{AccessKind, AccessedRange, Memory};
pub use module::{Dimensions, KernelAttributes, Module, Options};
