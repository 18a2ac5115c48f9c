//! Device memory. Functions that return a `Result` also return the error of a failed call of the
//! CUDA driver (a *CUDA error*).

#![allow(unsafe_code)]

use super::context::Context;
use super::stream::Stream;
use crate::cuda::error::{Error, Result};
use crate::cuda::result::written;
use crate::cuda::sys::Address;

/// Allocation of device memory. Dropping it waits until all work in its context is complete.
#[derive(Debug)]
pub struct DeviceBuffer {
    context: Context,
    address: Address,
    bytes: usize,
    /// Whether another library owns it and frees it.
    borrowed: bool,
}

impl DeviceBuffer {
    /// Allocates `bytes` bytes of uninitialized memory. Do not call this while a stream is being
    /// captured.
    pub fn new(context: &Context, bytes: usize) -> Result<Self> {
        context.bind()?;
        // SAFETY: the address is written; the context is current.
        let address = written(|address| unsafe { context.driver().memory_allocate(address, bytes) })?;
        Ok(Self { context: context.clone(), address, bytes, borrowed: false })
    }

    /// Wraps memory that another library has allocated in the device's primary context and will
    /// free.
    ///
    /// # Safety
    /// `address` must be the start of `bytes` bytes of memory of this context that outlive the
    /// returned value.
    #[must_use]
    pub unsafe fn borrow(context: &Context, address: u64, bytes: usize) -> Self {
        Self { context: context.clone(), address, bytes, borrowed: true }
    }

    /// Returns the device address of the first byte, for kernels.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.bytes
    }

    /// Copies the bytes `from` from the host to the buffer. Waits until the copy and all earlier
    /// work in the stream are complete.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the lengths differ; CUDA errors.
    pub fn upload(&self, stream: &Stream, from: &[u8]) -> Result<()> {
        self.same_length(from.len())?;
        self.context.bind()?;
        // SAFETY: both have the same length; `from` outlives the copy, which is waited for.
        unsafe {
            stream.driver().memory_upload(self.address, from.as_ptr().cast(), self.bytes, stream.raw())
        }?;
        stream.synchronize()
    }

    /// Copies the buffer to the bytes `to` on the host. Waits until the copy and all earlier work
    /// in the stream are complete.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the lengths differ; CUDA errors.
    pub fn download(&self, stream: &Stream, to: &mut [u8]) -> Result<()> {
        self.same_length(to.len())?;
        self.context.bind()?;
        // SAFETY: both have the same length; `to` outlives the copy, which is waited for.
        unsafe {
            stream.driver().memory_download(to.as_mut_ptr().cast(), self.address, self.bytes, stream.raw())
        }?;
        stream.synchronize()
    }

    /// Enqueues a fill into the stream that sets each 4-byte word of the buffer to `value`. Does
    /// not wait. Up to three trailing bytes are not written.
    pub fn fill(&self, stream: &Stream, value: u32) -> Result<()> {
        stream.context().bind()?;
        // SAFETY: the address has that length.
        unsafe { stream.driver().memory_fill(self.address, value, self.bytes / 4, stream.raw()) }
    }

    fn same_length(&self, host: usize) -> Result<()> {
        if host == self.bytes {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "the length differs: {host} bytes on the host, {} on the device",
            self.bytes
        )))
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        if self.borrowed {
            return;
        }
        // A fill, or a kernel, may still be in flight.
        let synchronized = self.context.synchronize();
        self.context.store_error(synchronized);
        let driver = self.context.driver();
        // SAFETY: it is freed once, and no work in flight uses it.
        self.context.destroy(|| unsafe { driver.memory_free(self.address) });
    }
}
