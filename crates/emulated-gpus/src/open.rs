//! Opening the emulated driver for what asks for a driver by its name.
#![allow(unsafe_code)]

use std::mem;
use std::path::PathBuf;

use libloading::Library;
use thiserror::Error;

use crate::{NUMBER_VARIABLE, NotFound};

/// A function that the emulated driver has and no other.
const EMULATED_ONLY: &[u8] = b"cuda_emulator_reset\0";

/// The emulated driver is asked for and cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// It is not there.
    #[error(transparent)]
    NotFound(#[from] NotFound),
    /// It is no library.
    #[error("{}: {source}", path.display())]
    Library {
        /// The file.
        path: PathBuf,
        /// What the loader says.
        source: libloading::Error,
    },
    /// This machine has a driver of its own, whose name is asked for first.
    #[error(
        "{NUMBER_VARIABLE} asks for emulated GPUs, and this machine's own libcuda.so would be opened: put links to {} called libcuda.so and \
         libcuda.so.1 into a folder of their own, and that first in LD_LIBRARY_PATH",
        path.display()
    )]
    OtherDriver {
        /// The emulated driver.
        path: PathBuf,
    },
}

/// Opens the emulated driver, if it is asked for, and keeps it open: the loader then gives it to what asks for a driver by its names,
/// as cudarc does.
///
/// # Errors
/// In one line, where it is asked for and would not be what is opened.
pub fn open() -> Result<(), OpenError> {
    let Some(path) = crate::library()? else { return Ok(()) };
    // SAFETY: loading the emulated driver runs no code but that of Rust's standard library; it is never closed.
    let library = match unsafe { Library::new(&path) } {
        Ok(library) => library,
        Err(source) => return Err(OpenError::Library { path, source }),
    };
    mem::forget(library);
    // cudarc asks for this name before the one that the emulated driver has.
    // SAFETY: a driver's initialisers call nothing.
    match unsafe { Library::new("libcuda.so") } {
        // SAFETY: nothing is called.
        Ok(driver) if unsafe { driver.get::<unsafe extern "C" fn()>(EMULATED_ONLY) }.is_err() => {
            Err(OpenError::OtherDriver { path })
        }
        _ => Ok(()),
    }
}
