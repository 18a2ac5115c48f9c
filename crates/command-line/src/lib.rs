#![doc = include_str!("../README.md")]

#[cfg(feature = "clap")]
mod arguments;
pub mod files;
mod input;
mod message;
pub mod names;
pub mod numbers;
mod spelling;

#[cfg(feature = "clap")]
pub use arguments::{parse, with_negative_numbers};
pub use input::InputError;
pub use message::one_line;
