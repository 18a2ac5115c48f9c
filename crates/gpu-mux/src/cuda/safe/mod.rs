//! Owners of the CUDA driver's objects. Each object is destroyed once, in its context, and no
//! destructor panics.

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

/// Handle of an object of the CUDA driver. It may be used from any thread with its context current.
/// Module [`threads`] defines which kinds several threads may use at once.
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
    use crate::cuda::sys::{CUctx_st, CUevent_st, CUfunc_st, CUmod_st, CUstream_st};

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
}

/// Thread-safety guarantees for users. A doc test of `CapturedGraph` checks that it is not `Sync`.
const _: () = {
    const fn moves_between_threads<T: Send>() {}
    const fn is_shared_by_threads<T: Send + Sync>() {}
    moves_between_threads::<graph::CapturedGraph>();
    is_shared_by_threads::<context::Context>();
    is_shared_by_threads::<stream::Stream>();
    is_shared_by_threads::<event::Event>();
    is_shared_by_threads::<module::Function>();
    is_shared_by_threads::<buffer::DeviceBuffer>();
    is_shared_by_threads::<graph::Executable>();
    is_shared_by_threads::<green::GreenContext>();
};
