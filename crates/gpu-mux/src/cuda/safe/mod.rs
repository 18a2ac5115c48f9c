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

/// A handle of the driver's: it may be used from any thread, with the right context current. Whether several threads may
/// use it at once is for [`threads`] to say, kind by kind.
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
    use crate::cuda::sys::{ContextOf, EventOf, FunctionOf, ModuleOf, StreamOf};

    // SAFETY: no object of CUDA's driver belongs to a thread: a handle only names one.
    unsafe impl<T> Send for Raw<T> {}

    // Graphs, their nodes, executable graphs and green contexts are not among the following: CUDA does not synchronise
    // graph objects, in calls that look like mere questions neither (its manual, "Graphs thread safety"), and promises
    // nothing for the others. They are used by one thread at a time, behind `!Sync` or a lock.

    // SAFETY: the driver guards contexts against use by several threads at once.
    unsafe impl Sync for Raw<ContextOf> {}
    // SAFETY: the driver guards streams, into which any thread may put work.
    unsafe impl Sync for Raw<StreamOf> {}
    // SAFETY: the driver guards events.
    unsafe impl Sync for Raw<EventOf> {}
    // SAFETY: a module that is loaded is only read, until it is unloaded by its one owner.
    unsafe impl Sync for Raw<ModuleOf> {}
    // SAFETY: a kernel is only read.
    unsafe impl Sync for Raw<FunctionOf> {}
}

/// What users may rely on; that a captured graph is not `Sync` is checked in its documentation.
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
