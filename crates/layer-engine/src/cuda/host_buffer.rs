//! Page-locked memory of the host.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use cudarc::driver::result;

use super::device::Device;
use super::driver_error;
use crate::EngineError;

/// Elements in page-locked host memory, which the device copies from and to asynchronously.
///
/// The last copy from or to the buffer must be complete before the buffer is dropped.
#[derive(Debug)]
pub struct CudaHostBuffer {
    device: Device,
    /// `None` if there are no elements.
    start: Option<NonNull<f32>>,
    elements: usize,
}

// SAFETY: the buffer owns its memory, which is not bound to a thread.
unsafe impl Send for CudaHostBuffer {}

impl CudaHostBuffer {
    /// Allocates `elements` zeros in page-locked memory.
    ///
    /// # Errors
    /// [`EngineError::Library`] if CUDA cannot allocate them.
    pub(super) fn new(device: &Device, elements: usize) -> Result<Self, EngineError> {
        let mut buffer = Self { device: device.clone(), start: None, elements };
        if elements > 0 {
            let driver_error = |error| driver_error("allocate page-locked memory of the host", error);
            device.bind().map_err(driver_error)?;
            // SAFETY: the device is current.
            let start =
                unsafe { result::malloc_host(elements * size_of::<f32>(), 0) }.map_err(driver_error)?;
            buffer.start = NonNull::new(start.cast());
            buffer.as_mut_slice().fill(0.0);
        }
        Ok(buffer)
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

    /// Returns the elements. Read them only after copies to them are complete.
    #[must_use]
    pub fn as_slice(&self) -> &[f32] {
        // SAFETY: `elements` elements were allocated and initialised.
        self.start.map_or(&[], |start| unsafe { std::slice::from_raw_parts(start.as_ptr(), self.elements) })
    }

    /// Returns the elements. Write them only after copies from them are complete.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [f32] {
        // SAFETY: `elements` elements were allocated, every bit pattern is a valid `f32`, and the
        // buffer is exclusively borrowed.
        self.start
            .map_or(&mut [], |start| unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), self.elements) })
    }
}

impl Drop for CudaHostBuffer {
    fn drop(&mut self) {
        if let Some(start) = self.start {
            // If the context is lost, its memory is too.
            let _ = self.device.bind();
            // SAFETY: the memory is freed once.
            let _ = unsafe { result::free_host(start.as_ptr().cast()) };
        }
    }
}
