//! Memory on a device, and the streams that work on it.
#![allow(unsafe_code)]

use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr};

use super::cuda::{Owner, Stream, open, words};
use super::enqueued::{Enqueued, PendingOperations};
use crate::{Element, Error, Result, WaitStrategy};

/// Elements in the memory of a device.
///
/// A collective takes its buffers and gives them back, so that memory that the device still writes to is not freed. They have
/// to be ready on the stream that it is given: made there, or after that stream was made to wait for them.
pub struct NcclBuffer<T> {
    pointer: u64,
    len: usize,
    /// `None` for an empty buffer.
    owner: Option<Owner>,
    element: PhantomData<T>,
}

impl<T: Element> NcclBuffer<T> {
    /// The elements of a cudarc slice. [`into_owner`](Self::into_owner) gives it back.
    #[must_use]
    pub fn from_slice(slice: CudaSlice<T>) -> Self
    where
        CudaSlice<T>: Send,
    {
        let stream = Arc::clone(slice.stream());
        let (pointer, len) = (slice.device_ptr(&stream).0, slice.len());
        Self { pointer, len, owner: Some(Box::new(slice)), element: PhantomData }
    }

    /// The `len` elements at the device address `pointer`, which belong to `owner`: a tensor of another library, say.
    /// The owner is dropped when the memory is needed no more.
    ///
    /// # Safety
    /// The range is memory of the communicator's device, aligned to the elements, that stays as long as `owner` does.
    /// Until the buffer is given back, nothing else uses it but work on the stream that the buffer is used on.
    #[must_use]
    pub unsafe fn from_raw(pointer: u64, len: usize, owner: impl Any + Send) -> Self {
        Self { pointer, len, owner: Some(Box::new(owner)), element: PhantomData }
    }

    /// `len` elements of memory that was not written yet.
    ///
    /// # Errors
    /// [`Error::Device`] when there is no such memory.
    pub fn uninitialised(len: usize, stream: &NcclStream) -> Result<Self> {
        if len == 0 {
            return Ok(Self::default());
        }
        let failed =
            |message| Error::Device { action: format!("allocate {len} {} elements", T::TYPE), message };
        let bytes = len.checked_mul(size_of::<T>()).ok_or_else(|| failed("too many".to_owned()))?;
        let (pointer, owner) = stream.raw.allocate(bytes).map_err(failed)?;
        Ok(Self { pointer, len, owner: Some(owner), element: PhantomData })
    }

    /// A copy of `elements`; returns when it is made, after all that is in `stream`.
    ///
    /// # Errors
    /// [`Error::Device`] when there is no memory or the copy fails, and those of
    /// [`synchronize`](NcclStream::synchronize).
    pub fn upload(elements: &[T], stream: &NcclStream) -> Result<Self> {
        let buffer = Self::uninitialised(elements.len(), stream)?;
        if !buffer.is_empty() {
            stream.settle()?;
            // SAFETY: elements are plain numbers.
            let bytes =
                unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) };
            // SAFETY: the buffer is as long as the elements.
            unsafe { stream.raw.upload(bytes, buffer.pointer) }.map_err(|message| Error::Device {
                action: format!("copy {} {} elements from the host", elements.len(), T::TYPE),
                message,
            })?;
        }
        Ok(buffer)
    }

    /// The elements, once all work on `stream` is done.
    ///
    /// # Errors
    /// [`Error::Device`] when the copy fails, and those of [`synchronize`](NcclStream::synchronize).
    pub fn download(&self, stream: &NcclStream) -> Result<Vec<T>> {
        let mut elements = vec![T::default(); self.len];
        if !self.is_empty() {
            stream.settle()?;
            let size = size_of_val(elements.as_slice());
            // SAFETY: elements are plain numbers, any bytes are valid ones.
            let bytes = unsafe { std::slice::from_raw_parts_mut(elements.as_mut_ptr().cast(), size) };
            // SAFETY: the buffer is as long as the elements.
            unsafe { stream.raw.download(self.pointer, bytes) }.map_err(|message| Error::Device {
                action: format!("copy {} {} elements to the host", self.len, T::TYPE),
                message,
            })?;
        }
        Ok(elements)
    }

    /// Takes the memory's owner out again, if it is an `O`.
    ///
    /// # Errors
    /// The buffer as it was, if its owner is something else.
    pub fn into_owner<O: Any>(mut self) -> std::result::Result<O, Self> {
        match self.owner.take().map(Owner::downcast::<O>) {
            Some(Ok(owner)) => Ok(*owner),
            other => {
                self.owner = other.and_then(std::result::Result::err);
                Err(self)
            }
        }
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device's address of the first element; 0 for a buffer that never had memory.
    #[must_use]
    pub fn device_pointer(&self) -> u64 {
        self.pointer
    }

    /// The address of the element at `index`.
    pub(super) fn at(&self, index: usize) -> u64 {
        self.pointer + (index * size_of::<T>()) as u64
    }
}

