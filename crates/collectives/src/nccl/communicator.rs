//! Implementation of the communicator traits for NCCL. An operation consists of *steps*: calls of
//! NCCL that it executes as one group, and copies.

use std::sync::Arc;

use super::buffer::{NcclBuffer, NcclStream};
use super::comm::NO_COLOR;
use super::group::{NcclGroup, NcclWorldState, OperationId};
use super::launch::{Launch, NcclStep, in_receive_buffer};
use super::request::{
    NcclBarrierRequest, NcclBuffers, NcclExchangeRequest, NcclOperation, NcclRedistributionRequest,
    NcclRequest,
};
use crate::lengths::LengthMismatch;
use crate::membership::{check_rank, index_in_subgroup, ranks_with_color};
use crate::{
    Call, Communicator, Element, Error, Exchanged, Group, Operation, Redistribution, ReduceOp, Result,
};

/// Handle of a group of GPUs, held by one rank.
///
/// Starting an operation enqueues it in the given stream. Work that is enqueued there later sees
/// its result without a wait on the host. Operations of one group are enqueued in the same order on
/// all ranks. They may be enqueued between launches of captured graphs, but not while a stream is
/// being captured.
///
/// Differences from the other backends:
///
/// - Calls are not compared across ranks. Ranks that call different operations, lengths or types
///   get an error at the latest after the time-out, or wrong data if NCCL cannot detect the
///   difference. A wrong argument is an error on its own rank at once, and the others time out. If
///   a group fails, its started operations fail too.
/// - A rank that has started a collective but neither polls nor waits for any operation may be
///   reported as missing. So may a rank whose own part was complete when the others timed out. The
///   poll that detects a failure takes until the communicator is aborted and the missing rank is
///   identified, up to about 1 s. Polls of other threads do not wait for it.
/// - `split` waits for the operations of its group that this rank has started, as NCCL requires. A
///   split that some ranks do not call fails the group.
/// - Messages between two ranks are matched by their order only, not by their tags. A rank cannot
///   send a message to itself.
/// - The first operations between two ranks connect them, and starting them may wait for the other
///   rank. Two ranks that send to each other use all-to-all-v, or the lower one sends first.
/// - Each group is a communicator of NCCL, whose creation takes time and device memory. Operations
///   of several groups that run concurrently in different streams share the device. NCCL requires
///   the same order of them on all ranks.
/// - Reductions are the same on all ranks and in every run on the same links, but not in the order
///   of the ranks.
///
/// Clones and subgroups belong to the same rank. Dropping the last one finalizes all communicators;
/// after an error or in a panic they are aborted. After an error, the last drop on rank 0 waits up
/// to 2 s until the others have received the error.
#[derive(Debug, Clone)]
pub struct NcclCommunicator {
    group: Arc<NcclGroup>,
    /// Dropped after the group, which uses it until then.
    world: Arc<NcclWorldState>,
}

impl NcclCommunicator {
    /// Creates a handle of a group for this rank of the world.
    pub(super) fn new(world: Arc<NcclWorldState>, group: Arc<NcclGroup>) -> Self {
        Self { group, world }
    }

    /// Creates a stream on this rank's device, separate from all others.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver cannot create one.
    pub fn new_stream(&self) -> Result<NcclStream> {
        let failed = |message| Error::Device { action: "create a stream".to_owned(), message };
        self.world.settings.device.stream().map(NcclStream::new).map_err(failed)
    }

    /// Checks the lengths of the buffers and starts a collective.
    fn checked<T: Element>(
        &self,
        operation: Operation,
        queue: &NcclStream,
        memory: NcclBuffers<T>,
        steps: impl FnOnce(&NcclBuffers<T>) -> Vec<NcclStep>,
    ) -> Result<NcclOperation<T>> {
        let (send, receive) = (memory.send.len(), memory.receive.len());
        let wrong =
            LengthMismatch::in_group(&operation, self.size(), send, receive).or_else(|| match &operation {
                // Ranks' calls are not compared, but a rank's chunk for itself must have one
                // length.
                Operation::AllToAllV { send_counts, receive_counts } => {
                    let (kept, actual) = (send_counts[self.rank()], receive_counts[self.rank()]);
                    LengthMismatch::of("receive counts", Some(kept), actual)
                }
                _ => None,
            });
        if let Some(wrong) = wrong {
            return Err(wrong.error(self.world.rank, &Call { operation, element: Some(T::TYPE) }));
        }
        self.collective(operation, queue, memory, steps)
    }

