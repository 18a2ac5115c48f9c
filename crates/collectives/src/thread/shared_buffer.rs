//! A buffer that several ranks access at once. The *model checker* is `loom`, which tries every
//! order of events.
#![allow(unsafe_code)]

use std::ops::Range;
use std::slice;

use super::sync::UnsafeCell;
use crate::HostBuffer;

/// A [`HostBuffer`] whose ranges different threads read and write at the same time.
///
/// Rust's borrows cannot express this. Every access is therefore unsafe, and its caller promises
/// that no other thread accesses the range in a conflicting way. Under the model checker, each
/// element has a mark that detects a violation.
#[derive(Debug)]
pub(super) struct SharedBuffer<T> {
    parts: UnsafeCell<Parts<T>>,
}

/// The buffer. It has a raw pointer to its elements: accessing one creates no reference to the
/// others.
#[derive(Debug)]
struct Parts<T> {
    buffer: HostBuffer<T>,
    #[cfg(loom)]
    marks: Vec<UnsafeCell<()>>,
}

// SAFETY: it owns the elements as the buffer does; access to them is subject to the unsafe
// functions' contracts.
unsafe impl<T: Send> Send for SharedBuffer<T> {}
// SAFETY: as above; `T: Send + Sync` because any thread reads and writes elements.
unsafe impl<T: Send + Sync> Sync for SharedBuffer<T> {}

impl<T: Copy> SharedBuffer<T> {
    /// Creates a buffer without elements.
    pub(super) fn empty() -> Self {
        Self { parts: UnsafeCell::new(Parts::from(HostBuffer::default())) }
    }

    /// Replaces the buffer by `buffer` and returns the previous one.
    ///
    /// # Safety
    /// No other thread accesses the buffer at the same time.
    pub(super) unsafe fn replace(&self, buffer: HostBuffer<T>) -> HostBuffer<T> {
        // SAFETY: no other thread accesses the buffer, as the caller promises.
        self.parts.with_mut(|parts| unsafe { std::mem::replace(&mut *parts, Parts::from(buffer)) }.buffer)
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
            unsafe { slice::from_raw_parts(parts.buffer.as_ptr().add(range.start), len) }
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
            unsafe { slice::from_raw_parts_mut(parts.buffer.as_ptr().cast_mut().add(range.start), len) }
        })
    }
}

impl<T> From<HostBuffer<T>> for Parts<T> {
    fn from(buffer: HostBuffer<T>) -> Self {
        Self {
            #[cfg(loom)]
            marks: (0..buffer.len()).map(|_| UnsafeCell::new(())).collect(),
            buffer,
        }
    }
}

impl<T> Parts<T> {
    fn check(&self, range: &Range<usize>) -> usize {
        assert!(
            range.start <= range.end && range.end <= self.buffer.len(),
            "{range:?} of {} elements",
            self.buffer.len()
        );
        range.len()
    }
}
