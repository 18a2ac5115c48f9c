//! Enqueueing of operations in a stream. An operation consists of copies within the device, and of
//! calls of NCCL that are executed as one group.
#![allow(unsafe_code)]

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use cuda::nccl::{Code, Nccl, SUCCESS, ncclComm_t, ncclDataType_t, ncclRedOp_t};
use cuda::{Buffer, Stream};

use super::comm::{CommFailure, is_error};
use super::enqueued::{EnqueuedOperation, NcclRank};
use super::group::{NcclGroup, OperationId};
use super::request::{NcclBuffers, NcclOperation};
use crate::{Call, Element, ElementType, Error, Exchanged, ReduceOp, Result};

/// Operation to be started, without its buffers and calls.
pub(super) struct Launch<'a> {
    /// State of this rank, shared by its groups.
    pub(super) world: &'a Arc<NcclRank>,
    /// Group among whose ranks the operation runs.
    pub(super) group: &'a Arc<NcclGroup>,
    /// Call of this rank, for error messages.
    pub(super) call: Call,
    /// Number in the group of the other rank of a message. `None` for a collective.
    pub(super) peer: Option<usize>,
    /// Stream in which the operation is enqueued.
    pub(super) queue: &'a Stream,
}

/// Time at which copies are enqueued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// Before the calls of NCCL.
    BeforeCalls,
    /// After the calls of NCCL.
    AfterCalls,
}

impl Launch<'_> {
    /// Enqueues the operation and returns without waiting for it. `calls` makes the calls of NCCL
    /// on the buffers. `copies` enqueues copies within the device, before and after the calls.
    ///
    /// # Errors
    /// The error with which the group has failed. If the work cannot be enqueued, the group fails.
    pub(super) fn start<M: Any + Send + Default>(
        self,
        memory: M,
        copies: impl Fn(&Stream, &M, Moment) -> cuda::Result<()>,
        calls: impl FnOnce(&mut Calls<'_>, &M),
    ) -> Result<NcclOperation<M>> {
        let Launch { world, group, call, peer, queue } = self;
        group.check()?;
        // A graph would neither keep the memory nor tell when the operation is complete.
        if queue.is_capturing().map_err(Error::in_cuda("start an operation"))? {
            return Err(Error::Unsupported { backend: "NCCL", call });
        }
        world.free_abandoned();
        let operation_id =
            peer.map_or_else(|| OperationId::Collective(group.take_sequence()), OperationId::Message);
        let started = Instant::now();
        let enqueued =
            copies(queue, &memory, Moment::BeforeCalls).map_err(CommFailure::from).and_then(|()| {
                group.comm.enqueue(|nccl, comm| {
                    let mut group_calls = Calls { nccl, comm, stream: queue, code: SUCCESS };
                    calls(&mut group_calls, &memory);
                    group_calls.code
                })
            });
        let enqueued =
            enqueued.and_then(|()| copies(queue, &memory, Moment::AfterCalls).map_err(CommFailure::from));
        // After a failure the device may still execute a part of the operation.
        let members = (world, group);
        let recorded = EnqueuedOperation::record(members, queue, call.clone(), operation_id.clone(), started);
        let operation = match recorded {
            Ok(operation) => operation,
            Err(error) => {
                let failure = enqueued.err().unwrap_or(error.into());
                // The abort removes the operation from the stream.
                let error = group.fail(world, &failure, &call, &operation_id);
                if world.drain(queue).is_err() {
                    // It is unknown when the device stops accessing the memory.
                    mem::forget(memory);
                }
                return Err(error);
            }
        };
        if let Err(failure) = enqueued {
            world.abandoned().keep(operation, memory);
            return Err(group.fail(world, &failure, &call, &operation_id));
        }
        world.add_pending(&operation);
        Ok(NcclOperation {
            operation: Some(operation),
            memory,
            _group: Arc::clone(group),
            world: Arc::clone(world),
        })
    }
}

/// Calls of NCCL that an operation makes as one group, on its own buffers: these outlive the work
/// on the device. Calls with zero elements are skipped, equally on all ranks concerned, and so are
/// those after a failed one. Ranks are numbered in the group.
pub(super) struct Calls<'a> {
    nccl: &'a Nccl,
    comm: ncclComm_t,
    stream: &'a Stream,
    /// Result code of the last call.
    code: Code,
}

