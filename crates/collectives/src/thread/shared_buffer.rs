//! A buffer that several ranks access at once. The *model checker* is `loom`, which tries every
//! order of events.
#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::ops::Range;
use std::slice;

use super::sync::UnsafeCell;

/// A `Vec` whose ranges different threads read and write at the same time.
///
/// Rust's borrows cannot express this. Every access is therefore unsafe, and its caller promises
/// that no other thread accesses the range in a conflicting way. Under the model checker, each
/// element has a mark that detects a violation.
#[derive(Debug)]
pub(super) struct SharedBuffer<T> {
    parts: UnsafeCell<Parts<T>>,
}

/// Raw parts of a `Vec`: accessing an element creates no reference to the whole.
#[derive(Debug)]
struct Parts<T> {
    start: *mut T,
    len: usize,
    capacity: usize,
    #[cfg(loom)]
    marks: Vec<UnsafeCell<()>>,
}

// SAFETY: it owns its elements as a `Vec` does; access to them is subject to the unsafe functions'
// contracts.
unsafe impl<T: Send> Send for SharedBuffer<T> {}
// SAFETY: as above; `T: Send + Sync` because any thread reads and writes elements.
unsafe impl<T: Send + Sync> Sync for SharedBuffer<T> {}

impl<T: Copy> SharedBuffer<T> {
    /// Creates a buffer without elements.
    pub(super) fn empty() -> Self {
        Self { parts: UnsafeCell::new(Parts::from(Vec::new())) }
    }

    /// Replaces all elements by `elements` and returns the previous ones.
    ///
    /// # Safety
    /// No other thread accesses the buffer at the same time.
    pub(super) unsafe fn replace(&self, elements: Vec<T>) -> Vec<T> {
        // SAFETY: no other thread accesses the buffer, as the caller promises.
        self.parts.with_mut(|parts| unsafe { (*parts).replace(elements) })
    }

    /// Returns the elements of `range` for reading.
    ///
    /// # Safety
    /// While the slice is used, no thread writes to elements of `range` or replaces the buffer.
    ///
    /// # Panics
    /// If the buffer is shorter.
    pub(super) unsafe fn read(&self, range: Range<usize>) -> &[T] {
        self.parts.with(|parts| {
            // SAFETY: no thread replaces the parts meanwhile, as the caller promises.
            let parts = unsafe { &*parts };
            let len = parts.check(&range);
            #[cfg(loom)]
            parts.marks[range.clone()].iter().for_each(|mark| mark.with(|_| ()));
            // SAFETY: `check` found the range inside the allocation, and no thread writes to it.
            unsafe { slice::from_raw_parts(parts.start.add(range.start), len) }
        })
    }

    /// Returns the elements of `range` for writing.
    ///
    /// # Safety
    /// While the slice is used, no other reference to an element of `range` is used in any thread,
    /// and no thread replaces the buffer.
    ///
    /// # Panics
    /// If the buffer is shorter.
    #[expect(clippy::mut_from_ref, reason = "the caller promises exclusive access to the range")]
    pub(super) unsafe fn write(&self, range: Range<usize>) -> &mut [T] {
        self.parts.with(|parts| {
            // SAFETY: no thread replaces the parts meanwhile, as the caller promises.
            let parts = unsafe { &*parts };
            let len = parts.check(&range);
            #[cfg(loom)]
            parts.marks[range.clone()].iter().for_each(|mark| mark.with_mut(|_| ()));
            // SAFETY: `check` found the range inside the allocation, and nothing else accesses it.
            unsafe { slice::from_raw_parts_mut(parts.start.add(range.start), len) }
        })
    }
}

impl<T> From<Vec<T>> for Parts<T> {
    fn from(elements: Vec<T>) -> Self {
        let mut elements = ManuallyDrop::new(elements);
        Self {
            start: elements.as_mut_ptr(),
            len: elements.len(),
            capacity: elements.capacity(),
            #[cfg(loom)]
            marks: elements.iter().map(|_| UnsafeCell::new(())).collect(),
        }
    }
}

impl<T> Parts<T> {
    fn replace(&mut self, elements: Vec<T>) -> Vec<T> {
        let old = ManuallyDrop::new(std::mem::replace(self, Self::from(elements)));
        // SAFETY: the parts of a leaked `Vec`, reassembled once: they have just been replaced, and
        // `ManuallyDrop` prevents a second reassembly in `drop`.
        unsafe { Vec::from_raw_parts(old.start, old.len, old.capacity) }
    }

    fn check(&self, range: &Range<usize>) -> usize {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {} elements", self.len);
        range.len()
    }
}

impl<T> Drop for Parts<T> {
    fn drop(&mut self) {
        // SAFETY: the parts of a leaked `Vec`, whose only owner is dropped.
        drop(unsafe { Vec::from_raw_parts(self.start, self.len, self.capacity) });
    }
}