    /// Starts a collective whose lengths have been checked: enqueues its steps in `queue`. `steps`
    /// is given `memory`, whose addresses are the only ones that the steps may access.
    ///
    /// # Errors
    /// The error with which the group has failed or fails now.
    pub(super) fn collective<T: Element>(
        &self,
        operation: Operation,
        queue: &NcclStream,
        memory: NcclBuffers<T>,
        steps: impl FnOnce(&NcclBuffers<T>) -> Vec<NcclStep>,
    ) -> Result<NcclOperation<T>> {
        let call = Call { operation, element: Some(T::TYPE) };
        let steps = steps(&memory);
        self.launch(call, None, queue).start(memory, &steps)
    }

    fn message<T: Element>(
        &self,
        peer: usize,
        operation: Operation,
        queue: &NcclStream,
        buffer: NcclBuffer<T>,
        step: NcclStep,
    ) -> Result<NcclRequest<T>> {
        check_rank(peer, self.size())?;
        let call = Call { operation, element: Some(T::TYPE) };
        if peer == self.rank() {
            return Err(Error::Unsupported { backend: "NCCL", call });
        }
        self.launch(call, Some(peer), queue).start(in_receive_buffer(buffer), &[step]).map(NcclRequest)
    }

    fn launch<'a>(&'a self, call: Call, peer: Option<usize>, queue: &'a NcclStream) -> Launch<'a> {
        Launch { world: &self.world, group: &self.group, call, peer, queue }
    }

    fn members(&self, ranks: &[usize]) -> Vec<usize> {
        ranks.iter().map(|&rank| self.group.members[rank]).collect()
    }
}

impl Group for NcclCommunicator {
    type Queue = NcclStream;
    type BarrierRequest = NcclBarrierRequest;

    fn rank(&self) -> usize {
        self.group.rank
    }

    fn size(&self) -> usize {
        self.group.members.len()
    }

    fn split(&self, color: Option<u32>, key: i32) -> Result<Option<Self>> {
        let group = &*self.group;
        let call = Call { operation: Operation::Split, element: None };
        group.check()?;
        // Before any error, so that a wrong argument leaves this rank's sequence number equal to
        // the others'.
        let sequence = group.take_sequence();
        let color = match color.map(i32::try_from) {
            None => NO_COLOR,
            Some(Ok(color)) => color,
            Some(Err(_)) => {
                let message = format!("a color is at most {}", i32::MAX);
                return Err(self.world.library_error(&call, message));
            }
        };
        // NCCL may deadlock if it divides a communicator with pending operations.
        group.pending.wait(self.world.settings.wait)?;
        // NCCL reports neither the members of the new group nor the ranks that did not call the
        // split.
        let name = format!("{} split {sequence}", group.id);
        let choice = [color.to_be_bytes(), key.to_be_bytes()].concat();
        let timeout = self.world.settings.timeout;
        let choices =
            self.world.store.gather_all_or_none(&name, &group.members, group.rank, &choice, timeout);
        let choices = choices.map_err(|gather_error| group.fail_gather(&self.world, gather_error, &call))?;
        let Some(comm) = group.comm.split(color, key).map_err(|failure| {
            group.fail(&self.world, &failure, &call, &OperationId::Collective(sequence))
        })?
        else {
            return Ok(None);
        };

        let choices = choices.iter().map(|choice| {
            let (color, key) = choice.split_first_chunk::<4>()?;
            Some((i32::from_be_bytes(*color), i32::from_be_bytes(*key.first_chunk()?)))
        });
        let ranks = ranks_with_color(choices.map(|choice| choice.unwrap_or((NO_COLOR, 0))), color);
        let rank = ranks.iter().position(|&rank| rank == group.rank).unwrap_or(0);
        let child = NcclGroup::new(format!("{name} color {color}"), self.members(&ranks), rank, comm);
        Ok(Some(Self::new(Arc::clone(&self.world), Arc::new(child))))
    }

    fn group(&self, ranks: &[usize]) -> Result<Self> {
        let rank = index_in_subgroup(ranks, self.rank(), self.size())?;
        let id = format!("{} {ranks:?}", self.group.id);
        let group = self.world.cached_group(&id, || {
            let call = Call { operation: Operation::Group { ranks: ranks.to_vec() }, element: None };
            self.world.create_group(id.clone(), self.members(ranks), rank, &call)
        })?;
        Ok(Self::new(Arc::clone(&self.world), group))
    }

    fn start_barrier(&self, queue: &mut NcclStream) -> Result<NcclBarrierRequest> {
        // NCCL has no barrier. No rank has the sum before all ranks have contributed their element.
        let element = NcclBuffer::<u8>::uninitialised(1, queue)?;
        let call = Call { operation: Operation::Barrier, element: None };
        let step = NcclStep::AllReduce { buffer: element.address(0), count: 1, op: ReduceOp::Max };
        self.launch(call, None, queue).start(in_receive_buffer(element), &[step]).map(NcclBarrierRequest)
    }
}