impl<T> Default for NcclBuffer<T> {
    fn default() -> Self {
        Self { pointer: 0, len: 0, owner: None, element: PhantomData }
    }
}

impl<T> fmt::Debug for NcclBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NcclBuffer({:#x}, {} elements)", self.pointer, self.len)
    }
}

/// Work on a device that is done in the order in which it is enqueued: a CUDA stream.
///
/// It and its clones know the operations that were started in it. Wait for the requests before waiting for the
/// stream by other means, such as cudarc's: these do not notice that an operation lacks a rank.
#[derive(Debug, Clone)]
pub struct NcclStream {
    pub(super) raw: Stream,
    pub(super) pending: Arc<PendingOperations>,
}

impl NcclStream {
    pub(super) fn new(raw: Stream) -> Self {
        Self { raw, pending: Arc::default() }
    }

    /// A new stream on a device, counted from 0.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without CUDA or the device, [`Error::Device`] when the driver has no stream.
    pub fn on_device(device: usize) -> Result<Self> {
        let failed = |message| Error::Device { action: "make a stream".to_owned(), message };
        open(device)?.stream().map(Self::new).map_err(failed)
    }

    /// Lets what is enqueued from now on wait for all that is in another stream of the device by now: a `CUstream` or `cudaStream_t`
    /// of another library.
    ///
    /// # Errors
    /// [`Error::Device`] when the driver refuses it.
    ///
    /// # Safety
    /// The other stream is one of this device, in its primary context.
    pub unsafe fn wait_for(&self, other: *mut c_void) -> Result<()> {
        let failed = |error| Error::Device { action: "wait for a stream".to_owned(), message: words(error) };
        // SAFETY: as the caller promises; it is not used after this call.
        let other = unsafe { self.raw.0.context().wrap_borrowed_stream(other.cast()) };
        self.raw.0.join(&other).map_err(failed)
    }

    /// The same stream as cudarc's. It knows nothing of operations that were started in another `NcclStream` of it.
    #[must_use]
    pub fn from_cuda(stream: Arc<CudaStream>) -> Self {
        Self::new(Stream(stream))
    }

    /// CUDA's `CUstream` or `cudaStream_t`, for other libraries. It lives as long as this stream.
    #[must_use]
    pub fn as_raw(&self) -> *mut c_void {
        self.raw.raw().cast()
    }

    /// A stream that another library has made in the primary context of a device, counted from 0, and which that one destroys: a
    /// `CUstream` or `cudaStream_t`.
    ///
    /// # Errors
    /// [`Error::Device`] when the device cannot be used.
    ///
    /// # Safety
    /// It is a stream of that device, and lives as long as this and as the operations that are started in it.
    pub unsafe fn borrow(device: usize, raw: *mut c_void) -> Result<Self> {
        let failed = |error| Error::Device {
            action: "use a stream of another library".to_owned(),
            message: words(error),
        };
        let context = CudaContext::new(device).map_err(failed)?;
        // SAFETY: as the caller promises.
        Ok(Self::from_cuda(unsafe { context.wrap_borrowed_stream(raw.cast()) }))
    }

    /// Waits until all work enqueued so far is done. An operation that fails, or is late, ends the wait.
    ///
    /// # Errors
    /// That of an operation in it, unless its request has returned it; [`Error::Device`]: what went wrong in other work.
    pub fn synchronize(&self) -> Result<()> {
        self.settle()?;
        let failed = |message| Error::Device { action: "finish its work".to_owned(), message };
        self.raw.synchronize().map_err(failed)
    }

    /// Waits for the operations. The driver's own waits would not notice that they fail.
    fn settle(&self) -> Result<()> {
        self.pending.wait(WaitStrategy::Park)
    }
}

/// What the device may still write to after its request was dropped.
#[derive(Debug, Default)]
pub(super) struct Abandoned(Vec<(Arc<Enqueued>, Owner)>);

impl Abandoned {
    /// Keeps `memory` until the device has passed `operation`.
    pub(super) fn keep(&mut self, operation: Arc<Enqueued>, memory: Owner) {
        self.0.push((operation, memory));
    }

    /// Frees what the device is done with.
    pub(super) fn sweep(&mut self) {
        self.0.retain(|(operation, _)| !operation.has_passed());
    }
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        // A query that fails says nothing of the work: what is left is asked about once more.
        self.sweep();
        self.sweep();
        // Better leaked than written to by the device after it has been allocated again.
        mem::forget(mem::take(&mut self.0));
    }
}
