//! Opening of the emulated driver, the library of emulated GPUs, for libraries that open CUDA by
//! its name.
#![allow(unsafe_code)]

use std::mem;
use std::path::PathBuf;

use libloading::Library;
use thiserror::Error;

use crate::{NUMBER_VARIABLE, NotFound};

/// Function that only the emulated driver has.
const EMULATED_ONLY: &[u8] = b"cuda_emulator_reset\0";

/// Errors of opening the emulated driver.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The library of emulated GPUs was not found.
    #[error(transparent)]
    NotFound(#[from] NotFound),
    /// The file cannot be loaded, or lacks a function of the emulated driver.
    #[error("{}: {source}", path.display())]
    Library {
        /// Path of the library.
        path: PathBuf,
        /// Error of the loader.
        source: libloading::Error,
    },
    /// Another CUDA driver of this machine would be opened by the name `libcuda.so`, instead of the
    /// emulated one.
    #[error(
        "{NUMBER_VARIABLE} asks for emulated GPUs, and this machine's own libcuda.so would be opened: put \
         links to {} called libcuda.so and \
         libcuda.so.1 into a folder of their own, and that first in LD_LIBRARY_PATH",
        path.display()
    )]
    OtherDriver {
        /// Path of the emulated driver.
        path: PathBuf,
    },
}

/// Opens the emulated driver if emulated GPUs are requested, and keeps it open, so that the loader
/// returns it to libraries that open CUDA by its name, such as cudarc. Does nothing if none are
/// requested.
///
/// # Errors
/// [`OpenError`] if the emulated driver cannot be opened, or another driver would be opened in its
/// place.
pub fn open() -> Result<(), OpenError> {
    let Some(path) = crate::library()? else { return Ok(()) };
    // SAFETY: loading the emulated driver runs only initialisers of the Rust standard library. It
    // is never closed.
    let library = match unsafe { Library::new(&path) } {
        Ok(library) => library,
        Err(source) => return Err(OpenError::Library { path, source }),
    };
    mem::forget(library);
    // cudarc tries this name before the one of the emulated driver.
    // SAFETY: the initialisers of a CUDA driver have no preconditions.
    match unsafe { Library::new("libcuda.so") } {
        // SAFETY: the symbol is looked up and not called.
        Ok(driver) if unsafe { driver.get::<unsafe extern "C" fn()>(EMULATED_ONLY) }.is_err() => {
            Err(OpenError::OtherDriver { path })
        }
        _ => Ok(()),
    }
}
