//! A rank's communicator of a group.

use std::sync::Arc;

use super::buffer::{NcclBuffer, NcclStream};
use super::comm::NO_COLOR;
use super::group::{GroupState, Ticket, World};
use super::launch::{Launch, NcclStep, only};
use super::request::{
    Buffers, NcclBarrierRequest, NcclExchangeRequest, NcclRedistributionRequest, NcclRequest, Pending,
};
use crate::lengths::WrongLength;
use crate::membership::{check_rank, of_one_color, place_among};
use crate::{
    Call, Communicator, Element, Error, Exchanged, Group, Operation, Redistribution, ReduceOp, Result,
};

/// One rank's communicator of a group of GPUs.
///
/// Starting an operation puts it into the stream that it is given: what is enqueued there later sees its result without
/// any wait on the host. Operations of one group go into their streams in the same order on all ranks. They can stand
/// between the launches of captured graphs; do not start them while a stream is being captured.
///
/// What NCCL does otherwise than the other backends:
/// - Calls are not compared across ranks. Ranks that call different operations, lengths or types get an error when the
///   time-out has passed at the latest, or wrong data where NCCL cannot tell; a wrong argument is an error on its own
///   rank at once, and the others time out. A started operation of a group that failed fails too.
/// - A rank that has started a collective but neither polls nor waits for anything may be taken for one that is
///   missing, and so may one whose own part was done when the others' time-out passed. The poll that finds a failure takes
///   as long as the abort and finding out which rank is missing, up to about 1 s; polls of other threads do not wait for it.
/// - `split` waits for the operations of its group that this rank has started, as NCCL asks. A split that not all
///   ranks call fails the group.
/// - Messages between two ranks are matched by their order alone, not by their tags, and a rank sends none to itself.
/// - The first operations between two ranks connect them, and starting them may wait for the other one. Two ranks that
///   send to each other use all-to-all-v, or the lower one sends first.
/// - Each group is a communicator of NCCL, which takes time and device memory to make. Operations of several groups that
///   run side by side in different streams share the device; NCCL asks for the same order of them on all ranks.
/// - Reductions are the same on all ranks and in every run on the same links, but not in the order of the ranks.
///
/// Its clones and subgroups are the same rank. Dropping the last one finalizes all communicators; after an error or in
/// a panic they are aborted. After an error the last drop on rank 0 waits until the others have received it, up to 2 s.
#[derive(Debug, Clone)]
pub struct NcclCommunicator {
    group: Arc<GroupState>,
    /// Dropped after the group, which uses it until then.
    world: Arc<World>,
}

impl NcclCommunicator {
    pub(super) fn new(world: Arc<World>, group: Arc<GroupState>) -> Self {
        Self { group, world }
    }

    /// A new stream on this rank's device.
    ///
    /// # Errors
    /// [`Error::Device`] when the driver has none.
    pub fn new_stream(&self) -> Result<NcclStream> {
        let failed = |message| Error::Device { action: "make a stream".to_owned(), message };
        self.world.settings.device.stream().map(NcclStream::new).map_err(failed)
    }

    /// Starts a collective whose buffers have the lengths that it needs, or fails.
    fn checked<T: Element>(
        &self,
        operation: Operation,
        queue: &NcclStream,
        memory: Buffers<T>,
        steps: impl FnOnce(&Buffers<T>) -> Vec<NcclStep>,
    ) -> Result<Pending<T>> {
        let (send, receive) = (memory.send.len(), memory.receive.len());
        let wrong = WrongLength::among(&operation, self.size(), send, receive).or_else(|| match &operation {
            // Ranks' calls are not compared, but what a rank sends to itself it also receives.
            Operation::AllToAllV { send_counts, receive_counts } => {
                let (kept, actual) = (send_counts[self.rank()], receive_counts[self.rank()]);
                WrongLength::of("receive counts", Some(kept), actual)
            }
            _ => None,
        });
        if let Some(wrong) = wrong {
            return Err(wrong.error(self.world.rank, &Call { operation, element: Some(T::TYPE) }));
        }
        self.collective(operation, queue, memory, steps)
    }

