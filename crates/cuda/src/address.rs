//! Addresses of operands.

use std::sync::Arc;

use crate::memory::Memory;
use crate::{Buffer, Element, Result, Stream};

/// Address of an element of a [`Buffer`]: an operand of a library's work, which accesses elements
/// from there on. A graph that captures the work keeps the buffer.
#[derive(Debug, Clone, Copy)]
pub struct Address<'a> {
    value: u64,
    memory: Option<&'a Arc<Memory>>,
}

impl<'a> Address<'a> {
    /// Returns the address of the element at `index`, which may be the end.
    ///
    /// # Panics
    /// If the index is larger than the length.
    #[must_use]
    pub fn element<T: Element>(buffer: &'a Buffer<T>, index: usize) -> Self {
        Self { value: buffer.address_of(index), memory: buffer.memory() }
    }

    /// Returns the address `offset` bytes after the start of a buffer, which may be the end.
    ///
    /// # Panics
    /// If the offset is larger than the size.
    #[must_use]
    pub fn byte<T: Element>(buffer: &'a Buffer<T>, offset: usize) -> Self {
        Self { value: buffer.address_of_byte(offset), memory: buffer.memory() }
    }

    /// Returns the number, 0 for a buffer without memory.
    #[must_use]
    pub fn value(self) -> u64 {
        self.value
    }

    /// Prepares the use of the memory by work that is enqueued into `stream` next.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the memory is of another device.
    pub(crate) fn use_in(self, stream: &Stream) -> Result<()> {
        self.memory.map_or(Ok(()), |memory| memory.use_in(stream))
    }
}

impl<'a, T: Element> From<&'a Buffer<T>> for Address<'a> {
    /// Returns the address of the first element.
    fn from(buffer: &'a Buffer<T>) -> Self {
        Self::element(buffer, 0)
    }
}
