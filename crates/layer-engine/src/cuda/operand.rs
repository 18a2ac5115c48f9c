//! Sizes of operands.

use crate::Storage;

/// Size and number format of an operand.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operand {
    /// Number of elements.
    pub(super) elements: usize,
    /// Number format of the elements.
    pub(super) storage: Storage,
}

impl Operand {
    /// Returns an operand in single precision.
    pub(super) fn single(elements: usize) -> Self {
        Self { elements, storage: Storage::Scalar }
    }

    /// Returns the number of scalars of its buffer.
    pub(super) fn scalars(&self) -> usize {
        self.storage.scalars(self.elements)
    }

    /// Returns the distance of an element from the start, in bytes.
    pub(super) fn offset(&self, element: usize) -> usize {
        element * element_bytes(self.storage)
    }
}

/// Returns the size of an element of a number format, in bytes.
pub(super) fn element_bytes(storage: Storage) -> usize {
    match storage {
        Storage::Scalar => 4,
        Storage::Bf16 => 2,
    }
}