impl<T: Element> Communicator<T> for NcclCommunicator {
    type Buffer = NcclBuffer<T>;
    type Request = NcclRequest<T>;
    type ExchangeRequest = NcclExchangeRequest<T>;
    type RedistributionRequest = NcclRedistributionRequest<T>;

    fn start_all_reduce(
        &self,
        buffer: NcclBuffer<T>,
        op: ReduceOp,
        queue: &mut NcclStream,
    ) -> Result<NcclRequest<T>> {
        let count = buffer.len();
        let steps = |memory: &NcclBuffers<T>| {
            vec![NcclStep::AllReduce { buffer: memory.receive.address(0), count, op }]
        };
        self.collective(Operation::AllReduce { count, op }, queue, in_receive_buffer(buffer), steps)
            .map(NcclRequest)
    }

    fn start_broadcast(
        &self,
        buffer: NcclBuffer<T>,
        root: usize,
        queue: &mut NcclStream,
    ) -> Result<NcclRequest<T>> {
        check_rank(root, self.size())?;
        let count = buffer.len();
        let steps = |memory: &NcclBuffers<T>| {
            vec![NcclStep::Broadcast { buffer: memory.receive.address(0), count, root }]
        };
        self.collective(Operation::Broadcast { count, root }, queue, in_receive_buffer(buffer), steps)
            .map(NcclRequest)
    }

    fn start_all_gather(
        &self,
        send: NcclBuffer<T>,
        receive: NcclBuffer<T>,
        queue: &mut NcclStream,
    ) -> Result<NcclExchangeRequest<T>> {
        let count = send.len();
        let steps = |memory: &NcclBuffers<T>| {
            vec![NcclStep::AllGather {
                send: memory.send.address(0),
                receive: memory.receive.address(0),
                count,
            }]
        };
        let memory = Exchanged { send, receive };
        self.checked(Operation::AllGather { count }, queue, memory, steps).map(NcclExchangeRequest)
    }

    fn start_reduce_scatter(
        &self,
        send: NcclBuffer<T>,
        receive: NcclBuffer<T>,
        op: ReduceOp,
        queue: &mut NcclStream,
    ) -> Result<NcclExchangeRequest<T>> {
        let count = receive.len();
        let steps = |memory: &NcclBuffers<T>| {
            vec![NcclStep::ReduceScatter {
                send: memory.send.address(0),
                receive: memory.receive.address(0),
                count,
                op,
            }]
        };
        let memory = Exchanged { send, receive };
        self.checked(Operation::ReduceScatter { count, op }, queue, memory, steps).map(NcclExchangeRequest)
    }

    fn start_all_to_all_v(
        &self,
        send: NcclBuffer<T>,
        send_counts: &[usize],
        receive: NcclBuffer<T>,
        receive_counts: &[usize],
        queue: &mut NcclStream,
    ) -> Result<NcclExchangeRequest<T>> {
        let rank = self.rank();
        let steps = |memory: &NcclBuffers<T>| {
            let (mut sent, mut received) = (0, 0);
            let mut steps = Vec::new();
            for (peer, (&send_count, &receive_count)) in send_counts.iter().zip(receive_counts).enumerate() {
                let (from, to) = (memory.send.address(sent), memory.receive.address(received));
                if peer == rank {
                    steps.push(NcclStep::Copy { from, to, count: send_count });
                } else {
                    steps.push(NcclStep::Send { buffer: from, count: send_count, to: peer });
                    steps.push(NcclStep::Receive { buffer: to, count: receive_count, from: peer });
                }
                sent += send_count;
                received += receive_count;
            }
            steps
        };
        let operation = Operation::AllToAllV {
            send_counts: send_counts.to_vec(),
            receive_counts: receive_counts.to_vec(),
        };
        self.checked(operation, queue, Exchanged { send, receive }, steps).map(NcclExchangeRequest)
    }

    fn start_send(
        &self,
        buffer: NcclBuffer<T>,
        to: usize,
        tag: u32,
        queue: &mut NcclStream,
    ) -> Result<NcclRequest<T>> {
        let count = buffer.len();
        let step = NcclStep::Send { buffer: buffer.address(0), count, to };
        self.message(to, Operation::Send { count, to, tag }, queue, buffer, step)
    }

    fn start_receive(
        &self,
        buffer: NcclBuffer<T>,
        from: usize,
        tag: u32,
        queue: &mut NcclStream,
    ) -> Result<NcclRequest<T>> {
        let count = buffer.len();
        let step = NcclStep::Receive { buffer: buffer.address(0), count, from };
        self.message(from, Operation::Receive { count, from, tag }, queue, buffer, step)
    }

    fn start_redistribution(
        &self,
        redistribution: &Redistribution,
        input: &NcclBuffer<T>,
        sample_len: usize,
        queue: &mut NcclStream,
    ) -> Result<NcclRedistributionRequest<T>> {
        self.redistribute(redistribution, input, sample_len, queue)
    }
}
