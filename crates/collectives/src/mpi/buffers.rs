//! The memory of an operation, whatever its elements.
#![allow(unsafe_code)]

use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::ptr;

use mpi::ffi;

use crate::{Element, ElementType, Exchanged};

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
