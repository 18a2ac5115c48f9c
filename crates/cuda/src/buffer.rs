//! Buffers: elements in device memory. Functions that return a `Result` also return the error of a
//! failed call of the CUDA driver (a *CUDA error*).
#![allow(unsafe_code)]

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use cudarc::driver::sys;

use crate::driver::cu;
use crate::element::bytes_of;
use crate::memory::{Memory, check_not_captured_elsewhere};
use crate::{Context, Element, Error, HostBuffer, Result, RowCopy, Stream};

/// Elements in device memory, allocated here or by another library.
///
/// The memory is freed with the last buffer of it, after all work in its context is complete,
/// unless it was allocated [in a stream](Self::in_stream). A captured graph keeps the memory that
/// its kernels and copies use. Do not drop the last buffer while any thread captures a stream of
/// the context, for which CUDA permits no wait: the memory is then leaked.
///
/// The device accesses buffers through shared references: work in streams is ordered by the
/// streams, and not by the borrow checker.
pub struct Buffer<T> {
    /// `None` for a buffer without elements.
    memory: Option<Arc<Memory>>,
    address: u64,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Element> Buffer<T> {
    /// Allocates `len` uninitialized elements. Do not call this while a stream is being captured.
    ///
    /// # Errors
    /// CUDA errors; [`Error::is_out_of_memory`] identifies the lack of memory.
    pub fn uninitialized(context: &Context, len: usize) -> Result<Self> {
        Self::allocate(len, |bytes| Memory::allocate(context, bytes))
    }

    /// Allocates `len` elements of zero bytes, and waits until they are written. Do not call this
    /// while a stream is being captured.
    ///
    /// # Errors
    /// As [`uninitialized`](Self::uninitialized).
    pub fn zeros(context: &Context, len: usize) -> Result<Self> {
        let buffer = Self::uninitialized(context, len)?;
        let stream = Stream::default_of(context);
        buffer.fill_bytes(&stream, 0)?;
        stream.synchronize()?;
        Ok(buffer)
    }

    /// Allocates `len` uninitialized elements in the order of `stream`, and frees them in its
    /// order: neither waits for the device. Other streams must be ordered behind the allocation,
    /// and before the drop.
    ///
    /// # Errors
    /// As [`uninitialized`](Self::uninitialized).
    pub fn in_stream(stream: &Stream, len: usize) -> Result<Self> {
        Self::allocate(len, |bytes| Memory::allocate_in(stream, bytes))
    }

    /// Allocates a buffer with a copy of `elements`, and waits for the copy. Do not call this while
    /// a stream is being captured.
    ///
    /// # Errors
    /// As [`uninitialized`](Self::uninitialized).
    pub fn from_slice(context: &Context, elements: &[T]) -> Result<Self> {
        let buffer = Self::uninitialized(context, elements.len())?;
        buffer.upload(&Stream::default_of(context), elements)?;
        Ok(buffer)
    }

    /// Wraps `len` elements at the device address `address` that belong to `owner`, for example a
    /// tensor of another library. The owner is dropped with the last buffer of the memory.
    ///
    /// # Safety
    /// The range must be memory of this context, aligned to the elements, and valid while `owner`
    /// lives. Enqueued work that uses it must be complete when the last buffer of it is dropped, or
    /// the owner must order the reuse of the memory behind that work.
    #[must_use]
    pub unsafe fn from_raw(
        context: &Context,
        address: u64,
        len: usize,
        owner: impl Any + Send + Sync,
    ) -> Self {
        let memory = Memory::of_other(context, address, Box::new(owner));
        Self { memory: Some(Arc::new(memory)), address, len, element: PhantomData }
    }

    fn allocate(len: usize, memory: impl FnOnce(usize) -> Result<Memory>) -> Result<Self> {
        if len == 0 {
            return Ok(Self::default());
        }
        let bytes = bytes_of::<T>(len)?;
        let memory = memory(bytes)?;
        let address = memory.address();
        Ok(Self { memory: Some(Arc::new(memory)), address, len, element: PhantomData })
    }

    /// Returns another buffer of a part of the elements, which shares the memory.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the range exceeds the buffer.
    ///
    /// # Safety
    /// The caller orders the accesses to parts that overlap. This matters to users that treat a
    /// buffer as exclusively theirs, such as collectives.
    pub unsafe fn alias(&self, range: Range<usize>) -> Result<Self> {
        if range.start > range.end || range.end > self.len {
            return Err(Error::Invalid(format!("elements {range:?} of a buffer of {} elements", self.len)));
        }
        let address = self.address_of(range.start);
        Ok(Self { memory: self.memory.clone(), address, len: range.len(), element: PhantomData })
    }

    /// Returns the device address of the first element, or 0 for a buffer without memory.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the device address of the element at `index`, which may be the end.
    ///
    /// # Panics
    /// If the index is larger than the length.
    #[must_use]
    pub fn address_of(&self, index: usize) -> u64 {
        assert!(index <= self.len, "element {index} of a buffer of {} elements", self.len);
        self.address + (index * size_of::<T>()) as u64
    }

    /// Returns the device address `offset` bytes after the start, which may be the end.
    ///
    /// # Panics
    /// If the offset is larger than the size.
    pub(crate) fn address_of_byte(&self, offset: usize) -> u64 {
        let bytes = self.size_bytes();
        assert!(offset <= bytes, "byte {offset} of a buffer of {bytes} bytes");
        self.address + offset as u64
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

    /// Returns the length in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// Copies `from` from the host to the buffer. Waits until the copy and all earlier work in the
    /// stream are complete.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the lengths differ; CUDA errors.
    pub fn upload(&self, stream: &Stream, from: &[T]) -> Result<()> {
        self.same_length(from.len())?;
        self.copy_and_wait(stream, |bytes| {
            let from = from.as_ptr().cast();
            // SAFETY: both have the same length; `from` outlives the copy, which is waited for.
            unsafe { cu!(stream.driver(), cuMemcpyHtoDAsync_v2(self.address, from, bytes, stream.raw())) }
        })
    }

    /// Copies the buffer to `to` on the host. Waits until the copy and all earlier work in the
    /// stream are complete.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the lengths differ; CUDA errors.
    pub fn download(&self, stream: &Stream, to: &mut [T]) -> Result<()> {
        self.same_length(to.len())?;
        self.copy_and_wait(stream, |bytes| {
            let to = to.as_mut_ptr().cast();
            // SAFETY: both have the same length; `to` outlives the copy, which is waited for.
            unsafe { cu!(stream.driver(), cuMemcpyDtoHAsync_v2(to, self.address, bytes, stream.raw())) }
        })
    }

    /// Copies the buffer to a new vector. Waits until the copy and all earlier work in the stream
    /// are complete.
    pub fn to_vec(&self, stream: &Stream) -> Result<Vec<T>> {
        // SAFETY: any bytes are a valid element.
        let mut elements = vec![unsafe { std::mem::zeroed() }; self.len];
        self.download(stream, &mut elements)?;
        Ok(elements)
    }

    /// Enqueues a copy of `from` to the start of this buffer. Does not wait.
    ///
    /// # Errors
    /// [`Error::Invalid`] if this buffer is shorter; CUDA errors.
    ///
    /// # Safety
    /// `from` stays alive and is not written until the copy is complete. In a capture, this holds
    /// for every launch of the graph.
    pub unsafe fn enqueue_upload(&self, stream: &Stream, from: &HostBuffer<T>) -> Result<()> {
        self.no_shorter_than(from.len())?;
        self.enqueue(stream, from.len(), |bytes| {
            let from = from.as_slice().as_ptr().cast();
            // SAFETY: this buffer is as long, and the caller keeps `from`.
            unsafe { cu!(stream.driver(), cuMemcpyHtoDAsync_v2(self.address, from, bytes, stream.raw())) }
        })
    }

    /// Enqueues a copy of the start of this buffer that fills `to`. Does not wait.
    ///
    /// # Errors
    /// [`Error::Invalid`] if this buffer is shorter; CUDA errors.
    ///
    /// # Safety
    /// `to` stays alive and is neither read nor written until the copy is complete. In a capture,
    /// this holds for every launch of the graph.
    pub unsafe fn enqueue_download(&self, stream: &Stream, to: &mut HostBuffer<T>) -> Result<()> {
        self.no_shorter_than(to.len())?;
        self.enqueue(stream, to.len(), |bytes| {
            let to = to.as_mut_slice().as_mut_ptr().cast();
            // SAFETY: this buffer is as long, and the caller keeps `to`.
            unsafe { cu!(stream.driver(), cuMemcpyDtoHAsync_v2(to, self.address, bytes, stream.raw())) }
        })
    }

    /// Enqueues a copy of the elements `range` of `from`, memory of the same device that does not
    /// overlap, to the elements of this buffer from `first`. Does not wait.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a range exceeds its buffer; CUDA errors.
    pub fn enqueue_copy(
        &self,
        stream: &Stream,
        first: usize,
        from: &Self,
        range: Range<usize>,
    ) -> Result<()> {
        let len = range.len();
        if range.start > range.end
            || range.end > from.len
            || first.checked_add(len).is_none_or(|end| end > self.len)
        {
            return Err(Error::Invalid(format!(
                "a copy of elements {range:?} of {} to {first}.. of {} exceeds a buffer",
                from.len, self.len
            )));
        }
        if let (Some(memory), 1..) = (&from.memory, len) {
            memory.use_in(stream)?;
        }
        self.enqueue(stream, len, |bytes| {
            let (to, from) = (self.address_of(first), from.address_of(range.start));
            // SAFETY: both ranges are in their buffers, whose drop waits for the copy.
            unsafe { cu!(stream.driver(), cuMemcpyDtoDAsync_v2(to, from, bytes, stream.raw())) }
        })
    }

    /// Enqueues a copy of rows from `from`, memory of the same device that does not overlap, to
    /// this buffer. Does not wait.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a row exceeds its buffer, rows overlap, or the distance of slices is
    /// no multiple of that of rows; CUDA errors.
    pub fn enqueue_copy_rows(&self, stream: &Stream, from: &Self, rows: &RowCopy) -> Result<()> {
        rows.check([from.len, self.len])?;
        if let (Some(memory), 1..) = (&from.memory, rows.elements()) {
            memory.use_in(stream)?;
        }
        self.enqueue(stream, rows.elements(), |_| {
            let copy = rows.parameters(size_of::<T>(), [from.address, self.address]);
            // SAFETY: all rows are in their buffers, whose drop waits for the copy.
            unsafe { cu!(stream.driver(), cuMemcpy3DAsync_v2(&raw const copy, stream.raw())) }
        })
    }

    /// Enqueues a fill of all bytes of the buffer. Does not wait.
    pub fn fill_bytes(&self, stream: &Stream, value: u8) -> Result<()> {
        self.enqueue(stream, self.len, |bytes| {
            // SAFETY: the address has that length.
            unsafe { cu!(stream.driver(), cuMemsetD8Async(self.address, value, bytes, stream.raw())) }
        })
    }

    /// Prepares the use of the buffer by a kernel that is enqueued into `stream` next and is given
    /// its address within a structure. Graphs that this thread is capturing keep the memory.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the buffer belongs to another device than the stream.
    pub fn use_in(&self, stream: &Stream) -> Result<()> {
        self.memory.as_ref().map_or(Ok(()), |memory| memory.use_in(stream))
    }

    /// Returns the memory, if there are elements.
    pub(crate) fn memory(&self) -> Option<&Arc<Memory>> {
        self.memory.as_ref()
    }

    /// Calls `copy` with the number of bytes, unless it is zero, to enqueue a copy of this buffer,
    /// and waits for it.
    fn copy_and_wait(&self, stream: &Stream, copy: impl FnOnce(usize) -> Result<()>) -> Result<()> {
        let Some(memory) = &self.memory else { return Ok(()) };
        check_not_captured_elsewhere(stream)?;
        memory.check_device(stream)?;
        stream.context().bind()?;
        let copied = stream.with_technique(copy(self.size_bytes())).and_then(|()| stream.synchronize());
        // A copy that was not waited for may be in flight, or captured.
        copied.or_else(|error| memory.use_in(stream).and(Err(error)))
    }

    /// Calls `copy` with a number of bytes, unless it is zero, to enqueue work on this buffer.
    fn enqueue(&self, stream: &Stream, len: usize, copy: impl FnOnce(usize) -> Result<()>) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        check_not_captured_elsewhere(stream)?;
        if let Some(memory) = &self.memory {
            memory.use_in(stream)?;
        }
        stream.context().bind()?;
        stream.with_technique(copy(len * size_of::<T>()))
    }

    fn same_length(&self, host: usize) -> Result<()> {
        if host == self.len {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "the length differs: {host} elements on the host, {} on the device",
            self.len
        )))
    }

    fn no_shorter_than(&self, host: usize) -> Result<()> {
        if host <= self.len {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "the buffer is too short: {host} elements on the host, {} on the device",
            self.len
        )))
    }
}

impl Buffer<u32> {
    /// Enqueues a fill of all elements. Does not wait.
    pub fn fill(&self, stream: &Stream, value: u32) -> Result<()> {
        self.enqueue(stream, self.len, |_| {
            // SAFETY: the address has that many elements.
            unsafe { cu!(stream.driver(), cuMemsetD32Async(self.address, value, self.len, stream.raw())) }
        })
    }
}

impl<T> Default for Buffer<T> {
    /// Returns a buffer without elements.
    fn default() -> Self {
        Self { memory: None, address: 0, len: 0, element: PhantomData }
    }
}

impl<T> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({:#x}, {} elements)", self.address, self.len)
    }
}
