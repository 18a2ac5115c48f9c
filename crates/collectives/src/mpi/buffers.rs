//! Buffers of an operation, independent of their element type. A *word* is 8 bytes of a buffer or
//! message.
#![allow(unsafe_code)]

use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::ops::Range;
use std::ptr;
use std::slice;

use mpi::ffi;

use crate::{Element, ElementType, Exchanged, HostBuffer, ReduceOp, bf16, f16};

/// Owner of the send and receive buffers of an operation. An operation on one buffer has it as the
/// receive buffer.
pub(super) struct Buffers {
    /// An `Exchanged<HostBuffer<T>>`. Not accessed while MPI uses the pointers below.
    owner: Box<dyn Any + Send>,
    /// Start of the send buffer. Null if it is empty.
    pub(super) send: *const c_void,
    /// Start of the receive buffer. Null if it is empty.
    pub(super) receive: *mut c_void,
    element: ElementType,
    /// Length of the send buffer in elements.
    pub(super) send_len: usize,
    /// Length of the receive buffer in elements.
    pub(super) receive_len: usize,
    /// Of an all-to-all-v: the index of the first element of each member's chunk in the send buffer
    /// and in the receive buffer. `None` if the chunks follow each other.
    pub(super) chunk_starts: Option<[Vec<usize>; 2]>,
}

// SAFETY: the pointers are into the owner, which is `Send`.
unsafe impl Send for Buffers {}

impl Buffers {
    /// Takes ownership of the buffers. Their memory is not moved.
    pub(super) fn new<T: Element>(buffers: Exchanged<HostBuffer<T>>) -> Self {
        let mut owner = Box::new(buffers);
        // An empty buffer of bytes may have the address 1, which is MPI's `MPI_IN_PLACE`.
        let send = if owner.send.is_empty() { ptr::null() } else { owner.send.as_ptr().cast() };
        let receive =
            if owner.receive.is_empty() { ptr::null_mut() } else { owner.receive.as_mut_ptr().cast() };
        Self {
            send,
            receive,
            element: T::TYPE,
            send_len: owner.send.len(),
            receive_len: owner.receive.len(),
            chunk_starts: None,
            owner,
        }
    }

    /// Sets the index of the first element of each member's chunk of an all-to-all-v.
    pub(super) fn with_chunks_at(self, starts: [Vec<usize>; 2]) -> Self {
        Self { chunk_starts: Some(starts), ..self }
    }

    /// Returns the buffers, or `None` if their elements are not of type `T`.
    pub(super) fn take<T: Element>(self) -> Option<Exchanged<HostBuffer<T>>> {
        self.owner.downcast().ok().map(|buffers| *buffers)
    }

    /// Appends the words `words` of the receive buffer to a message. Zeros fill up the last word.
    pub(super) fn append_words(&self, words: Range<usize>, message: &mut Vec<u64>) {
        let bytes = self.receive_len * self.element.size_bytes();
        let (start, end) = (words.start * size_of::<u64>(), bytes.min(words.end * size_of::<u64>()));
        let Some(last) = words.len().checked_sub(1).filter(|_| start < end) else { return };
        message.reserve(words.len());
        let to = message.spare_capacity_mut();
        to[last].write(0);
        // SAFETY: the buffer has these bytes, the words have room for them, and the two do not
        // overlap. Both are plain numbers. All words are written before `set_len`: the last one
        // above, the others by the copy.
        unsafe {
            let from = self.receive.cast::<u8>().cast_const().add(start);
            ptr::copy_nonoverlapping(from, to.as_mut_ptr().cast::<u8>(), end - start);
            message.set_len(message.len() + words.len());
        }
    }

    /// Replaces the elements in the words `words` of the receive buffer by the reduction of
    /// `inputs`. Each input has the elements of one rank for these words, in the order of the
    /// ranks.
    pub(super) fn reduce_words<'a>(
        &mut self,
        words: Range<usize>,
        op: ReduceOp,
        inputs: impl Iterator<Item = &'a [u64]>,
    ) {
        match self.element {
            ElementType::F32 => self.reduce_words_of::<f32>(words, op, inputs),
            ElementType::F64 => self.reduce_words_of::<f64>(words, op, inputs),
            ElementType::I32 => self.reduce_words_of::<i32>(words, op, inputs),
            ElementType::I64 => self.reduce_words_of::<i64>(words, op, inputs),
            ElementType::U8 => self.reduce_words_of::<u8>(words, op, inputs),
            ElementType::F16 => self.reduce_words_of::<f16>(words, op, inputs),
            ElementType::Bf16 => self.reduce_words_of::<bf16>(words, op, inputs),
        }
    }

    fn reduce_words_of<'a, T: Element>(
        &mut self,
        words: Range<usize>,
        op: ReduceOp,
        inputs: impl Iterator<Item = &'a [u64]>,
    ) {
        let elements = |words: usize| words * size_of::<u64>() / size_of::<T>();
        let start = elements(words.start).min(self.receive_len);
        let len = elements(words.len()).min(self.receive_len - start);
        let as_elements = |words: &'a [u64]| {
            // SAFETY: a word is at least as large and as aligned as an element, and any bits are
            // valid.
            unsafe { slice::from_raw_parts(words.as_ptr().cast::<T>(), elements(words.len())) }
        };
        let inputs: Vec<&[T]> = inputs.map(as_elements).collect();
        if len > 0 {
            // SAFETY: the buffer is of this type and has these elements, and MPI does not use the
            // pointer.
            let output = unsafe { slice::from_raw_parts_mut(self.receive.cast::<T>().add(start), len) };
            T::reduce(op, &inputs, output);
        }
    }

    /// Returns the data type of MPI for the elements.
    pub(super) fn datatype(&self) -> ffi::MPI_Datatype {
        // SAFETY: constants of the library.
        unsafe {
            match self.element {
                ElementType::F32 => ffi::RSMPI_FLOAT,
                ElementType::F64 => ffi::RSMPI_DOUBLE,
                ElementType::I32 => ffi::RSMPI_INT32_T,
                ElementType::I64 => ffi::RSMPI_INT64_T,
                ElementType::U8 => ffi::RSMPI_UINT8_T,
                // Only moved, never reduced: MPI has no such types.
                ElementType::F16 | ElementType::Bf16 => ffi::RSMPI_UINT16_T,
            }
        }
    }
}

impl fmt::Debug for Buffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffers({} {} -> {})", self.element, self.send_len, self.receive_len)
    }
}
