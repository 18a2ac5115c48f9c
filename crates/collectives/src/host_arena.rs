//! One allocation of host memory for many buffers.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::{Element, Error, HostBuffer, Result};

/// Alignment of an arena in bytes: a cache line, and the widest vector register.
const ALIGNMENT: usize = 64;

/// One allocation of zeros in host memory, of which [`HostBuffer`]s are views.
///
/// The memory is aligned to 64 bytes and freed after the last handle and view. The operating system
/// provides the pages of a large arena on their first use.
///
/// ```
/// use collectives::HostArena;
///
/// let arena = HostArena::<f32>::new(6)?;
/// // SAFETY: the views do not overlap.
/// let (mut head, tail) = unsafe { (arena.view(0, 4)?, arena.view(4, 2)?) };
/// head[3] = 1.0;
/// assert_eq!(head, [0.0, 0.0, 0.0, 1.0]);
/// assert_eq!(tail, [0.0, 0.0]);
/// # Ok::<(), collectives::Error>(())
/// ```
#[derive(Debug)]
pub struct HostArena<T> {
    /// First element.
    start: NonNull<T>,
    /// Number of elements.
    len: usize,
    /// Start of the allocation. `None` for an arena without elements.
    allocation: Option<NonNull<u8>>,
    layout: Layout,
    element: PhantomData<T>,
}

// SAFETY: elements are accessed through views only, under the contract of `view`.
unsafe impl<T: Send> Send for HostArena<T> {}
// SAFETY: as above; the arena itself does not access its elements.
unsafe impl<T: Send> Sync for HostArena<T> {}

impl<T: Element> HostArena<T> {
    /// Allocates an arena of `len` zeros.
    ///
    /// # Errors
    /// [`Error::HostMemory`] if there is not enough memory.
    pub fn new(len: usize) -> Result<Arc<Self>> {
        let failed = || Error::HostMemory { elements: len, element: T::TYPE };
        // The system's allocator zeroes memory of a larger alignment than its own when it is
        // allocated, instead of when it is first used. The start is therefore aligned here.
        let bytes = len.checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_add(ALIGNMENT));
        let layout = bytes.and_then(|bytes| Layout::from_size_align(bytes, align_of::<T>()).ok());
        let layout = layout.ok_or_else(failed)?;
        let empty = Self { start: NonNull::dangling(), len, allocation: None, layout, element: PhantomData };
        if len == 0 {
            return Ok(Arc::new(empty));
        }
        // SAFETY: the size is not zero.
        let allocation = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(failed)?;
        let skipped = allocation.align_offset(ALIGNMENT);
        // SAFETY: the allocation has `ALIGNMENT` bytes in addition to the elements.
        let start = unsafe { allocation.add(skipped.min(ALIGNMENT)) }.cast();
        Ok(Arc::new(Self { start, allocation: Some(allocation), ..empty }))
    }

    /// Creates a view of `len` elements from index `offset` on. It keeps the arena alive.
    ///
    /// # Errors
    /// [`Error::OutsideArena`] if the arena ends before.
    ///
    /// # Safety
    /// Accesses to overlapping views are ordered in time, as described at
    /// [`HostBuffer::from_raw`].
    pub unsafe fn view(self: &Arc<Self>, offset: usize, len: usize) -> Result<HostBuffer<T>> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Error::OutsideArena { offset, len, arena_len: self.len });
        }
        // SAFETY: the range is inside the arena, which the view keeps alive. It is initialized with
        // zeros, which are valid elements. The caller orders the accesses.
        Ok(unsafe { HostBuffer::from_shared(self.start.add(offset), len, Arc::clone(self) as _) })
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the arena has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<T> Drop for HostArena<T> {
    fn drop(&mut self) {
        if let Some(allocation) = self.allocation {
            // SAFETY: allocated with this layout, and no view is left.
            unsafe { dealloc(allocation.as_ptr(), self.layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ElementType;

    #[test]
    fn an_arena_is_aligned_and_zero() {
        for len in [1, 3, 1000, 100_000] {
            let bytes = HostArena::<u8>::new(len).unwrap();
            // SAFETY: the only view.
            let view = unsafe { bytes.view(0, len) }.unwrap();
            assert_eq!(view.as_ptr() as usize % ALIGNMENT, 0);
            assert!(view.iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn overlapping_views_have_the_same_memory() {
        let arena = HostArena::<i32>::new(4).unwrap();
        // SAFETY: the views are accessed one after another by this thread.
        let (mut first, mut second) = unsafe { (arena.view(0, 3).unwrap(), arena.view(2, 2).unwrap()) };
        drop(arena);
        first[2] = 5;
        assert_eq!(second, [5, 0]);
        second[0] = 6;
        assert_eq!(first, [0, 0, 6]);
    }

    #[test]
    fn views_end_within_the_arena() {
        let arena = HostArena::<f64>::new(4).unwrap();
        for (offset, len) in [(0, 5), (5, 0), (3, 2), (usize::MAX, 1), (1, usize::MAX)] {
            // SAFETY: views outside of the arena are refused.
            let view = unsafe { arena.view(offset, len) };
            assert_eq!(view, Err(Error::OutsideArena { offset, len, arena_len: 4 }));
        }
        // SAFETY: a view without elements.
        assert_eq!(unsafe { arena.view(4, 0) }, Ok(HostBuffer::default()));
        let empty = HostArena::<f64>::new(0).unwrap();
        // SAFETY: as above.
        assert_eq!(unsafe { empty.view(0, 0) }, Ok(HostBuffer::default()));
    }

    #[test]
    fn a_failed_allocation_is_an_error() {
        for elements in [usize::MAX, isize::MAX as usize / 8 - 100] {
            let error = HostArena::<f64>::new(elements).unwrap_err();
            assert_eq!(error, Error::HostMemory { elements, element: ElementType::F64 });
        }
    }
}
