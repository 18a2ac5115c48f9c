//! Allocation of device memory.
#![allow(unsafe_code)]

use cudarc::driver::{DriverError, result, sys};

use super::device::Device;
use super::{NAME, driver_error};
use crate::EngineError;

/// An allocation in device memory. Dropping it waits until all work of the device is complete,
/// because the work may use the memory.
#[derive(Debug)]
pub(super) struct DeviceMemory {
    device: Device,
    address: u64,
}

impl DeviceMemory {
    /// Allocates `bytes` bytes of zeros. The memory is zero when the function returns.
    ///
    /// # Errors
    /// [`EngineError::OutOfMemory`] if the device has no memory left, else
    /// [`EngineError::Library`].
    pub(super) fn zeros(device: &Device, bytes: usize) -> Result<Self, EngineError> {
        let no_memory = |error: DriverError| match error.0 {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                EngineError::OutOfMemory { engine: NAME, elements: bytes.div_ceil(size_of::<f32>()) }
            }
            _ => driver_error("allocate memory", error),
        };
        device.bind().map_err(no_memory)?;
        // SAFETY: the device is current.
        let address = unsafe { result::malloc_sync(bytes) }.map_err(no_memory)?;
        let memory = Self { device: device.clone(), address };
        let zeroed = || -> Result<(), DriverError> {
            // SAFETY: the memory has this length. The call waits for the stream of the fill.
            unsafe {
                result::memset_d8_sync(address, 0, bytes)?;
                result::stream::synchronize(result::stream::null())
            }
        };
        zeroed().map_err(|error| driver_error("zero memory", error))?;
        Ok(memory)
    }

    /// Allocates memory with a copy of `numbers`, which kernels read.
    ///
    /// # Errors
    /// See `zeros`.
    pub(super) fn table(device: &Device, numbers: &[u32]) -> Result<Self, EngineError> {
        let memory = Self::zeros(device, size_of_val(numbers).max(1))?;
        if !numbers.is_empty() {
            // SAFETY: the memory is as long as `numbers`, which are copied before the call returns.
            unsafe { result::memcpy_htod_sync(memory.address, numbers) }
                .map_err(|error| driver_error("copy a table to the device", error))?;
        }
        Ok(memory)
    }

    /// Returns the device address of the first byte.
    pub(super) fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // If the context is lost, its memory is too.
        let _ = self.device.bind();
        let _ = result::ctx::synchronize();
        // SAFETY: the memory is freed once, and no enqueued work uses it.
        let _ = unsafe { result::free_sync(self.address) };
    }
}
