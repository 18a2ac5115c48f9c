use super::device::Device;
use super::memory::DeviceMemory;
use crate::EngineError;

/// Elements in the memory of a [`CudaEngine`](crate::CudaEngine)'s device.
///
/// Its drop waits until the device's work is done.
#[derive(Debug, Default)]
pub struct CudaBuffer {
    memory: Option<DeviceMemory>,
    elements: usize,
    /// Elements that it was allocated with.
    capacity: usize,
}

impl CudaBuffer {
    pub(super) fn zeros(device: &Device, elements: usize) -> Result<Self, EngineError> {
        let memory = (elements > 0).then(|| DeviceMemory::zeros(device, elements * size_of::<f32>()));
        Ok(Self { memory: memory.transpose()?, elements, capacity: elements })
    }

    pub(super) fn reuse(&mut self, device: &Device, elements: usize) -> Result<(), EngineError> {
        if elements > self.capacity {
            *self = Self::zeros(device, elements)?;
        }
        self.elements = elements;
        Ok(())
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.elements
    }

    /// Whether it holds no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.elements == 0
    }

    /// The device's address of the first element; 0 for a buffer without memory.
    #[must_use]
    pub fn device_pointer(&self) -> u64 {
        self.memory.as_ref().map_or(0, DeviceMemory::address)
    }

    /// The elements for [`CudaEngine::enqueue_raw`](crate::CudaEngine::enqueue_raw).
    #[must_use]
    pub fn as_slice(&self) -> DeviceSlice {
        DeviceSlice { pointer: self.device_pointer(), elements: self.elements }
    }
}

/// Elements in a device's memory, which belong to somebody else: a communicator's buffer, say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceSlice {
    /// The device's address of the first element, a multiple of 4.
    pub pointer: u64,
    /// Number of elements, of single precision.
    pub elements: usize,
}
