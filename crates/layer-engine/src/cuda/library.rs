//! Opening the CUDA driver.
#![allow(unsafe_code)]

use std::sync::Arc;

use cudarc::driver::{CudaContext, sys};

use super::driver_error;
use crate::EngineError;

/// Opens the CUDA driver, or `cuda-emulator` if `DEEPPOOL_EMULATED_GPUS` is set, and returns the
/// primary context of the device `ordinal`, counted from 0.
///
/// # Errors
/// [`EngineError::Device`] if there is no CUDA driver or no such device.
pub(super) fn open(ordinal: usize) -> Result<Arc<CudaContext>, EngineError> {
    let unusable = |problem| EngineError::Device { device: format!("CUDA device {ordinal}"), problem };
    emulated_gpus::open().map_err(|error| unusable(error.to_string()))?;
    // SAFETY: the call opens the driver's library, if there is one, and calls nothing in it. Any
    // other first call would panic.
    if !unsafe { sys::is_culib_present() } {
        return Err(unusable(
            "CUDA's driver was not found: the loader has neither libcuda.so nor libcuda.so.1; install the \
             NVIDIA driver, or add its folder to LD_LIBRARY_PATH"
                .to_owned(),
        ));
    }
    let count = CudaContext::device_count()
        .map_err(|error| unusable(driver_error("count devices", error).to_string()))?;
    if !usize::try_from(count).is_ok_and(|count| ordinal < count) {
        return Err(unusable(format!("CUDA has {count} devices")));
    }
    CudaContext::new(ordinal).map_err(|error| unusable(driver_error("open its context", error).to_string()))
}
