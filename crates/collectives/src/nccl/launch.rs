//! Enqueueing of operations in a stream. An operation consists of *steps*: calls of NCCL that it
//! executes as one group, and copies.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint, c_void};
use std::mem;
use std::sync::Arc;
use std::time::Instant;

use cudarc::nccl::sys::{ncclDataType_t, ncclRedOp_t};

use super::api::{Code, Functions, Handle, RawStream, SUCCESS};
use super::buffer::{NcclBuffer, NcclStream};
use super::comm::CommFailure;
use super::enqueued::EnqueuedOperation;
use super::group::{NcclGroup, NcclWorldState, OperationId};
use super::pending_operations::DeviceOperation;
use super::request::{NcclBuffers, NcclOperation};
use crate::{Call, Element, ElementType, Exchanged, ReduceOp, Result};

/// Step of an operation: a call of NCCL or a copy. Steps with zero elements are skipped, equally on
/// all ranks concerned. Ranks are numbered in the group.
#[derive(Debug, Clone, Copy)]
pub(super) enum NcclStep {
    /// Element-wise reduction in place, with the result on every rank.
    AllReduce {
        /// Device address of the elements.
        buffer: u64,
        /// Number of elements.
        count: usize,
        /// Reduction.
        op: ReduceOp,
    },
    /// Copy of one rank's buffer to every rank.
    Broadcast {
        /// Device address of the elements, read on the root and written on the others.
        buffer: u64,
        /// Number of elements.
        count: usize,
        /// Rank whose elements are copied.
        root: usize,
    },
    /// Concatenation of every rank's buffer, on every rank.
    AllGather {
        /// Device address of this rank's elements.
        send: u64,
        /// Device address of the result, `count` elements from each rank.
        receive: u64,
        /// Number of elements of each rank.
        count: usize,
    },
    /// Element-wise reduction with one chunk of the result on each rank.
    ReduceScatter {
        /// Device address of this rank's elements, `count` for each rank.
        send: u64,
        /// Device address of the chunk.
        receive: u64,
        /// Number of elements of the chunk.
        count: usize,
        /// Reduction.
        op: ReduceOp,
    },
    /// Message to one rank.
    Send {
        /// Device address of the elements to send.
        buffer: u64,
        /// Number of elements.
        count: usize,
        /// Receiver.
        to: usize,
    },
    /// Message from one rank.
    Receive {
        /// Device address to receive at.
        buffer: u64,
        /// Number of elements.
        count: usize,
        /// Sender.
        from: usize,
    },
    /// Copy within the device, without NCCL.
    Copy {
        /// Device address of the source.
        from: u64,
        /// Device address of the destination.
        to: u64,
        /// Number of elements.
        count: usize,
    },
}

/// Operation to be started, without its buffers and steps.
pub(super) struct Launch<'a> {
    /// State of this rank, shared by its groups.
    pub(super) world: &'a Arc<NcclWorldState>,
    /// Group among whose ranks the operation runs.
    pub(super) group: &'a Arc<NcclGroup>,
    /// Call of this rank, for error messages.
    pub(super) call: Call,
    /// Number in the group of the other rank of a message. `None` for a collective.
    pub(super) peer: Option<usize>,
    /// Stream in which the steps are enqueued.
    pub(super) queue: &'a NcclStream,
}

