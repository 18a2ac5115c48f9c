#![allow(unsafe_code)]

use cudarc::driver::{DriverError, result, sys};

use super::device::Device;
use super::{NAME, failed};
use crate::EngineError;

/// Memory of a device. Its drop waits until all work of the device is done, since some of it may still use the memory.
#[derive(Debug)]
pub(super) struct DeviceMemory {
    device: Device,
    address: u64,
}

impl DeviceMemory {
    /// Zeros, which are there when this returns.
    pub(super) fn zeros(device: &Device, bytes: usize) -> Result<Self, EngineError> {
        let no_memory = |error: DriverError| match error.0 {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                EngineError::OutOfMemory { engine: NAME, elements: bytes.div_ceil(size_of::<f32>()) }
            }
            _ => failed("allocate memory", error),
        };
        device.bind().map_err(no_memory)?;
        // SAFETY: the device is the thread's.
        let address = unsafe { result::malloc_sync(bytes) }.map_err(no_memory)?;
        let memory = Self { device: device.clone(), address };
        let zeroed = || -> Result<(), DriverError> {
            // SAFETY: the memory is that long. The wait is for the stream in which the fill is.
            unsafe {
                result::memset_d8_sync(address, 0, bytes)?;
                result::stream::synchronize(result::stream::null())
            }
        };
        zeroed().map_err(|error| failed("zero memory", error))?;
        Ok(memory)
    }

    /// A table that kernels read.
    pub(super) fn table(device: &Device, numbers: &[u32]) -> Result<Self, EngineError> {
        let memory = Self::zeros(device, size_of_val(numbers).max(1))?;
        if !numbers.is_empty() {
            // SAFETY: the memory is as long as the numbers, which are copied before the call returns.
            unsafe { result::memcpy_htod_sync(memory.address, numbers) }
                .map_err(|error| failed("copy a table to the device", error))?;
        }
        Ok(memory)
    }

    pub(super) fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // Where the context is lost, its memory is, too.
        let _ = self.device.bind();
        let _ = result::ctx::synchronize();
        // SAFETY: it is freed once, and no work that is enqueued uses it.
        let _ = unsafe { result::free_sync(self.address) };
    }
}
