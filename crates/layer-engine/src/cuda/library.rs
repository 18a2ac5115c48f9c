//! Finding and opening CUDA's driver.
#![allow(unsafe_code)]

use std::mem;
use std::sync::Arc;

use cudarc::driver::{CudaContext, sys};
use libloading::Library;

use super::failed;
use crate::EngineError;

/// A function that the emulated driver has and no other.
const EMULATED_ONLY: &[u8] = b"cuda_emulator_reset\0";

/// Opens CUDA's driver, or the emulated one where that is asked for, and the primary context of a device, counted from 0.
pub(super) fn open(ordinal: usize) -> Result<Arc<CudaContext>, EngineError> {
    let unusable = |problem| EngineError::Device { device: format!("CUDA device {ordinal}"), problem };
    open_emulated().map_err(unusable)?;
    // SAFETY: it opens the driver's library, if there is one, and calls nothing in it. Any other first call would panic.
    if !unsafe { sys::is_culib_present() } {
        return Err(unusable(
            "CUDA's driver was not found: looked for libcuda.so and libcuda.so.1 where the loader looks; install the \
             NVIDIA driver, or add its folder to LD_LIBRARY_PATH"
                .to_owned(),
        ));
    }
    let count =
        CudaContext::device_count().map_err(|error| unusable(failed("devices", error).to_string()))?;
    if !usize::try_from(count).is_ok_and(|count| ordinal < count) {
        return Err(unusable(format!("CUDA sees {count} devices")));
    }
    CudaContext::new(ordinal).map_err(|error| unusable(failed("its context", error).to_string()))
}

/// Opens the emulated driver, if it is asked for, and keeps it open: the loader then gives it to cudarc, which asks for a driver
/// by its names.
fn open_emulated() -> Result<(), String> {
    let Some(path) = emulated_gpus::library().map_err(|error| error.to_string())? else { return Ok(()) };
    // SAFETY: loading the emulated driver runs no code but that of Rust's standard library; it is never closed.
    let library = unsafe { Library::new(&path) }.map_err(|error| format!("{}: {error}", path.display()))?;
    mem::forget(library);
    // cudarc asks for this name before the one that the emulated driver has.
    // SAFETY: a driver's initialisers call nothing.
    match unsafe { Library::new("libcuda.so") } {
        // SAFETY: nothing is called.
        Ok(driver) if unsafe { driver.get::<unsafe extern "C" fn()>(EMULATED_ONLY) }.is_err() => {
            Err(format!(
                "{} asks for emulated GPUs, and cudarc would open this machine's own libcuda.so: put links to {} called \
                 libcuda.so and libcuda.so.1 into a folder of their own, and that first in LD_LIBRARY_PATH",
                emulated_gpus::NUMBER_VARIABLE,
                path.display()
            ))
        }
        _ => Ok(()),
    }
}