impl Launch<'_> {
    /// Enqueues `steps` as one operation and returns without waiting for it. The steps access
    /// `memory` only. Exception: copies may read memory whose later use the caller enqueues after
    /// them in the same stream.
    ///
    /// # Errors
    /// The error with which the group has failed. If the steps cannot be enqueued, the group fails.
    pub(super) fn start<T: Element>(
        self,
        memory: NcclBuffers<T>,
        steps: &[NcclStep],
    ) -> Result<NcclOperation<T>> {
        let Launch { world, group, call, peer, queue } = self;
        group.check()?;
        world.abandoned().sweep();
        let operation_id =
            peer.map_or_else(|| OperationId::Collective(group.take_sequence()), OperationId::Message);
        let stream = &queue.raw;
        let started = Instant::now();
        let copied = steps.iter().try_for_each(|step| match *step {
            NcclStep::Copy { from, to, count } if count > 0 => {
                // SAFETY: the caller passes addresses in the memory, and copies between different
                // buffers.
                unsafe { stream.copy(from, to, count * size_of::<T>()) }
            }
            _ => Ok(()),
        });
        let element = element_code(T::TYPE);
        let enqueued = copied.map_err(CommFailure::Library).and_then(|()| {
            group.comm.enqueue(|api, comm| {
                let codes = steps.iter().map(|step| {
                    // SAFETY: the caller passes addresses in the memory, which is valid until the
                    // event is complete.
                    unsafe { step.call(api, comm, element, stream.raw()) }
                });
                codes.fold(SUCCESS, |first, code| if first == SUCCESS { code } else { first })
            })
        });
        // After a failure the device may still execute a part of the operation.
        let operation: Arc<dyn DeviceOperation> = match stream.event() {
            Ok(event) => {
                let (call, operation_id) = (call.clone(), operation_id.clone());
                Arc::new(EnqueuedOperation::new((world, group), call, operation_id, started, event))
            }
            Err(message) => {
                let failure = enqueued.err().unwrap_or(CommFailure::Library(message));
                // The abort removes the operation from the stream.
                let error = group.fail(world, &failure, &call, &operation_id);
                if stream.synchronize().is_err() {
                    // It is unknown when the device stops accessing the memory.
                    mem::forget(memory);
                }
                return Err(error);
            }
        };
        if let Err(failure) = enqueued {
            world.abandoned().keep(operation, Box::new(memory));
            return Err(group.fail(world, &failure, &call, &operation_id));
        }
        group.pending.add(&operation);
        queue.pending.add(&operation);
        Ok(NcclOperation {
            operation: Some(operation),
            memory,
            _group: Arc::clone(group),
            world: Arc::clone(world),
        })
    }
}

impl NcclStep {
    /// Calls the function of NCCL.
    ///
    /// # Safety
    /// The addresses are memory of that number of elements on the communicator's device, which is
    /// also the stream's.
    unsafe fn call(self, api: &Functions, comm: Handle, element: c_uint, stream: RawStream) -> Code {
        // SAFETY: as the caller promises.
        unsafe {
            match self {
                Self::AllReduce { count: 0, .. }
                | Self::Broadcast { count: 0, .. }
                | Self::AllGather { count: 0, .. }
                | Self::ReduceScatter { count: 0, .. }
                | Self::Send { count: 0, .. }
                | Self::Receive { count: 0, .. }
                | Self::Copy { .. } => SUCCESS,
                Self::AllReduce { buffer, count, op } => {
                    api.all_reduce(from(buffer), to(buffer), count, element, op_code(op), comm, stream)
                }
                Self::Broadcast { buffer, count, root } => {
                    api.broadcast(from(buffer), to(buffer), count, element, rank(root), comm, stream)
                }
                Self::AllGather { send, receive, count } => {
                    api.all_gather(from(send), to(receive), count, element, comm, stream)
                }
                Self::ReduceScatter { send, receive, count, op } => {
                    api.reduce_scatter(from(send), to(receive), count, element, op_code(op), comm, stream)
                }
                Self::Send { buffer, count, to } => {
                    api.send(from(buffer), count, element, rank(to), comm, stream)
                }
                Self::Receive { buffer, count, from } => {
                    api.receive(to(buffer), count, element, rank(from), comm, stream)
                }
            }
        }
    }
}

/// Returns the buffers of an operation on one buffer: an empty send buffer, and `buffer` as the
/// receive buffer.
pub(super) fn in_receive_buffer<T>(buffer: NcclBuffer<T>) -> NcclBuffers<T> {
    Exchanged { send: NcclBuffer::default(), receive: buffer }
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

fn element_code(element: ElementType) -> c_uint {
    (match element {
        ElementType::F32 => ncclDataType_t::ncclFloat32,
        ElementType::F64 => ncclDataType_t::ncclFloat64,
        ElementType::I32 => ncclDataType_t::ncclInt32,
        ElementType::I64 => ncclDataType_t::ncclInt64,
        ElementType::U8 => ncclDataType_t::ncclUint8,
        ElementType::F16 => ncclDataType_t::ncclFloat16,
        ElementType::Bf16 => ncclDataType_t::ncclBfloat16,
    }) as c_uint
}

fn op_code(op: ReduceOp) -> c_uint {
    (match op {
        ReduceOp::Sum => ncclRedOp_t::ncclSum,
        ReduceOp::Max => ncclRedOp_t::ncclMax,
        ReduceOp::Min => ncclRedOp_t::ncclMin,
    }) as c_uint
}
