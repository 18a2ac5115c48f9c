//! Buffers of single-precision numbers in device memory.

use super::device::Device;
use super::memory::DeviceMemory;
use crate::EngineError;

/// A buffer in the memory of a [`CudaEngine`](crate::CudaEngine)'s device.
///
/// Dropping it waits until all work of the device is complete.
#[derive(Debug, Default)]
pub struct CudaBuffer {
    memory: Option<DeviceMemory>,
    elements: usize,
}

impl CudaBuffer {
    /// Allocates a buffer of `elements` zeros.
    ///
    /// # Errors
    /// [`EngineError::OutOfMemory`] if the device has no memory for it, else
    /// [`EngineError::Library`].
    pub(super) fn zeros(device: &Device, elements: usize) -> Result<Self, EngineError> {
        let memory = (elements > 0).then(|| DeviceMemory::zeros(device, elements * size_of::<f32>()));
        Ok(Self { memory: memory.transpose()?, elements })
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.elements
    }

    /// Returns whether the buffer has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.elements == 0
    }

    /// Returns the device address of the first element, or 0 for a buffer without memory.
    #[must_use]
    pub fn device_pointer(&self) -> u64 {
        self.memory.as_ref().map_or(0, DeviceMemory::address)
    }

    /// Returns the elements as an operand of
    /// [`CudaEngine::enqueue_raw`](crate::CudaEngine::enqueue_raw).
    #[must_use]
    pub fn as_slice(&self) -> DeviceSlice {
        DeviceSlice { pointer: self.device_pointer(), elements: self.elements }
    }
}

/// Elements in device memory that the engine does not own, such as a buffer of a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceSlice {
    /// Device address of the first element, a multiple of 4.
    pub pointer: u64,
    /// Number of `f32` elements.
    pub elements: usize,
}