impl Calls<'_> {
    /// Reduces a buffer in place, with the result on every rank.
    pub(super) fn all_reduce<T: Element>(&mut self, buffer: &Buffer<T>, op: ReduceOp) {
        let (address, count) = (buffer.address(), buffer.len());
        self.call(count, |nccl, comm, stream| {
            // SAFETY: the buffer has these elements.
            unsafe {
                nccl.all_reduce(from(address), to(address), count, code::<T>(), op_code(op), comm, stream)
            }
        });
    }

    /// Copies the buffer of the rank `root` to every rank.
    pub(super) fn broadcast<T: Element>(&mut self, buffer: &Buffer<T>, root: usize) {
        let (address, count) = (buffer.address(), buffer.len());
        self.call(count, |nccl, comm, stream| {
            // SAFETY: the buffer has these elements.
            unsafe {
                nccl.broadcast(from(address), to(address), count, code::<T>(), rank(root), comm, stream)
            }
        });
    }

    /// Concatenates the send buffers of all ranks, whose lengths are equal, on every rank.
    pub(super) fn all_gather<T: Element>(&mut self, memory: &NcclBuffers<T>) {
        let (send, receive, count) = (memory.send.address(), memory.receive.address(), memory.send.len());
        self.call(count, |nccl, comm, stream| {
            // SAFETY: the lengths were checked: the receive buffer has `count` elements for each
            // rank.
            unsafe { nccl.all_gather(from(send), to(receive), count, code::<T>(), comm, stream) }
        });
    }

    /// Reduces the send buffers, with one chunk of the result in the receive buffer of each rank.
    pub(super) fn reduce_scatter<T: Element>(&mut self, memory: &NcclBuffers<T>, op: ReduceOp) {
        let (send, receive, count) = (memory.send.address(), memory.receive.address(), memory.receive.len());
        self.call(count, |nccl, comm, stream| {
            // SAFETY: the lengths were checked: the send buffer has `count` elements for each rank.
            unsafe {
                nccl.reduce_scatter(from(send), to(receive), count, code::<T>(), op_code(op), comm, stream)
            }
        });
    }

    /// Sends the elements `range` of a buffer to a rank.
    pub(super) fn send<T: Element>(&mut self, buffer: &Buffer<T>, range: &Range<usize>, peer: usize) {
        assert!(range.end <= buffer.len(), "elements {range:?} of a buffer of {}", buffer.len());
        let (address, count) = (buffer.address_of(range.start), range.len());
        self.call(count, |nccl, comm, stream| {
            // SAFETY: the range is in the buffer.
            unsafe { nccl.send(from(address), count, code::<T>(), rank(peer), comm, stream) }
        });
    }

    /// Receives the elements `range` of a buffer from a rank.
    pub(super) fn receive<T: Element>(&mut self, buffer: &Buffer<T>, range: &Range<usize>, peer: usize) {
        assert!(range.end <= buffer.len(), "elements {range:?} of a buffer of {}", buffer.len());
        let (address, count) = (buffer.address_of(range.start), range.len());
        self.call(count, |nccl, comm, stream| {
            // SAFETY: the range is in the buffer.
            unsafe { nccl.receive(to(address), count, code::<T>(), rank(peer), comm, stream) }
        });
    }

    fn call(&mut self, count: usize, call: impl FnOnce(&Nccl, ncclComm_t, &Stream) -> Code) {
        if count > 0 && !is_error(self.code) {
            self.code = call(self.nccl, self.comm, self.stream);
        }
    }
}

/// Copies nothing: see [`Launch::start`].
#[expect(clippy::unnecessary_wraps, reason = "the type of functions that copy")]
pub(super) fn no_copies<M>(_: &Stream, _: &M, _: Moment) -> cuda::Result<()> {
    Ok(())
}

/// Returns the buffers of an operation on one buffer: an empty send buffer, and `buffer` as the
/// receive buffer.
pub(super) fn in_receive_buffer<T>(buffer: Buffer<T>) -> NcclBuffers<T> {
    Exchanged { send: Buffer::default(), receive: buffer }
}

fn from(address: u64) -> *const c_void {
    address as *const c_void
}

fn to(address: u64) -> *mut c_void {
    address as *mut c_void
}

/// Converts a rank of a group. NCCL rejects ranks out of range.
fn rank(rank: usize) -> c_int {
    c_int::try_from(rank).unwrap_or(c_int::MAX)
}

fn code<T: Element>() -> ncclDataType_t {
    match T::TYPE {
        ElementType::F32 => ncclDataType_t::ncclFloat32,
        ElementType::F64 => ncclDataType_t::ncclFloat64,
        ElementType::I32 => ncclDataType_t::ncclInt32,
        ElementType::I64 => ncclDataType_t::ncclInt64,
        ElementType::U8 => ncclDataType_t::ncclUint8,
        ElementType::F16 => ncclDataType_t::ncclFloat16,
        ElementType::Bf16 => ncclDataType_t::ncclBfloat16,
    }
}

fn op_code(op: ReduceOp) -> ncclRedOp_t {
    match op {
        ReduceOp::Sum => ncclRedOp_t::ncclSum,
        ReduceOp::Max => ncclRedOp_t::ncclMax,
        ReduceOp::Min => ncclRedOp_t::ncclMin,
    }
}
