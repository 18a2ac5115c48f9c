//! A buffer that several ranks work on at once.
#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::ops::Range;
use std::slice;

use super::sync::UnsafeCell;

/// A `Vec` whose ranges different threads read and write at the same time.
///
/// Rust's borrows cannot express this, so every access is an `unsafe` promise that no other thread touches the range in
/// a conflicting way. Under the model checker each element carries a mark by which a broken promise is found.
#[derive(Debug)]
pub(super) struct SharedBuffer<T> {
    parts: UnsafeCell<Parts<T>>,
}

/// A `Vec` taken apart, so that reaching an element makes no reference to the whole.
#[derive(Debug)]
struct Parts<T> {
    start: *mut T,
    len: usize,
    capacity: usize,
    #[cfg(loom)]
    marks: Vec<UnsafeCell<()>>,
}

// SAFETY: it owns its elements as a `Vec` does, and hands them out only under the promises of its unsafe functions.
unsafe impl<T: Send> Send for SharedBuffer<T> {}
// SAFETY: as above; `T: Send + Sync` because elements are read and written from whichever thread comes.
unsafe impl<T: Send + Sync> Sync for SharedBuffer<T> {}

impl<T: Copy> SharedBuffer<T> {
    pub(super) fn empty() -> Self {
        Self { parts: UnsafeCell::new(Parts::from(Vec::new())) }
    }

    /// Replaces the elements and gives the old ones.
    ///
    /// # Safety
    /// No other thread uses the buffer in any way at the same time.
    pub(super) unsafe fn replace(&self, elements: Vec<T>) -> Vec<T> {
        // SAFETY: nothing else uses the buffer, as the caller promises.
        self.parts.with_mut(|parts| unsafe { (*parts).replace(elements) })
    }

    /// The elements of `range`.
    ///
    /// # Safety
    /// Until the slice is last used, no thread writes to elements of `range` or replaces the buffer.
    ///
    /// # Panics
    /// If the buffer is shorter.
    pub(super) unsafe fn read(&self, range: Range<usize>) -> &[T] {
        self.parts.with(|parts| {
            // SAFETY: nothing replaces the parts meanwhile, as the caller promises.
            let parts = unsafe { &*parts };
            let len = parts.check(&range);
            #[cfg(loom)]
            parts.marks[range.clone()].iter().for_each(|mark| mark.with(|_| ()));
            // SAFETY: `check` found `len` elements from there on inside of the allocation, and nothing writes to them.
            unsafe { slice::from_raw_parts(parts.start.add(range.start), len) }
        })
    }

    /// The elements of `range`, to be written.
    ///
    /// # Safety
    /// Until the slice is last used, no other reference to an element of `range` is used in any thread, and nobody
    /// replaces the buffer.
    ///
    /// # Panics
    /// If the buffer is shorter.
    #[expect(clippy::mut_from_ref, reason = "that is what this type is for; the caller answers for it")]
    pub(super) unsafe fn write(&self, range: Range<usize>) -> &mut [T] {
        self.parts.with(|parts| {
            // SAFETY: nothing replaces the parts meanwhile, as the caller promises.
            let parts = unsafe { &*parts };
            let len = parts.check(&range);
            #[cfg(loom)]
            parts.marks[range.clone()].iter().for_each(|mark| mark.with_mut(|_| ()));
            // SAFETY: `check` found `len` elements from there on inside of the allocation, and nothing else uses them.
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
        // SAFETY: the parts of a `Vec` that was taken apart, put together once: they have just been replaced, and
        // `ManuallyDrop` keeps `drop` from doing it again.
        unsafe { Vec::from_raw_parts(old.start, old.len, old.capacity) }
    }

    fn check(&self, range: &Range<usize>) -> usize {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {} elements", self.len);
        range.len()
    }
}

impl<T> Drop for Parts<T> {
    fn drop(&mut self) {
        // SAFETY: the parts of a `Vec` that was taken apart; what drops them is their only owner.
        drop(unsafe { Vec::from_raw_parts(self.start, self.len, self.capacity) });
    }
}
