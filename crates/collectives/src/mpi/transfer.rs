//! Requests of MPI: the calls that move data, and the memory that they use until they are complete.
#![allow(clippy::cast_possible_wrap, reason = "ranks, tags and checked lengths fit into a C `int`")]
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use mpi::ffi;

use super::buffers::Buffers;
use super::library::{Comm, Failure, check};
use super::work::{Route, Work};
use crate::ReduceOp;

/// `MPI_IN_PLACE` as Open MPI's `mpi.h` defines it; the bindings lack it, because it is a cast.
const IN_PLACE: *const c_void = ptr::without_provenance(1);

/// What a request of MPI reads and writes until it is complete.
#[derive(Debug)]
enum Memory {
    /// Empty until it is complete, with room for the longest message.
    Incoming(Vec<u64>),
    Outgoing(Arc<Vec<u64>>),
    Elements(Work),
}

/// A request of MPI with the memory that it uses. Dropped before it is complete, it leaks that memory, which MPI may still
/// access.
#[derive(Debug)]
pub(super) struct Transfer {
    request: ffi::MPI_Request,
    complete: bool,
    memory: Option<Memory>,
}

// SAFETY: MPI lets any thread complete a request, one at a time, and the memory may be sent.
unsafe impl Send for Transfer {}

impl Transfer {
    fn start(
        mut memory: Memory,
        call: impl FnOnce(&mut Memory, *mut ffi::MPI_Request) -> c_int,
    ) -> Result<Self, Failure> {
        // SAFETY: a constant of the library.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        let code = call(&mut memory, &raw mut request);
        // Built before the result is checked: MPI may keep the pointers of a call that failed half-way.
        let transfer = Self { request, complete: false, memory: Some(memory) };
        check(code).map(|()| transfer)
    }

    /// Sends a message of 64-bit words to a rank.
    pub(super) fn send_words(
        comm: Comm,
        to: usize,
        tag: c_int,
        words: Arc<Vec<u64>>,
    ) -> Result<Self, Failure> {
        Self::start(Memory::Outgoing(words), |memory, request| {
            let Memory::Outgoing(words) = memory else { return ffi::MPI_ERR_BUFFER as c_int };
            // SAFETY: the words stay where they are, unchanged, until the transfer is complete.
            unsafe {
                let (start, len) = (words.as_ptr().cast(), words.len() as c_int);
                ffi::MPI_Isend(start, len, ffi::RSMPI_UINT64_T, to as c_int, tag, comm.0, request)
            }
        })
    }

    /// Receives a message of at most `capacity` words from a rank.
    pub(super) fn receive_words(
        comm: Comm,
        from: usize,
        tag: c_int,
        capacity: usize,
    ) -> Result<Self, Failure> {
        Self::receive_into(comm, from, tag, Vec::with_capacity(capacity))
    }

    /// Receives a message from a rank into an empty vector, which has room for the longest one.
    pub(super) fn receive_into(comm: Comm, from: usize, tag: c_int, room: Vec<u64>) -> Result<Self, Failure> {
        let capacity = room.capacity();
        Self::start(Memory::Incoming(room), |memory, request| {
            let Memory::Incoming(words) = memory else { return ffi::MPI_ERR_BUFFER as c_int };
            // SAFETY: the vector's memory stays where it is, and nothing else accesses it, until the transfer is complete.
            unsafe {
                let (start, len) = (words.as_mut_ptr().cast(), capacity as c_int);
                ffi::MPI_Irecv(start, len, ffi::RSMPI_UINT64_T, from as c_int, tag, comm.0, request)
            }
        })
    }

