//! What the backend needs of a GPU.
#![allow(unsafe_code)]

use std::any::Any;
use std::fmt;
use std::result::Result;

use super::api::RawStream;

/// The owner of memory.
pub(super) type Owner = Box<dyn Any + Send>;

/// A GPU.
pub(super) trait GpuDevice: fmt::Debug + Send + Sync {
    /// Makes it the calling thread's device.
    fn bind(&self) -> Result<(), String>;

    /// A stream that runs beside all others.
    fn stream(&self) -> Result<std::sync::Arc<dyn Stream>, String>;
}

/// Work on a GPU that is done in the order in which it is enqueued.
pub(super) trait Stream: fmt::Debug + Send + Sync {
    /// The stream as libraries take it.
    fn raw(&self) -> RawStream;

    /// Records an event behind all the work enqueued so far.
    fn event(&self) -> Result<Box<dyn StreamEvent>, String>;

    /// Waits for all the work enqueued so far.
    fn synchronize(&self) -> Result<(), String>;

    /// Memory that was not written yet, never of zero bytes.
    fn allocate(&self, bytes: usize) -> Result<(u64, Owner), String>;

    /// Enqueues a copy within the device.
    ///
    /// # Safety
    /// Both ranges are device memory that stays until the work is done, and do not overlap.
    unsafe fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<(), String>;

    /// Copies from the host, and waits for it.
    ///
    /// # Safety
    /// `to` is device memory of that size.
    unsafe fn upload(&self, from: &[u8], to: u64) -> Result<(), String>;

    /// Copies to the host, and waits for it.
    ///
    /// # Safety
    /// `from` is device memory of that size.
    unsafe fn download(&self, from: u64, to: &mut [u8]) -> Result<(), String>;
}

/// A CUDA event that was recorded in a stream.
pub(super) trait StreamEvent: fmt::Debug + Send + Sync {
    /// Whether all the work before it is done.
    fn is_complete(&self) -> Result<bool, String>;
}
