//! Memory of the host that collectives operate on. A *view* is a buffer that does not own its
//! elements.
#![allow(unsafe_code)]

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

/// Elements in the memory of the host: an owned array, or a view of memory that belongs to another
/// object.
///
/// A collective takes its buffers and returns them. It reads and writes the elements in place: the
/// buffer that it returns has the address of the buffer that it was given.
///
/// ```
/// use collectives::HostBuffer;
///
/// let mut buffer = HostBuffer::from(vec![1.0, 2.0]);
/// buffer[0] = 3.0;
/// assert_eq!(buffer.into_vec(), [3.0, 2.0]);
/// ```
///
/// [`HostArena::view`](crate::HostArena::view) creates views of one allocation.
pub struct HostBuffer<T> {
    /// First element. A raw pointer, so that an access to elements in one thread creates no
    /// reference to elements that another thread accesses.
    start: NonNull<T>,
    len: usize,
    owner: Owner,
    element: PhantomData<T>,
}

/// Owner of the elements of a buffer.
enum Owner {
    /// The buffer itself, which has the parts of a `Vec` of this capacity.
    Buffer { capacity: usize },
    /// Another object, which is dropped after the last view.
    Other { _owner: Arc<dyn Any + Send + Sync> },
}

// SAFETY: the elements are accessed through the buffer only, as those of a `Vec` or a `&mut [T]`.
// The owner is `Send`.
unsafe impl<T: Send> Send for HostBuffer<T> {}
// SAFETY: a shared buffer gives shared references to elements only. The owner is `Sync`.
unsafe impl<T: Sync> Sync for HostBuffer<T> {}

impl<T> HostBuffer<T> {
    /// Creates a view of the `len` elements at `pointer`, which belong to `owner`. The owner is
    /// dropped when the view no longer needs the memory.
    ///
    /// # Safety
    /// The range is valid for reads and writes, aligned, and initialized while `owner` lives. Other
    /// accesses to the range, also by other views that overlap with it, are ordered in time with
    /// the accesses of this view: no two accesses of which one is a write happen at the same time,
    /// and no reference to elements is used after a conflicting access. An operation that owns the
    /// view accesses it from the start of the operation until the view is returned. If the
    /// operation is dropped or fails, other ranks may access it until all of them have completed or
    /// dropped the operation.
    #[must_use]
    pub unsafe fn from_raw(pointer: NonNull<T>, len: usize, owner: impl Any + Send + Sync) -> Self {
        // SAFETY: as the caller promises.
        unsafe { Self::from_shared(pointer, len, Arc::new(owner)) }
    }

    /// Like [`from_raw`](Self::from_raw), for an owner of several views.
    ///
    /// # Safety
    /// As for [`from_raw`](Self::from_raw).
    pub(crate) unsafe fn from_shared(
        pointer: NonNull<T>,
        len: usize,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self { start: pointer, len, owner: Owner::Other { _owner: owner }, element: PhantomData }
    }

    /// Returns the elements as a `Vec`: without a copy if the buffer owns them, otherwise as a
    /// copy.
    #[must_use]
    pub fn into_vec(self) -> Vec<T>
    where
        T: Clone,
    {
        match self.owner {
            Owner::Other { .. } => self.to_vec(),
            Owner::Buffer { capacity } => {
                let buffer = ManuallyDrop::new(self);
                // SAFETY: the parts of a leaked `Vec`, reassembled once: `ManuallyDrop` prevents a
                // second reassembly in `drop`.
                unsafe { Vec::from_raw_parts(buffer.start.as_ptr(), buffer.len, capacity) }
            }
        }
    }

    /// Whether the elements belong to another object.
    #[must_use]
    pub fn is_view(&self) -> bool {
        matches!(self.owner, Owner::Other { .. })
    }

    /// Returns the address of the first element. Creates no reference to the elements.
    #[must_use]
    pub fn as_ptr(&self) -> *const T {
        self.start.as_ptr()
    }

