//! Page-locked memory of the host.
#![allow(unsafe_code)]

use std::fmt;
use std::ptr::NonNull;

use cudarc::driver::sys;

use crate::driver::{cu, written};
use crate::element::bytes_of;
use crate::{Context, Element, Error, Result};

/// Elements in page-locked host memory, which the device copies from and to asynchronously.
///
/// Dropping it waits until all work in its context is complete.
pub struct HostBuffer<T> {
    context: Context,
    /// `None` if there are no elements.
    start: Option<NonNull<T>>,
    len: usize,
}

// SAFETY: the buffer owns its memory, which is not bound to a thread.
unsafe impl<T: Element> Send for HostBuffer<T> {}
// SAFETY: a shared reference only reads elements.
unsafe impl<T: Element> Sync for HostBuffer<T> {}

impl<T: Element> HostBuffer<T> {
    /// Allocates `len` elements of zero bytes. Returns a CUDA error if there is no memory.
    ///
    /// # Errors
    /// [`Error::Invalid`] if they exceed any memory; the error of the CUDA driver.
    pub fn zeros(context: &Context, len: usize) -> Result<Self> {
        let mut buffer = Self { context: context.clone(), start: None, len };
        if len > 0 {
            let bytes = bytes_of::<T>(len)?;
            context.bind()?;
            // SAFETY: the address is written; the context is current.
            let start: *mut std::ffi::c_void =
                written(|start| unsafe { cu!(context.driver(), cuMemHostAlloc(start, bytes, 0)) })?;
            let start = NonNull::new(start.cast::<T>())
                .ok_or_else(|| Error::Invalid("CUDA returned no page-locked memory".to_owned()))?;
            // SAFETY: the memory has this length, and zero bytes are valid elements.
            unsafe { start.as_ptr().write_bytes(0, len) };
            buffer.start = Some(start);
        }
        Ok(buffer)
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the buffer has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the elements. Read them only after copies to them are complete.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: `len` elements were allocated and initialized.
        self.start.map_or(&[], |start| unsafe { std::slice::from_raw_parts(start.as_ptr(), self.len) })
    }

    /// Returns the elements. Write them only after copies from them are complete.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: `len` elements were allocated and initialized, and the buffer is exclusively
        // borrowed.
        self.start
            .map_or(&mut [], |start| unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), self.len) })
    }
}

impl<T> Drop for HostBuffer<T> {
    fn drop(&mut self) {
        let Some(start) = self.start else { return };
        let driver = self.context.driver();
        // A copy may still be in flight.
        self.context.destroy_when_idle(|| {
            // SAFETY: it is freed once, and no work in flight uses it.
            unsafe { cu!(driver, cuMemFreeHost(start.as_ptr().cast())) }
        });
    }
}

impl<T> fmt::Debug for HostBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostBuffer({} elements)", self.len)
    }
}
