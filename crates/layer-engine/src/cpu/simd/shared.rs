#![allow(unsafe_code)]

use std::marker::PhantomData;

/// A slice that several threads write to, each to elements of its own.
#[derive(Debug)]
pub(in super::super) struct Shared<'a, T> {
    pointer: *mut T,
    length: usize,
    borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: elements are only reached through pointers, and whoever dereferences one guarantees exclusive access to the element.
unsafe impl<T: Send> Sync for Shared<'_, T> {}
// SAFETY: as a mutable slice may be sent.
unsafe impl<T: Send> Send for Shared<'_, T> {}

impl<'a, T: Copy> Shared<'a, T> {
    pub(in super::super) fn new(slice: &'a mut [T]) -> Self {
        Self { pointer: slice.as_mut_ptr(), length: slice.len(), borrow: PhantomData }
    }

    pub(in super::super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn pointer(&self) -> *mut T {
        self.pointer
    }

    /// A part of the slice.
    ///
    /// # Safety
    /// Nobody else reads or writes these elements while the part is borrowed.
    ///
    /// # Panics
    /// When it is not a part: a bug of the caller.
    #[allow(clippy::mut_from_ref, reason = "the caller's promise")]
    pub(in super::super) unsafe fn part(&self, first: usize, length: usize) -> &mut [T] {
        assert!(first <= self.length && length <= self.length - first, "a part lies within its slice");
        // SAFETY: the elements are there, initialised, borrowed for the slice's lifetime, and the caller's alone.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.add(first), length) }
    }

    /// Writes an element.
    ///
    /// # Safety
    /// Nobody else reads or writes it meanwhile.
    ///
    /// # Panics
    /// When there is no such element: a bug of the caller.
    pub(in super::super) unsafe fn write(&self, index: usize, value: T) {
        assert!(index < self.length, "an element lies within its slice");
        // SAFETY: the element is there, borrowed for the slice's lifetime, and the caller's alone.
        unsafe { *self.pointer.add(index) = value };
    }
}
