//! What owns the driver's objects: each is destroyed once, in the context that it belongs to, and no drop panics.

pub(super) mod buffer;
pub(super) mod capabilities;
pub(super) mod capture;
pub(super) mod context;
pub(super) mod event;
pub(super) mod gate;
pub(super) mod graph;
pub(super) mod green;
pub(super) mod module;
pub(super) mod stream;

/// A handle of the driver's: it may be used from any thread, with the right context current.
pub(super) struct Raw<T>(pub(super) *mut T);

impl<T> Clone for Raw<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Raw<T> {}

impl<T> std::fmt::Debug for Raw<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

mod threads {
    #![allow(unsafe_code)]

    use super::Raw;

    // SAFETY: CUDA's driver guards its objects against use by several threads, and a handle only names one.
    unsafe impl<T> Send for Raw<T> {}
    // SAFETY: as above.
    unsafe impl<T> Sync for Raw<T> {}
}
