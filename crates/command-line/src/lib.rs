#![doc = include_str!("../README.md")]

pub mod files;
mod input;
pub mod names;

pub use input::InputError;
