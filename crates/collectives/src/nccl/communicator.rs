//! Implementation of the communicator traits for NCCL.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use cuda::{Buffer, Context, Stream};

use super::bootstrap::Members;
use super::comm::NO_COLOR;
use super::enqueued::NcclRank;
use super::group::{NcclGroup, OperationId};
use super::launch::{Calls, Launch, Moment, in_receive_buffer, no_copies};
use super::request::{
    NcclBarrierRequest, NcclBuffers, NcclExchangeRequest, NcclOperation, NcclRedistributionRequest,
    NcclRequest,
};
use crate::lengths::LengthMismatch;
use crate::membership::{check_rank, index_in_subgroup, ranks_with_color};
use crate::{
    Call, Communicator, Element, Error, Exchanged, Group, Operation, Redistribution, RedistributionBuffers,
    ReduceOp, Result,
};

/// Handle of a group of GPUs, held by one rank.
///
/// Starting an operation enqueues it in the given stream. Work that is enqueued there later sees
/// its result without a wait on the host. Operations of one group are enqueued in the same order on
/// all ranks. They may be enqueued between launches of captured graphs and while other threads
/// capture streams, but not in a stream that is being captured.
///
/// An operation takes its buffers and returns them, so that memory that the device still writes to
/// is not freed. Buffers are ready in the stream of the operation: written in it, or in another
/// stream that it has waited for. A borrowed stream lives until the requests of its operations have
/// been waited for.
///
/// [`synchronize`](Self::synchronize) waits for a stream and detects a missing rank. The waits of
/// the crate `cuda` do not, and neither do those in its copies to and from the host and in the drop
/// of a buffer that was not allocated [in a stream](Buffer::in_stream): while an operation lacks a
/// rank, they wait until another thread finds the failure by a request or by `synchronize`.
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
    world: Arc<NcclRank>,
}

impl NcclCommunicator {
    /// Creates a handle of a group for this rank of the world.
    pub(super) fn new(world: Arc<NcclRank>, group: Arc<NcclGroup>) -> Self {
        Self { group, world }
    }

