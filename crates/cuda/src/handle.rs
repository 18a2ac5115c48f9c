//! Handles of the CUDA driver's objects. Each object has an owner, which destroys it once, in its
//! context. No destructor panics.
#![allow(unsafe_code)]

use cudarc::driver::sys::{CUctx_st, CUevent_st, CUfunc_st, CUmod_st, CUstream_st};

/// Handle of an object of the CUDA driver. It may be used from any thread with its context current.
/// Kinds of objects that several threads may use at once are `Sync`.
pub(crate) struct Raw<T>(pub(crate) *mut T);

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

// SAFETY: no object of the CUDA driver belongs to a thread; a handle is only a reference.
unsafe impl<T> Send for Raw<T> {}

// Graphs, graph nodes, executable graphs and green contexts are not listed here. CUDA does not
// synchronize access to graph objects, even for queries (CUDA manual, "Graph object thread
// safety"), and guarantees nothing for the others. They are used by one thread at a time,
// enforced by `!Sync` or a lock.

// SAFETY: contexts are thread-safe in the driver.
unsafe impl Sync for Raw<CUctx_st> {}
// SAFETY: streams are thread-safe in the driver.
unsafe impl Sync for Raw<CUstream_st> {}
// SAFETY: events are thread-safe in the driver.
unsafe impl Sync for Raw<CUevent_st> {}
// SAFETY: a loaded module is only read until its only owner unloads it.
unsafe impl Sync for Raw<CUmod_st> {}
// SAFETY: a kernel is only read.
unsafe impl Sync for Raw<CUfunc_st> {}