    /// Starts a collective, whose steps keep to the memory.
    pub(super) fn collective<T: Element>(
        &self,
        operation: Operation,
        queue: &NcclStream,
        memory: Buffers<T>,
        steps: impl FnOnce(&Buffers<T>) -> Vec<NcclStep>,
    ) -> Result<Pending<T>> {
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
        self.launch(call, Some(peer), queue).start(only(buffer), &[step]).map(NcclRequest)
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
        // First of all, so that a wrong argument leaves this rank's count what the others' is.
        let sequence = group.next_call();
        let color = match color.map(i32::try_from) {
            None => NO_COLOR,
            Some(Ok(color)) => color,
            Some(Err(_)) => {
                let message = format!("a color is at most {}", i32::MAX);
                return Err(self.world.library_error(&call, message));
            }
        };
        // NCCL may deadlock if it divides a communicator with operations under way.
        group.pending.wait(self.world.settings.wait)?;
        // NCCL reports neither which ranks are in the new group nor which did not call the split.
        let name = format!("{} split {sequence}", group.id);
        let choice = [color.to_be_bytes(), key.to_be_bytes()].concat();
        let timeout = self.world.settings.timeout;
        let choices =
            self.world.store.gather_all_or_none(&name, &group.members, group.rank, &choice, timeout);
        let choices = choices.map_err(|unmet| group.fail_gather(&self.world, unmet, &call))?;
        let Some(comm) = group
            .comm
            .split(color, key)
            .map_err(|failure| group.fail(&self.world, &failure, &call, &Ticket::Collective(sequence)))?
        else {
            return Ok(None);
        };

        let choices = choices.iter().map(|choice| {
            let (color, key) = choice.split_first_chunk::<4>()?;
            Some((i32::from_be_bytes(*color), i32::from_be_bytes(*key.first_chunk()?)))
        });
        let ranks = of_one_color(choices.map(|choice| choice.unwrap_or((NO_COLOR, 0))), color);
        let rank = ranks.iter().position(|&rank| rank == group.rank).unwrap_or(0);
        let child = GroupState::new(format!("{name} color {color}"), self.members(&ranks), rank, comm);
        Ok(Some(Self::new(Arc::clone(&self.world), Arc::new(child))))
    }

    fn group(&self, ranks: &[usize]) -> Result<Self> {
        let rank = place_among(ranks, self.rank(), self.size())?;
        let id = format!("{} {ranks:?}", self.group.id);
        let group = self.world.listed(&id, || {
            let call = Call { operation: Operation::Group { ranks: ranks.to_vec() }, element: None };
            self.world.make_group(id.clone(), self.members(ranks), rank, &call)
        })?;
        Ok(Self::new(Arc::clone(&self.world), group))
    }

    fn start_barrier(&self, queue: &mut NcclStream) -> Result<NcclBarrierRequest> {
        // NCCL has none: no rank has the sum before all ranks have given their element.
        let element = NcclBuffer::<u8>::uninitialised(1, queue)?;
        let call = Call { operation: Operation::Barrier, element: None };
        let step = NcclStep::AllReduce { buffer: element.at(0), count: 1, op: ReduceOp::Max };
        self.launch(call, None, queue).start(only(element), &[step]).map(NcclBarrierRequest)
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
        let steps =
            |memory: &Buffers<T>| vec![NcclStep::AllReduce { buffer: memory.receive.at(0), count, op }];
        self.collective(Operation::AllReduce { count, op }, queue, only(buffer), steps).map(NcclRequest)
    }

    fn start_broadcast(
        &self,
        buffer: NcclBuffer<T>,
        root: usize,
        queue: &mut NcclStream,
    ) -> Result<NcclRequest<T>> {
        check_rank(root, self.size())?;
        let count = buffer.len();
        let steps =
            |memory: &Buffers<T>| vec![NcclStep::Broadcast { buffer: memory.receive.at(0), count, root }];
        self.collective(Operation::Broadcast { count, root }, queue, only(buffer), steps).map(NcclRequest)
    }

    fn start_all_gather(
        &self,
        send: NcclBuffer<T>,
        receive: NcclBuffer<T>,
        queue: &mut NcclStream,
    ) -> Result<NcclExchangeRequest<T>> {
        let count = send.len();
        let steps = |memory: &Buffers<T>| {
            vec![NcclStep::AllGather { send: memory.send.at(0), receive: memory.receive.at(0), count }]
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
        let steps = |memory: &Buffers<T>| {
            vec![NcclStep::ReduceScatter {
                send: memory.send.at(0),
                receive: memory.receive.at(0),
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
        let steps = |memory: &Buffers<T>| {
            let (mut sent, mut received) = (0, 0);
            let mut steps = Vec::new();
            for (peer, (&send_count, &receive_count)) in send_counts.iter().zip(receive_counts).enumerate() {
                let (from, to) = (memory.send.at(sent), memory.receive.at(received));
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
        let step = NcclStep::Send { buffer: buffer.at(0), count, to };
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
        let step = NcclStep::Receive { buffer: buffer.at(0), count, from };
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
