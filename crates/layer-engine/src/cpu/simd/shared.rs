//! Memory that several threads write at once.
#![allow(unsafe_code)]

use std::marker::PhantomData;

/// A slice that several threads write concurrently, each to its own elements.
#[derive(Debug)]
pub(in super::super) struct Shared<'a, T> {
    pointer: *mut T,
    length: usize,
    borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: elements are accessed only through pointers, and the code that dereferences a pointer
// guarantees exclusive access to the element.
unsafe impl<T: Send> Sync for Shared<'_, T> {}
// SAFETY: as for a mutable slice.
unsafe impl<T: Send> Send for Shared<'_, T> {}

impl<'a, T: Copy> Shared<'a, T> {
    /// Borrows a slice for concurrent writes.
    pub(in super::super) fn new(slice: &'a mut [T]) -> Self {
        Self { pointer: slice.as_mut_ptr(), length: slice.len(), borrow: PhantomData }
    }

    /// Returns the number of elements.
    pub(in super::super) fn len(&self) -> usize {
        self.length
    }

    /// Returns the address of the first element.
    pub(super) fn pointer(&self) -> *mut T {
        self.pointer
    }

    /// Returns the `length` elements from index `first` on.
    ///
    /// # Safety
    /// No other thread reads or writes these elements while the part is borrowed.
    ///
    /// # Panics
    /// If the range lies outside the slice. This is a bug of the caller.
    #[allow(clippy::mut_from_ref, reason = "the caller's promise")]
    pub(in super::super) unsafe fn part(&self, first: usize, length: usize) -> &mut [T] {
        assert!(first <= self.length && length <= self.length - first, "the part exceeds its slice");
        // SAFETY: the elements are valid, initialised and borrowed for the slice's lifetime, and
        // the caller guarantees exclusive access.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.add(first), length) }
    }

    /// Writes the element at `index`.
    ///
    /// # Safety
    /// No other thread reads or writes the element during the call.
    ///
    /// # Panics
    /// If the index is out of range. This is a bug of the caller.
    pub(in super::super) unsafe fn write(&self, index: usize, value: T) {
        assert!(index < self.length, "the index exceeds the slice");
        // SAFETY: the element is valid and borrowed for the slice's lifetime, and the caller
        // guarantees exclusive access.
        unsafe { *self.pointer.add(index) = value };
    }
}