    /// Starts what the members of the communicator have agreed on.
    pub(super) fn start_work(comm: Comm, work: Work) -> Result<Self, Failure> {
        Self::start(Memory::Elements(work), |memory, request| {
            let Memory::Elements(work) = memory else { return ffi::MPI_ERR_BUFFER as c_int };
            let (route, buffers) = work.parts();
            let (kind, send, receive) = (buffers.datatype(), buffers.send, buffers.receive);
            let comm = comm.0;
            // SAFETY: `Work` is only made of buffers as long as its route says, for a communicator of this size. They and
            // the lists of counts stay where they are, and nothing else accesses them, until the transfer is complete.
            unsafe {
                match route {
                    Route::Barrier => ffi::MPI_Ibarrier(comm, request),
                    Route::AllReduce { count, op } => {
                        ffi::MPI_Iallreduce(IN_PLACE, receive, *count, kind, reduction(*op), comm, request)
                    }
                    Route::Broadcast { count, root } => {
                        ffi::MPI_Ibcast(receive, *count, kind, *root, comm, request)
                    }
                    Route::AllGather { count } => {
                        ffi::MPI_Iallgather(send, *count, kind, receive, *count, kind, comm, request)
                    }
                    Route::ReduceScatter { count, op } => ffi::MPI_Ireduce_scatter_block(
                        send,
                        receive,
                        *count,
                        kind,
                        reduction(*op),
                        comm,
                        request,
                    ),
                    Route::AllToAllV(counts) => ffi::MPI_Ialltoallv(
                        send,
                        counts.send.as_ptr(),
                        counts.send_starts.as_ptr(),
                        kind,
                        receive,
                        counts.receive.as_ptr(),
                        counts.receive_starts.as_ptr(),
                        kind,
                        comm,
                        request,
                    ),
                    Route::Send { count, to, tag } => {
                        ffi::MPI_Isend(receive, *count, kind, *to, *tag, comm, request)
                    }
                    Route::Receive { count, from, tag } => {
                        ffi::MPI_Irecv(receive, *count, kind, *from, *tag, comm, request)
                    }
                }
            }
        })
    }

    /// Whether the transfer is complete; lets MPI work on all others too.
    pub(super) fn test(&mut self) -> Result<bool, Failure> {
        if !self.complete {
            let mut done = 0;
            let mut status = MaybeUninit::uninit();
            // SAFETY: an active request, and a live integer and status. A null request, which MPI may give for a transfer that
            // was complete at once, is complete, and its status that of an empty message.
            check(unsafe { ffi::MPI_Test(&raw mut self.request, &raw mut done, status.as_mut_ptr()) })?;
            self.complete = done != 0;
            if let (true, Some(Memory::Incoming(words))) = (self.complete, &mut self.memory) {
                let mut received = 0;
                // SAFETY: MPI fills in the status of a request that it says is complete; it has written so many words to the
                // vector, which had room for them.
                unsafe {
                    check(ffi::MPI_Get_count(status.as_ptr(), ffi::RSMPI_UINT64_T, &raw mut received))?;
                    words.set_len(usize::try_from(received).unwrap_or(0).min(words.capacity()));
                }
            }
        }
        Ok(self.complete)
    }

    /// What [`receive_words`](Self::receive_words) received; `None` until it is complete.
    pub(super) fn words(&self) -> Option<&[u64]> {
        match &self.memory {
            Some(Memory::Incoming(words)) if self.complete => Some(words),
            _ => None,
        }
    }

    /// The same, once, with its memory.
    pub(super) fn take_words(&mut self) -> Option<Vec<u64>> {
        match self.memory.take() {
            Some(Memory::Incoming(words)) if self.complete => Some(words),
            other => {
                self.memory = other;
                None
            }
        }
    }

    /// The buffers of a completed [`start_work`](Self::start_work), once.
    pub(super) fn take_buffers(&mut self) -> Option<Buffers> {
        match self.memory.take() {
            Some(Memory::Elements(work)) if self.complete => Some(work.into_buffers()),
            other => {
                self.memory = other;
                None
            }
        }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if !self.complete {
            std::mem::forget(self.memory.take());
        }
    }
}

fn reduction(op: ReduceOp) -> ffi::MPI_Op {
    // SAFETY: constants of the library.
    unsafe {
        match op {
            ReduceOp::Sum => ffi::RSMPI_SUM,
            ReduceOp::Max => ffi::RSMPI_MAX,
            ReduceOp::Min => ffi::RSMPI_MIN,
        }
    }
}
