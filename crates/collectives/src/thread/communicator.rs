//! Implementation of the communicator traits for threads. The *world* is the set of all ranks.

use std::sync::Arc;

use super::exchange::SPLIT_ELEMENTS;
use super::group::{MessageChannel, MessageEnd, Participant, ThreadGroup};
use super::request::{
    ThreadBarrierRequest, ThreadExchangeRequest, ThreadOperation, ThreadRedistributionRequest, ThreadRequest,
};
use super::world_state::{Presence, ThreadWorldState};
use crate::lengths::LengthMismatch;
use crate::membership::{check_rank, index_in_subgroup, ranks_with_color};
use crate::rank_moves::{box_copies, moves_of};
use crate::{
    Call, Communicator, Element, Error, Exchanged, Group, HostBuffer, Operation, Redistribution,
    RedistributionBuffers, ReduceOp, Result,
};

/// Handle of a group of threads, held by one rank.
///
/// Clones and subgroups belong to the same rank. Several threads may use them at once if each
/// group's collectives have the same order on all ranks.
#[derive(Debug, Clone)]
pub struct ThreadCommunicator {
    presence: Arc<Presence>,
    group: Arc<ThreadGroup>,
    rank: usize,
}

impl ThreadCommunicator {
    /// Creates a handle of `group` for the member with number `rank` in it. `presence` records the
    /// end of the rank when its last handle is dropped.
    pub(super) fn new(presence: Arc<Presence>, group: Arc<ThreadGroup>, rank: usize) -> Self {
        Self { presence, group, rank }
    }

    /// Returns the state shared by the ranks of the world.
    pub(super) fn world(&self) -> &Arc<ThreadWorldState> {
        &self.presence.world
    }

    fn collective<T: Element>(
        &self,
        operation: Operation,
        buffers: Exchanged<HostBuffer<T>>,
    ) -> Result<ThreadOperation<T>> {
        let wrong =
            LengthMismatch::in_group(&operation, self.size(), buffers.send.len(), buffers.receive.len());
        let call = Call { operation, element: Some(T::TYPE) };
        let invalid = wrong.map(|wrong| wrong.error(self.group.members[self.rank], &call));
        self.join(Participant::Member(self.rank), call, buffers, invalid)
    }

    fn message<T: Element>(
        &self,
        end: MessageEnd,
        channel: MessageChannel,
        operation: Operation,
        buffer: HostBuffer<T>,
    ) -> Result<ThreadRequest<T>> {
        let call = Call { operation, element: Some(T::TYPE) };
        self.join(Participant::End(end, channel), call, in_receive_buffer(buffer), None).map(ThreadRequest)
    }

    fn join<T: Element>(
        &self,
        participant: Participant,
        call: Call,
        buffers: Exchanged<HostBuffer<T>>,
        invalid: Option<Error>,
    ) -> Result<ThreadOperation<T>> {
        let world = self.world();
        let joined = self.group.join(participant, call, buffers, invalid, || world.parking.notify())?;
        Ok(ThreadOperation::new(Arc::clone(world), Arc::clone(&self.group), joined))
    }
}

/// Buffers of an operation that has only one.
fn in_receive_buffer<T>(buffer: HostBuffer<T>) -> Exchanged<HostBuffer<T>> {
    Exchanged { send: HostBuffer::default(), receive: buffer }
}

impl Group for ThreadCommunicator {
    type Queue = ();
    type BarrierRequest = ThreadBarrierRequest;

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.group.members.len()
    }

    fn split(&self, color: Option<u32>, key: i32) -> Result<Option<Self>> {
        let choice: [i64; SPLIT_ELEMENTS] = [color.map_or(-1, i64::from), i64::from(key)];
        let call = Call { operation: Operation::Split, element: None };
        let receive = vec![0; self.size() * SPLIT_ELEMENTS].into();
        let buffers = Exchanged { send: choice.to_vec().into(), receive };
        let pending = self.join::<i64>(Participant::Member(self.rank), call, buffers, None)?;
        let sequence = pending.sequence();
        let choices = pending.wait()?.receive;
        let Some(color) = color else { return Ok(None) };

        let choices = choices.chunks_exact(SPLIT_ELEMENTS).map(|choice| (choice[0], choice[1]));
        let ranks = ranks_with_color(choices, i64::from(color));
        let rank = ranks.iter().position(|&rank| rank == self.rank);
        let group = self.world().split_group((self.group.id, sequence, color), &self.group, &ranks);
        Ok(rank.map(|rank| Self::new(Arc::clone(&self.presence), group, rank)))
    }

    fn group(&self, ranks: &[usize]) -> Result<Self> {
        let rank = index_in_subgroup(ranks, self.rank, self.size())?;
        let group = self.world().cached_group(&self.group, ranks);
        Ok(Self::new(Arc::clone(&self.presence), group, rank))
    }

    fn start_barrier(&self, (): &mut ()) -> Result<ThreadBarrierRequest> {
        let call = Call { operation: Operation::Barrier, element: None };
        self.join(Participant::Member(self.rank), call, in_receive_buffer(HostBuffer::default()), None)
            .map(ThreadBarrierRequest)
    }
}