    /// Returns the context of this rank's device.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.world.settings.context
    }

    /// Waits until all work that was enqueued in a stream so far is complete. An operation of this
    /// rank that fails or times out ends the wait.
    ///
    /// # Errors
    /// The error of an operation in the stream, unless its request has returned it;
    /// [`Error::Cuda`] if other work failed.
    pub fn synchronize(&self, stream: &Stream) -> Result<()> {
        self.world.synchronize(stream)
    }

    /// Checks the lengths of the buffers of a collective.
    fn check_lengths<T: Element>(&self, operation: &Operation, memory: &NcclBuffers<T>) -> Result<()> {
        let (send, receive) = (memory.send.len(), memory.receive.len());
        let wrong =
            LengthMismatch::in_group(operation, self.size(), send, receive).or_else(|| match operation {
                // Ranks' calls are not compared, but a rank's chunk for itself has one length.
                Operation::AllToAllV { send_counts, receive_counts } => {
                    let (kept, actual) = (send_counts[self.rank()], receive_counts[self.rank()]);
                    LengthMismatch::of("receive counts", Some(kept), actual)
                }
                _ => None,
            });
        let call = || Call { operation: operation.clone(), element: Some(T::TYPE) };
        wrong.map_or(Ok(()), |wrong| Err(wrong.error(self.world.rank, &call())))
    }

    /// Starts a collective whose lengths have been checked: enqueues its calls in
    /// `queue`, and copies within the device before and after the calls.
    ///
    /// # Errors
    /// The error with which the group has failed or fails now.
    pub(super) fn collective<M: Any + Send + Default>(
        &self,
        call: Call,
        queue: &Stream,
        memory: M,
        copies: impl Fn(&Stream, &M, Moment) -> cuda::Result<()>,
        calls: impl FnOnce(&mut Calls<'_>, &M),
    ) -> Result<NcclOperation<M>> {
        self.launch(call, None, queue).start(memory, copies, calls)
    }

    fn message<T: Element>(
        &self,
        peer: usize,
        operation: Operation,
        queue: &Stream,
        buffer: Buffer<T>,
        calls: impl FnOnce(&mut Calls<'_>, &NcclBuffers<T>),
    ) -> Result<NcclRequest<T>> {
        check_rank(peer, self.size())?;
        let call = Call { operation, element: Some(T::TYPE) };
        if peer == self.rank() {
            return Err(Error::Unsupported { backend: "NCCL", call });
        }
        self.launch(call, Some(peer), queue)
            .start(in_receive_buffer(buffer), no_copies, calls)
            .map(NcclRequest)
    }

    fn launch<'a>(&'a self, call: Call, peer: Option<usize>, queue: &'a Stream) -> Launch<'a> {
        Launch { world: &self.world, group: &self.group, call, peer, queue }
    }

    fn members(&self, ranks: &[usize]) -> Vec<usize> {
        ranks.iter().map(|&rank| self.group.members[rank]).collect()
    }
}

impl Group for NcclCommunicator {
    type Queue = Stream;
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
        self.world.wait_for_pending(|operation| operation.is_of(&self.group))?;
        // NCCL reports neither the members of the new group nor the ranks that did not call the
        // split.
        let name = format!("{} split {sequence}", group.id);
        let choice = [color.to_be_bytes(), key.to_be_bytes()].concat();
        let timeout = self.world.settings.timeout;
        let members = Members { key: &name, ranks: &group.members, place: group.rank };
        let choices = self.world.store.gather_all_or_none(members, &choice, timeout);
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

    fn start_barrier(&self, queue: &mut Stream) -> Result<NcclBarrierRequest> {
        // NCCL has no barrier. No rank has the sum before all ranks have contributed their element.
        let element =
            Buffer::<u8>::in_stream(queue, 1).map_err(Error::in_cuda("allocate the element of a barrier"))?;
        let call = Call { operation: Operation::Barrier, element: None };
        self.launch(call, None, queue)
            .start(in_receive_buffer(element), no_copies, |calls, memory| {
                calls.all_reduce(&memory.receive, ReduceOp::Max);
            })
            .map(NcclBarrierRequest)
    }
}

impl<T: Element> Communicator<T> for NcclCommunicator {
    type Buffer = Buffer<T>;
    type Request = NcclRequest<T>;
    type ExchangeRequest = NcclExchangeRequest<T>;
    type RedistributionRequest = NcclRedistributionRequest<T>;

    fn start_all_reduce(
        &self,
        buffer: Buffer<T>,
        op: ReduceOp,
        queue: &mut Stream,
    ) -> Result<NcclRequest<T>> {
        let operation = Operation::AllReduce { count: buffer.len(), op };
        self.collective(call::<T>(operation), queue, in_receive_buffer(buffer), no_copies, |calls, memory| {
            calls.all_reduce(&memory.receive, op);
        })
        .map(NcclRequest)
    }

    fn start_broadcast(&self, buffer: Buffer<T>, root: usize, queue: &mut Stream) -> Result<NcclRequest<T>> {
        check_rank(root, self.size())?;
        let operation = Operation::Broadcast { count: buffer.len(), root };
        self.collective(call::<T>(operation), queue, in_receive_buffer(buffer), no_copies, |calls, memory| {
            calls.broadcast(&memory.receive, root);
        })
        .map(NcclRequest)
    }

    fn start_all_gather(
        &self,
        send: Buffer<T>,
        receive: Buffer<T>,
        queue: &mut Stream,
    ) -> Result<NcclExchangeRequest<T>> {
        let operation = Operation::AllGather { count: send.len() };
        let memory = Exchanged { send, receive };
        self.check_lengths(&operation, &memory)?;
        self.collective(call::<T>(operation), queue, memory, no_copies, |calls, memory| {
            calls.all_gather(memory);
        })
        .map(NcclExchangeRequest)
    }

    fn start_reduce_scatter(
        &self,
        send: Buffer<T>,
        receive: Buffer<T>,
        op: ReduceOp,
        queue: &mut Stream,
    ) -> Result<NcclExchangeRequest<T>> {
        let operation = Operation::ReduceScatter { count: receive.len(), op };
        let memory = Exchanged { send, receive };
        self.check_lengths(&operation, &memory)?;
        self.collective(call::<T>(operation), queue, memory, no_copies, |calls, memory| {
            calls.reduce_scatter(memory, op);
        })
        .map(NcclExchangeRequest)
    }

    fn start_all_to_all_v(
        &self,
        send: Buffer<T>,
        send_counts: &[usize],
        receive: Buffer<T>,
        receive_counts: &[usize],
        queue: &mut Stream,
    ) -> Result<NcclExchangeRequest<T>> {
        let operation = Operation::AllToAllV {
            send_counts: send_counts.to_vec(),
            receive_counts: receive_counts.to_vec(),
        };
        let memory = Exchanged { send, receive };
        self.check_lengths(&operation, &memory)?;
        let (rank, sent, received) = (self.rank(), ranges(send_counts), ranges(receive_counts));
        let keep = |queue: &Stream, memory: &NcclBuffers<T>, moment| match moment {
            Moment::BeforeCalls => {
                memory.receive.enqueue_copy(queue, received[rank].start, &memory.send, sent[rank].clone())
            }
            Moment::AfterCalls => Ok(()),
        };
        self.collective(call::<T>(operation), queue, memory, keep, |calls, memory| {
            for peer in (0..sent.len()).filter(|&peer| peer != rank) {
                calls.send(&memory.send, &sent[peer], peer);
                calls.receive(&memory.receive, &received[peer], peer);
            }
        })
        .map(NcclExchangeRequest)
    }

    fn start_send(
        &self,
        buffer: Buffer<T>,
        to: usize,
        tag: u32,
        queue: &mut Stream,
    ) -> Result<NcclRequest<T>> {
        let count = buffer.len();
        self.message(to, Operation::Send { count, to, tag }, queue, buffer, |calls, memory| {
            calls.send(&memory.receive, &(0..count), to);
        })
    }

    fn start_receive(
        &self,
        buffer: Buffer<T>,
        from: usize,
        tag: u32,
        queue: &mut Stream,
    ) -> Result<NcclRequest<T>> {
        let count = buffer.len();
        self.message(from, Operation::Receive { count, from, tag }, queue, buffer, |calls, memory| {
            calls.receive(&memory.receive, &(0..count), from);
        })
    }

    fn start_redistribution(
        &self,
        redistribution: &Arc<Redistribution>,
        buffers: RedistributionBuffers<Buffer<T>>,
        item_len: usize,
        queue: &mut Stream,
    ) -> Result<NcclRedistributionRequest<T>> {
        self.start_moves(redistribution, buffers, item_len, queue)
    }
}

fn call<T: Element>(operation: Operation) -> Call {
    Call { operation, element: Some(T::TYPE) }
}

/// Returns the elements of each rank in a buffer with these counts.
fn ranges(counts: &[usize]) -> Vec<Range<usize>> {
    let mut end = 0;
    let range = |count: &usize| {
        end += count;
        end - count..end
    };
    counts.iter().map(range).collect()
}