    /// Returns the address of the first element. Creates no reference to the elements.
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.start.as_ptr()
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the buffer has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<T> From<Vec<T>> for HostBuffer<T> {
    /// Takes ownership of the elements without a copy.
    fn from(elements: Vec<T>) -> Self {
        let mut elements = ManuallyDrop::new(elements);
        let (len, capacity) = (elements.len(), elements.capacity());
        // The address of a `Vec` is never null.
        let start = NonNull::new(elements.as_mut_ptr()).unwrap_or(NonNull::dangling());
        Self { start, len, owner: Owner::Buffer { capacity }, element: PhantomData }
    }
}

impl<T: Clone> From<HostBuffer<T>> for Vec<T> {
    fn from(buffer: HostBuffer<T>) -> Self {
        buffer.into_vec()
    }
}

impl<T> FromIterator<T> for HostBuffer<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        Vec::from_iter(elements).into()
    }
}

impl<T> Default for HostBuffer<T> {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl<T: Clone> Clone for HostBuffer<T> {
    /// Copies the elements to an owned buffer.
    fn clone(&self) -> Self {
        self.to_vec().into()
    }
}

impl<T> Deref for HostBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the parts of a `Vec`, or a range for which `from_raw` was promised that there is
        // no conflicting access.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for HostBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<'a, T> IntoIterator for &'a HostBuffer<T> {
    type Item = &'a T;
    type IntoIter = slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, T> IntoIterator for &'a mut HostBuffer<T> {
    type Item = &'a mut T;
    type IntoIter = slice::IterMut<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl<T: PartialEq> PartialEq for HostBuffer<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq> Eq for HostBuffer<T> {}

impl<T: PartialEq> PartialEq<Vec<T>> for HostBuffer<T> {
    fn eq(&self, other: &Vec<T>) -> bool {
        **self == **other
    }
}

impl<T: PartialEq, const N: usize> PartialEq<[T; N]> for HostBuffer<T> {
    fn eq(&self, other: &[T; N]) -> bool {
        **self == *other
    }
}

impl<T: fmt::Debug> fmt::Debug for HostBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Drop for HostBuffer<T> {
    fn drop(&mut self) {
        if let Owner::Buffer { capacity } = self.owner {
            // SAFETY: the parts of a leaked `Vec`, whose only owner is dropped.
            drop(unsafe { Vec::from_raw_parts(self.start.as_ptr(), self.len, capacity) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owned_elements_are_not_copied() {
        let mut elements = Vec::with_capacity(8);
        elements.extend([1, 2, 3]);
        let address = elements.as_ptr();
        let buffer = HostBuffer::from(elements);
        assert!(!buffer.is_view());
        assert_eq!((buffer.as_ptr(), buffer.len()), (address, 3));
        let elements = buffer.into_vec();
        assert_eq!((elements.as_ptr(), elements.capacity(), elements), (address, 8, vec![1, 2, 3]));
    }

    #[test]
    fn owned_elements_are_dropped_once() {
        let element = Arc::new(());
        let buffer: HostBuffer<_> = (0..3).map(|_| Arc::clone(&element)).collect();
        let copy = buffer.clone();
        assert_eq!(Arc::strong_count(&element), 7);
        drop(buffer);
        drop(copy.into_vec());
        assert_eq!(Arc::strong_count(&element), 1);
    }

    #[test]
    fn a_view_keeps_its_owner_and_copies_on_conversion() {
        let owner = Arc::new(());
        let mut elements = vec![1, 2, 3, 4];
        let start = NonNull::new(elements.as_mut_ptr()).unwrap();
        // SAFETY: the elements outlive the view and are accessed after it.
        let mut view = unsafe { HostBuffer::from_raw(start.add(1), 2, Arc::clone(&owner)) };
        assert!(view.is_view());
        view[1] = 7;
        let copy = view.clone();
        assert_eq!((&copy, copy.is_view()), (&view, false));
        assert_eq!(Arc::strong_count(&owner), 2);
        let address = view.as_ptr();
        let converted = view.into_vec();
        assert_ne!(converted.as_ptr(), address);
        assert_eq!((converted, Arc::strong_count(&owner)), (vec![2, 7], 1));
        assert_eq!(elements, [1, 2, 7, 4]);
    }
}
