//! Memory of a device (GPU), and streams that access it.
#![allow(unsafe_code)]

use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr};

use super::cuda::{Owner, Stream, driver_message, open};
use super::pending_operations::PendingOperations;
use crate::{Element, Error, Result, WaitStrategy};

/// Elements in the memory of a device (GPU).
///
/// A collective takes its buffers and returns them, so that memory that the device still writes to
/// is not freed. Buffers must be ready on the stream that is passed to the operation: written on
/// it, or on another stream that it has waited for.
pub struct NcclBuffer<T> {
    pointer: u64,
    len: usize,
    /// `None` for an empty buffer.
    owner: Option<Owner>,
    element: PhantomData<T>,
}

impl<T: Element> NcclBuffer<T> {
    /// Creates a buffer from a cudarc slice without a copy. [`into_owner`](Self::into_owner)
    /// returns the slice.
    #[must_use]
    pub fn from_slice(slice: CudaSlice<T>) -> Self
    where
        CudaSlice<T>: Send,
    {
        let stream = Arc::clone(slice.stream());
        let (pointer, len) = (slice.device_ptr(&stream).0, slice.len());
        Self { pointer, len, owner: Some(Box::new(slice)), element: PhantomData }
    }

    /// Creates a buffer of the `len` elements at the device address `pointer`, which belong to
    /// `owner`, for example a tensor of another library. The owner is dropped when the memory is no
    /// longer needed.
    ///
    /// # Safety
    /// The range is memory of the communicator's device, aligned to the elements, and valid while
    /// `owner` lives. Until the buffer is returned, only work on the stream that the buffer is used
    /// on accesses it.
    #[must_use]
    pub unsafe fn from_raw(pointer: u64, len: usize, owner: impl Any + Send) -> Self {
        Self { pointer, len, owner: Some(Box::new(owner)), element: PhantomData }
    }

    /// Allocates `len` uninitialized elements on the stream's device, in the order of the stream.
    ///
    /// # Errors
    /// [`Error::Device`] if the allocation fails.
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