impl<T: Element> Communicator<T> for ThreadCommunicator {
    type Buffer = HostBuffer<T>;
    type Request = ThreadRequest<T>;
    type ExchangeRequest = ThreadExchangeRequest<T>;
    type RedistributionRequest = ThreadRedistributionRequest<T>;

    fn start_all_reduce(&self, buffer: HostBuffer<T>, op: ReduceOp, (): &mut ()) -> Result<ThreadRequest<T>> {
        let operation = Operation::AllReduce { count: buffer.len(), op };
        self.collective(operation, in_receive_buffer(buffer)).map(ThreadRequest)
    }

    fn start_broadcast(&self, buffer: HostBuffer<T>, root: usize, (): &mut ()) -> Result<ThreadRequest<T>> {
        // A wrong root fails on all ranks, so that one rank's mistake does not shift the others'
        // sequence.
        let invalid = check_rank(root, self.size()).err();
        let operation = Operation::Broadcast { count: buffer.len(), root };
        let call = Call { operation, element: Some(T::TYPE) };
        self.join(Participant::Member(self.rank), call, in_receive_buffer(buffer), invalid).map(ThreadRequest)
    }

    fn start_all_gather(
        &self,
        send: HostBuffer<T>,
        receive: HostBuffer<T>,
        (): &mut (),
    ) -> Result<ThreadExchangeRequest<T>> {
        let operation = Operation::AllGather { count: send.len() };
        self.collective(operation, Exchanged { send, receive }).map(ThreadExchangeRequest)
    }

    fn start_reduce_scatter(
        &self,
        send: HostBuffer<T>,
        receive: HostBuffer<T>,
        op: ReduceOp,
        (): &mut (),
    ) -> Result<ThreadExchangeRequest<T>> {
        let operation = Operation::ReduceScatter { count: receive.len(), op };
        self.collective(operation, Exchanged { send, receive }).map(ThreadExchangeRequest)
    }

    fn start_all_to_all_v(
        &self,
        send: HostBuffer<T>,
        send_counts: &[usize],
        receive: HostBuffer<T>,
        receive_counts: &[usize],
        (): &mut (),
    ) -> Result<ThreadExchangeRequest<T>> {
        let operation = Operation::AllToAllV {
            send_counts: send_counts.to_vec(),
            receive_counts: receive_counts.to_vec(),
        };
        self.collective(operation, Exchanged { send, receive }).map(ThreadExchangeRequest)
    }

    fn start_send(
        &self,
        buffer: HostBuffer<T>,
        to: usize,
        tag: u32,
        (): &mut (),
    ) -> Result<ThreadRequest<T>> {
        check_rank(to, self.size())?;
        let operation = Operation::Send { count: buffer.len(), to, tag };
        self.message(MessageEnd::Sender, MessageChannel { from: self.rank, to, tag }, operation, buffer)
    }

    fn start_receive(
        &self,
        buffer: HostBuffer<T>,
        from: usize,
        tag: u32,
        (): &mut (),
    ) -> Result<ThreadRequest<T>> {
        check_rank(from, self.size())?;
        let operation = Operation::Receive { count: buffer.len(), from, tag };
        self.message(MessageEnd::Receiver, MessageChannel { from, to: self.rank, tag }, operation, buffer)
    }

    fn start_redistribution(
        &self,
        redistribution: &Arc<Redistribution>,
        buffers: RedistributionBuffers<HostBuffer<T>>,
        item_len: usize,
        (): &mut (),
    ) -> Result<Self::RedistributionRequest> {
        moves_of(self, redistribution, &buffers, item_len, HostBuffer::len)?;
        let operation = Operation::Redistribution { copies: box_copies(redistribution, item_len) };
        let RedistributionBuffers { input, output, packed } = buffers;
        let pending = self.collective(operation, Exchanged { send: input, receive: output })?;
        Ok(ThreadRedistributionRequest { pending, packed })
    }
}
