#![allow(unsafe_code)]

use std::ptr::NonNull;

use cudarc::driver::result;

use super::device::Device;
use super::failed;
use crate::EngineError;

/// Elements in page-locked memory of the host's, which a device copies from and to while the host goes on.
///
/// The last copy from or to it has to be done before it is dropped.
#[derive(Debug)]
pub struct CudaHostBuffer {
    device: Device,
    /// None for no elements.
    start: Option<NonNull<f32>>,
    elements: usize,
}

// SAFETY: the buffer owns its memory, which belongs to no thread.
unsafe impl Send for CudaHostBuffer {}

impl CudaHostBuffer {
    pub(super) fn new(device: &Device, elements: usize) -> Result<Self, EngineError> {
        let mut buffer = Self { device: device.clone(), start: None, elements };
        if elements > 0 {
            let failed = |error| failed("allocate page-locked memory of the host", error);
            device.bind().map_err(failed)?;
            // SAFETY: the device is the thread's.
            let start = unsafe { result::malloc_host(elements * size_of::<f32>(), 0) }.map_err(failed)?;
            buffer.start = NonNull::new(start.cast());
            buffer.as_mut_slice().fill(0.0);
        }
        Ok(buffer)
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

    /// The elements: to be read when copies to them are done.
    #[must_use]
    pub fn as_slice(&self) -> &[f32] {
        // SAFETY: so many elements were allocated, and have been written.
        self.start.map_or(&[], |start| unsafe { std::slice::from_raw_parts(start.as_ptr(), self.elements) })
    }

    /// The elements: to be written when copies from them are done.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [f32] {
        // SAFETY: so many elements were allocated; floats may have any bits, and the buffer is borrowed by nobody else.
        self.start
            .map_or(&mut [], |start| unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), self.elements) })
    }
}

impl Drop for CudaHostBuffer {
    fn drop(&mut self) {
        if let Some(start) = self.start {
            // Where the context is lost, its memory is, too.
            let _ = self.device.bind();
            // SAFETY: it is freed once.
            let _ = unsafe { result::free_host(start.as_ptr().cast()) };
        }
    }
}