    /// Allocates a buffer, copies `elements` from the host to it after all work in `stream`, and
    /// waits for the copy.
    ///
    /// # Errors
    /// [`Error::Device`] if the allocation or the copy fails, and those of
    /// [`synchronize`](NcclStream::synchronize).
    pub fn upload(elements: &[T], stream: &NcclStream) -> Result<Self> {
        let buffer = Self::uninitialised(elements.len(), stream)?;
        if !buffer.is_empty() {
            stream.wait_for_operations()?;
            // SAFETY: elements are plain numbers.
            let bytes =
                unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) };
            // SAFETY: the buffer has the length of the elements.
            unsafe { stream.raw.upload(bytes, buffer.pointer) }.map_err(|message| Error::Device {
                action: format!("copy {} {} elements from the host", elements.len(), T::TYPE),
                message,
            })?;
        }
        Ok(buffer)
    }

    /// Waits for all work in `stream`, then copies the elements to the host.
    ///
    /// # Errors
    /// [`Error::Device`] if the copy fails, and those of [`synchronize`](NcclStream::synchronize).
    pub fn download(&self, stream: &NcclStream) -> Result<Vec<T>> {
        let mut elements = vec![T::default(); self.len];
        if !self.is_empty() {
            stream.wait_for_operations()?;
            let size = size_of_val(elements.as_slice());
            // SAFETY: elements are plain numbers, for which any bytes are valid.
            let bytes = unsafe { std::slice::from_raw_parts_mut(elements.as_mut_ptr().cast(), size) };
            // SAFETY: the buffer has the length of the elements.
            unsafe { stream.raw.download(self.pointer, bytes) }.map_err(|message| Error::Device {
                action: format!("copy {} {} elements to the host", self.len, T::TYPE),
                message,
            })?;
        }
        Ok(elements)
    }

    /// Waits for all work in `stream`, then copies the elements of `source`, which has the same
    /// length and other memory, to this buffer, and waits for the copy.
    ///
    /// # Errors
    /// [`Error::Device`] if the copy fails, and those of [`synchronize`](NcclStream::synchronize).
    pub(super) fn copy_from(&mut self, source: &Self, stream: &NcclStream) -> Result<()> {
        let len = self.len.min(source.len);
        if len == 0 {
            return Ok(());
        }
        stream.wait_for_operations()?;
        // SAFETY: both buffers have these elements, and outlive the copy, which is waited for.
        let copied = unsafe { stream.raw.copy(source.pointer, self.pointer, len * size_of::<T>()) };
        copied
            .and_then(|()| stream.raw.synchronize())
            .map_err(|message| Error::Device { action: format!("copy {len} {} elements", T::TYPE), message })
    }

    /// Returns the owner of the memory, as passed to [`from_raw`](Self::from_raw) or
    /// [`from_slice`](Self::from_slice), if its type is `O`.
    ///
    /// # Errors
    /// The unchanged buffer if its owner has another type.
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

    /// Whether the buffer has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Device address of the first element, or 0 for a buffer without memory.
    #[must_use]
    pub fn device_pointer(&self) -> u64 {
        self.pointer
    }

    /// Device address of the element at `index`.
    pub(super) fn address(&self, index: usize) -> u64 {
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

/// A CUDA stream: a queue of work that a device executes in order.
///
/// A stream and its clones track the operations started in it. Wait for the requests before waiting
/// for the stream by other means, such as cudarc's: these do not detect that an operation lacks a
/// rank.
#[derive(Debug, Clone)]
pub struct NcclStream {
    /// CUDA's stream.
    pub(super) raw: Stream,
    /// Operations started in the stream that may be incomplete, shared by its clones.
    pub(super) pending: Arc<PendingOperations>,
}

impl NcclStream {
    /// Creates a stream without tracked operations from a stream of CUDA.
    pub(super) fn new(raw: Stream) -> Self {
        Self { raw, pending: Arc::default() }
    }

    /// Creates a stream on a device, numbered from 0.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if CUDA or the device is missing, [`Error::Device`] if the driver
    /// cannot create the stream.
    pub fn on_device(device: usize) -> Result<Self> {
        let failed = |message| Error::Device { action: "create a stream".to_owned(), message };
        open(device)?.stream().map(Self::new).map_err(failed)
    }

    /// Makes work that is enqueued from now on wait for all work in another stream of the device: a
    /// `CUstream` or `cudaStream_t` of another library.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver fails.
    ///
    /// # Safety
    /// The other stream belongs to this device's primary context.
    pub unsafe fn wait_for(&self, other: *mut c_void) -> Result<()> {
        let failed =
            |error| Error::Device { action: "wait for a stream".to_owned(), message: driver_message(error) };
        // SAFETY: as the caller promises; the wrapper is not used after this call.
        let other = unsafe { self.raw.0.context().wrap_borrowed_stream(other.cast()) };
        self.raw.0.join(&other).map_err(failed)
    }

    /// Wraps a cudarc stream. Operations that were started in another `NcclStream` of it are not
    /// tracked.
    #[must_use]
    pub fn from_cuda(stream: Arc<CudaStream>) -> Self {
        Self::new(Stream(stream))
    }

    /// Returns the `CUstream` or `cudaStream_t` for other libraries. It is valid while this stream
    /// lives.
    #[must_use]
    pub fn as_raw(&self) -> *mut c_void {
        self.raw.raw().cast()
    }

    /// Wraps a stream that another library has created in the primary context of a device, numbered
    /// from 0, and that it destroys: a `CUstream` or `cudaStream_t`.
    ///
    /// # Errors
    /// [`Error::Device`] if the device cannot be used.
    ///
    /// # Safety
    /// It is a stream of that device, and lives as long as this object and the operations started
    /// in it.
    pub unsafe fn borrow(device: usize, raw: *mut c_void) -> Result<Self> {
        let failed = |error| Error::Device {
            action: "use a stream of another library".to_owned(),
            message: driver_message(error),
        };
        let context = CudaContext::new(device).map_err(failed)?;
        // SAFETY: as the caller promises.
        Ok(Self::from_cuda(unsafe { context.wrap_borrowed_stream(raw.cast()) }))
    }

    /// Waits until all work enqueued so far is complete. An operation that fails or times out ends
    /// the wait.
    ///
    /// # Errors
    /// The error of an operation in the stream, unless its request has returned it;
    /// [`Error::Device`] if other work failed.
    pub fn synchronize(&self) -> Result<()> {
        self.wait_for_operations()?;
        let failed = |message| Error::Device { action: "finish its work".to_owned(), message };
        self.raw.synchronize().map_err(failed)
    }

    /// Waits for the operations. The driver's own waits would not detect their failures.
    fn wait_for_operations(&self) -> Result<()> {
        self.pending.wait(WaitStrategy::Park)
    }
}
