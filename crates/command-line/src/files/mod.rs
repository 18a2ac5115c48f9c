//! Inputs that are read whole, results that are written whole or not at all, and files that one
//! process at a time appends to.
//!
//! A result is content that a command writes to a path that its user gives: a regular file, a
//! device, a pipe or standard output.

mod error;
mod locked;
mod read;
mod results;
mod target;
mod write;

pub use error::{OutputError, is_write_failure};
pub use locked::LockedFile;
pub use read::{open, open_as, read, read_as, read_text_as, read_to_string};
#[cfg(feature = "clap")]
pub use results::argument;
pub use results::{Printer, STDOUT, check_all};
pub use write::{check, is_file, is_stdout, write};
