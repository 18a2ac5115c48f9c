//! The memory of an operation, whatever its elements.
#![allow(unsafe_code)]

use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::slice;
use std::sync::Arc;

use mpi::ffi;

use super::along::PIECE_WORDS;
use crate::{Element, ElementType, Exchanged, ReduceOp, bf16, f16};

/// The vectors of an operation, whatever their elements.
pub(super) struct Buffers {
    /// An `Exchanged<Vec<T>>`. Not accessed while MPI has the pointers below.
    owner: Box<dyn Any + Send>,
    pub(super) send: *const c_void,
    pub(super) receive: *mut c_void,
    element: ElementType,
    pub(super) send_len: usize,
    pub(super) receive_len: usize,
}

// SAFETY: the pointers lead into the owner, which may be sent.
unsafe impl Send for Buffers {}

impl Buffers {
    pub(super) fn new<T: Element>(vectors: Exchanged<Vec<T>>) -> Self {
        let mut owner = Box::new(vectors);
        // An empty vector of bytes has the address 1, which MPI takes for `MPI_IN_PLACE`.
        let send = if owner.send.is_empty() { ptr::null() } else { owner.send.as_ptr().cast() };
        let receive =
            if owner.receive.is_empty() { ptr::null_mut() } else { owner.receive.as_mut_ptr().cast() };
        Self {
            send,
            receive,
            element: T::TYPE,
            send_len: owner.send.len(),
            receive_len: owner.receive.len(),
            owner,
        }
    }

    /// The vectors, if they are of this type.
    pub(super) fn take<T: Element>(self) -> Option<Exchanged<Vec<T>>> {
        self.owner.downcast().ok().map(|vectors| *vectors)
    }

    /// The receive buffer in pieces of [`PIECE_WORDS`], of which the last may be shorter, filled up with zeros to whole words.
    pub(super) fn pieces(&self) -> Vec<Arc<[u64]>> {
        const PIECE_BYTES: usize = PIECE_WORDS * size_of::<u64>();
        let bytes = self.receive_len * self.element.size_bytes();
        let piece = |start: usize| {
            let len = PIECE_BYTES.min(bytes - start);
            let mut words = [0_u64; PIECE_WORDS];
            // SAFETY: the vector has these bytes, and the words have as many; the two are apart. Plain numbers, both.
            unsafe {
                let from = self.receive.cast::<u8>().cast_const().add(start);
                ptr::copy_nonoverlapping(from, words.as_mut_ptr().cast::<u8>(), len);
            }
            Arc::from(&words[..len.div_ceil(size_of::<u64>())])
        };
        (0..bytes).step_by(PIECE_BYTES).map(piece).collect()
    }

    /// Replaces the elements of the receive buffer that are in the piece of this number by the reduction of the pieces that all
    /// ranks have for it, in the order of the ranks.
    pub(super) fn reduce_piece(&mut self, number: usize, op: ReduceOp, inputs: &[&[u64]]) {
        match self.element {
            ElementType::F32 => self.reduce_piece_of::<f32>(number, op, inputs),
            ElementType::F64 => self.reduce_piece_of::<f64>(number, op, inputs),
            ElementType::I32 => self.reduce_piece_of::<i32>(number, op, inputs),
            ElementType::I64 => self.reduce_piece_of::<i64>(number, op, inputs),
            ElementType::U8 => self.reduce_piece_of::<u8>(number, op, inputs),
            ElementType::F16 => self.reduce_piece_of::<f16>(number, op, inputs),
            ElementType::Bf16 => self.reduce_piece_of::<bf16>(number, op, inputs),
        }
    }

    fn reduce_piece_of<T: Element>(&mut self, number: usize, op: ReduceOp, inputs: &[&[u64]]) {
        let elements = |words: usize| words * size_of::<u64>() / size_of::<T>();
        let start = elements(number * PIECE_WORDS).min(self.receive_len);
        let len = elements(PIECE_WORDS).min(self.receive_len - start);
        let as_elements = |words: &&[u64]| {
            // SAFETY: an element is no larger than a word, its alignment neither, and any bits are one.
            unsafe { slice::from_raw_parts(words.as_ptr().cast::<T>(), elements(words.len())) }
        };
        let inputs: Vec<&[T]> = inputs.iter().map(as_elements).collect();
        if len > 0 {
            // SAFETY: the vector is of this type and has these elements, and MPI does not have the pointer now.
            let output = unsafe { slice::from_raw_parts_mut(self.receive.cast::<T>().add(start), len) };
            T::reduce(op, &inputs, output);
        }
    }

    pub(super) fn datatype(&self) -> ffi::MPI_Datatype {
        // SAFETY: constants of the library.
        unsafe {
            match self.element {
                ElementType::F32 => ffi::RSMPI_FLOAT,
                ElementType::F64 => ffi::RSMPI_DOUBLE,
                ElementType::I32 => ffi::RSMPI_INT32_T,
                ElementType::I64 => ffi::RSMPI_INT64_T,
                ElementType::U8 => ffi::RSMPI_UINT8_T,
                // Only moved, never reduced: MPI has no such numbers.
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
