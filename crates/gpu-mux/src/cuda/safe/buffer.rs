#![allow(unsafe_code)]

use super::context::Context;
use super::stream::Stream;
use crate::cuda::error::{Error, Result};
use crate::cuda::result::written;
use crate::cuda::sys::Address;

/// Memory on the device. Its drop waits until all work in its context is complete.
#[derive(Debug)]
pub struct DeviceBuffer {
    context: Context,
    address: Address,
    bytes: usize,
    /// Another library frees it.
    borrowed: bool,
}

impl DeviceBuffer {
    /// Allocates memory, of any content. Not to be done while a stream is captured.
    pub fn new(context: &Context, bytes: usize) -> Result<Self> {
        context.bind()?;
        // SAFETY: the address is written; the context is current.
        let address = written(|address| unsafe { context.driver().memory_allocate(address, bytes) })?;
        Ok(Self { context: context.clone(), address, bytes, borrowed: false })
    }

    /// Memory that another library has allocated in the device's primary context, and which that one frees.
    ///
    /// # Safety
    /// It is so many bytes of memory of this context, and lives as long as this.
    #[must_use]
    pub unsafe fn borrow(context: &Context, address: u64, bytes: usize) -> Self {
        Self { context: context.clone(), address, bytes, borrowed: true }
    }

    /// Its address on the device, for kernels.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its length.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.bytes
    }

    /// Copies from the host, and waits until it is done and everything before it in the stream.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless the lengths are equal; what CUDA reports.
    pub fn upload(&self, stream: &Stream, from: &[u8]) -> Result<()> {
        self.same_length(from.len())?;
        self.context.bind()?;
        // SAFETY: both are as long; `from` stays, since the copy is waited for.
        unsafe {
            stream.driver().memory_upload(self.address, from.as_ptr().cast(), self.bytes, stream.raw())
        }?;
        stream.synchronize()
    }

    /// Copies to the host, and waits until it is done and everything before it in the stream.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless the lengths are equal; what CUDA reports.
    pub fn download(&self, stream: &Stream, to: &mut [u8]) -> Result<()> {
        self.same_length(to.len())?;
        self.context.bind()?;
        // SAFETY: both are as long; `to` stays, since the copy is waited for.
        unsafe {
            stream.driver().memory_download(to.as_mut_ptr().cast(), self.address, self.bytes, stream.raw())
        }?;
        stream.synchronize()
    }

    /// Sets every four bytes to `value`, in the order of the stream. It does not wait; bytes beyond a multiple of four
    /// are not written.
    pub fn fill(&self, stream: &Stream, value: u32) -> Result<()> {
        stream.context().bind()?;
        // SAFETY: the address has that length.
        unsafe { stream.driver().memory_fill(self.address, value, self.bytes / 4, stream.raw()) }
    }

    fn same_length(&self, host: usize) -> Result<()> {
        if host == self.bytes {
            return Ok(());
        }
        Err(Error::Invalid(format!("{host} bytes on the host do not go with {} on the device", self.bytes)))
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        if self.borrowed {
            return;
        }
        // A fill, or a kernel, may still be in flight.
        let synchronized = self.context.synchronize();
        self.context.keep(synchronized);
        let driver = self.context.driver();
        // SAFETY: it is freed once, and nothing that is in flight uses it.
        self.context.destroy(|| unsafe { driver.memory_free(self.address) });
    }
}
