//! Requests of MPI: calls that move data, and the memory that they use until they complete.
//! Messages between ranks consist of 64-bit words. A function returns `LibraryFailure`, the
//! library's message, if a call of MPI fails.
#![allow(clippy::cast_possible_wrap, reason = "ranks, tags and checked lengths fit into a C `int`")]
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use mpi::ffi;

use super::buffers::Buffers;
use super::library::{Comm, LibraryFailure, check};
use super::prepared_call::{Arguments, PreparedCall};
use crate::ReduceOp;

/// `MPI_IN_PLACE` as Open MPI's `mpi.h` defines it; the bindings lack it, because it is a cast.
const IN_PLACE: *const c_void = ptr::without_provenance(1);

/// Memory that a request of MPI reads and writes until it completes.
#[derive(Debug)]
enum Memory {
    /// Message to be received. Empty until it is complete, with room for the longest message.
    Incoming(Vec<u64>),
    /// Message to be sent.
    Outgoing(Arc<Vec<u64>>),
    /// Buffers of an operation.
    Buffers(PreparedCall),
}

/// Request of MPI with the memory that it uses. If it is dropped before it is complete, the memory
/// is leaked, because MPI may still access it.
#[derive(Debug)]
pub(super) struct Transfer {
    request: ffi::MPI_Request,
    complete: bool,
    memory: Option<Memory>,
}

// SAFETY: MPI lets any thread complete a request, one at a time, and the memory is `Send`.
unsafe impl Send for Transfer {}

impl Transfer {
    fn start(
        mut memory: Memory,
        call: impl FnOnce(&mut Memory, *mut ffi::MPI_Request) -> c_int,
    ) -> Result<Self, LibraryFailure> {
        // SAFETY: a constant of the library.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        let code = call(&mut memory, &raw mut request);
        // Built before the check: MPI may keep the pointers of a call that failed half-way.
        let transfer = Self { request, complete: false, memory: Some(memory) };
        check(code).map(|()| transfer)
    }

    /// Starts to send a message of words to rank `to` of `comm`.
    pub(super) fn send_words(
        comm: Comm,
        to: usize,
        tag: c_int,
        words: Arc<Vec<u64>>,
    ) -> Result<Self, LibraryFailure> {
        Self::start(Memory::Outgoing(words), |memory, request| {
            let Memory::Outgoing(words) = memory else { return ffi::MPI_ERR_BUFFER as c_int };
            // SAFETY: the words are neither moved nor changed until the transfer is complete.
            unsafe {
                let (start, len) = (words.as_ptr().cast(), words.len() as c_int);
                ffi::MPI_Isend(start, len, ffi::RSMPI_UINT64_T, to as c_int, tag, comm.0, request)
            }
        })
    }

    /// Starts to receive a message of at most `capacity` words from rank `from` of `comm`.
    pub(super) fn receive_words(
        comm: Comm,
        from: usize,
        tag: c_int,
        capacity: usize,
    ) -> Result<Self, LibraryFailure> {
        Self::receive_into(comm, from, tag, Vec::with_capacity(capacity))
    }

    /// Starts to receive a message from rank `from` of `comm` into `room`, an empty vector whose
    /// capacity suffices for the longest message.
    pub(super) fn receive_into(
        comm: Comm,
        from: usize,
        tag: c_int,
        room: Vec<u64>,
    ) -> Result<Self, LibraryFailure> {
        let capacity = room.capacity();
        Self::start(Memory::Incoming(room), |memory, request| {
            let Memory::Incoming(words) = memory else { return ffi::MPI_ERR_BUFFER as c_int };
            // SAFETY: the vector's memory is not moved or accessed until the transfer is complete.
            unsafe {
                let (start, len) = (words.as_mut_ptr().cast(), capacity as c_int);
                ffi::MPI_Irecv(start, len, ffi::RSMPI_UINT64_T, from as c_int, tag, comm.0, request)
            }
        })
    }

    /// Starts the data transfer of an operation on which the members of the communicator have
    /// agreed.
    pub(super) fn start_call(comm: Comm, call: PreparedCall) -> Result<Self, LibraryFailure> {
        Self::start(Memory::Buffers(call), |memory, request| {
            let Memory::Buffers(call) = memory else { return ffi::MPI_ERR_BUFFER as c_int };
            let (arguments, buffers) = call.parts();
            let (kind, send, receive) = (buffers.datatype(), buffers.send, buffers.receive);
            let comm = comm.0;
            // SAFETY: the buffers of a `PreparedCall` have the lengths of its arguments, for a
            // communicator of this size. They and the lists of counts are not moved or accessed
            // until the transfer completes.
            unsafe {
                match arguments {
                    Arguments::Barrier => ffi::MPI_Ibarrier(comm, request),
                    Arguments::AllReduce { count, op } => {
                        ffi::MPI_Iallreduce(IN_PLACE, receive, *count, kind, reduction(*op), comm, request)
                    }
                    Arguments::Broadcast { count, root } => {
                        ffi::MPI_Ibcast(receive, *count, kind, *root, comm, request)
                    }
                    Arguments::AllGather { count } => {
                        ffi::MPI_Iallgather(send, *count, kind, receive, *count, kind, comm, request)
                    }
                    Arguments::ReduceScatter { count, op } => ffi::MPI_Ireduce_scatter_block(
                        send,
                        receive,
                        *count,
                        kind,
                        reduction(*op),
                        comm,
                        request,
                    ),
                    Arguments::AllToAllV(counts) => ffi::MPI_Ialltoallv(
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
                    Arguments::Send { count, to, tag } => {
                        ffi::MPI_Isend(receive, *count, kind, *to, *tag, comm, request)
                    }
                    Arguments::Receive { count, from, tag } => {
                        ffi::MPI_Irecv(receive, *count, kind, *from, *tag, comm, request)
                    }
                }
            }
        })
    }

    /// Returns whether the transfer is complete, or an error of the library. MPI also makes
    /// progress on all other transfers.
    pub(super) fn test(&mut self) -> Result<bool, LibraryFailure> {
        if !self.complete {
            let mut done = 0;
            let mut status = MaybeUninit::uninit();
            // SAFETY: an active request, a live integer and a live status. MPI may return a null
            // request for a transfer that completed at once: it is complete, and its status is that
            // of an empty message.
            check(unsafe { ffi::MPI_Test(&raw mut self.request, &raw mut done, status.as_mut_ptr()) })?;
            self.complete = done != 0;
            if let (true, Some(Memory::Incoming(words))) = (self.complete, &mut self.memory) {
                let mut received = 0;
                // SAFETY: MPI sets the status of a complete request. It has written the returned
                // number of words to the vector, which has room for them.
                unsafe {
                    check(ffi::MPI_Get_count(status.as_ptr(), ffi::RSMPI_UINT64_T, &raw mut received))?;
                    words.set_len(usize::try_from(received).unwrap_or(0).min(words.capacity()));
                }
            }
        }
        Ok(self.complete)
    }

    /// Returns the words of a received message. `None` until the transfer is complete, and for
    /// other transfers.
    pub(super) fn words(&self) -> Option<&[u64]> {
        match &self.memory {
            Some(Memory::Incoming(words)) if self.complete => Some(words),
            _ => None,
        }
    }

    /// Takes the words of a received message with their memory. `None` until the transfer is
    /// complete, and for other transfers.
    pub(super) fn take_words(&mut self) -> Option<Vec<u64>> {
        match self.memory.take() {
            Some(Memory::Incoming(words)) if self.complete => Some(words),
            other => {
                self.memory = other;
                None
            }
        }
    }

    /// Takes the buffers of a [`start_call`](Self::start_call). `None` until it is complete, and
    /// for other transfers.
    pub(super) fn take_buffers(&mut self) -> Option<Buffers> {
        match self.memory.take() {
            Some(Memory::Buffers(call)) if self.complete => Some(call.into_buffers()),
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
