//! Implementation of the communicator traits for MPI. A group has an *identifier*, which is a
//! number on this rank only.

use std::sync::Arc;

use super::abort;
use super::buffers::Buffers;
use super::group_creation::create;
use super::group_description::GroupDescription;
use super::redistribution::MpiRedistributionRequest;
use super::request::{MpiBarrierRequest, MpiExchangeRequest, MpiOperation, MpiRequest};
use super::shared_operations::SharedOperations;
use crate::membership::{index_in_subgroup, ranks_with_color};
use crate::rank_moves::moves_of;
use crate::{
    Call, Communicator, Element, Exchanged, Group, HostBuffer, Operation, Redistribution,
    RedistributionBuffers, ReduceOp, Result,
};

/// Handle of a group of processes, held by one rank.
///
/// Clones and subgroups belong to the same rank. Several threads may use them at once if each
/// group's collectives have the same order on all ranks. An operation makes progress only while
/// some thread of the process polls or waits for any request: a rank that is busy elsewhere delays
/// the others.
///
/// Half-precision numbers can be moved but not reduced. The maximum or minimum of a number and a
/// NaN may be either. Sums of floats are the same on all ranks. Small all-reduces (at most 16 KiB
/// from a rank to all others together) are summed in the order of the ranks, as between threads.
/// Others are summed in an order that MPI chooses by the length and the size of the group.
#[derive(Debug)]
pub struct MpiCommunicator {
    shared: Arc<SharedOperations>,
    group: usize,
    rank: usize,
    size: usize,
}

impl MpiCommunicator {
    /// Creates a handle of the group with identifier `group`, in which this rank has number `rank`.
    /// The caller has counted the handle by `PendingOperations::retain`.
    pub(super) fn new(shared: Arc<SharedOperations>, group: usize, rank: usize, size: usize) -> Self {
        Self { shared, group, rank, size }
    }

    fn start<T: Element>(
        &self,
        operation: Operation,
        element: Option<crate::ElementType>,
        send: HostBuffer<T>,
        receive: HostBuffer<T>,
    ) -> Result<MpiOperation<T>> {
        self.start_with(operation, element, Buffers::new(Exchanged { send, receive }))
    }

    fn start_with<T: Element>(
        &self,
        operation: Operation,
        element: Option<crate::ElementType>,
        buffers: Buffers,
    ) -> Result<MpiOperation<T>> {
        let id = self.shared.operations().start(self.group, Call { operation, element }, buffers)?;
        Ok(MpiOperation::new(Arc::clone(&self.shared), id))
    }

    fn start_on_one<T: Element>(&self, operation: Operation, buffer: HostBuffer<T>) -> Result<MpiRequest<T>> {
        self.start(operation, Some(T::TYPE), HostBuffer::default(), buffer).map(MpiRequest)
    }

    fn start_on_two<T: Element>(
        &self,
        operation: Operation,
        send: HostBuffer<T>,
        receive: HostBuffer<T>,
    ) -> Result<MpiExchangeRequest<T>> {
        self.start(operation, Some(T::TYPE), send, receive).map(MpiExchangeRequest)
    }

    fn subgroup(&self, split: Option<u64>, ranks: &[usize], place: usize) -> Result<Self> {
        let description = GroupDescription { parent: self.group, split, ranks: ranks.to_vec() };
        let group = create(&self.shared, &description, place)?;
        Ok(Self::new(Arc::clone(&self.shared), group, place, ranks.len()))
    }
}

impl Clone for MpiCommunicator {
    fn clone(&self) -> Self {
        self.shared.operations().retain(self.group);
        Self::new(Arc::clone(&self.shared), self.group, self.rank, self.size)
    }
}

impl Drop for MpiCommunicator {
    fn drop(&mut self) {
        abort::abort_if_panicking();
        self.shared.operations().release(self.group);
    }
}

impl Group for MpiCommunicator {
    type Queue = ();
    type BarrierRequest = MpiBarrierRequest;

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn split(&self, color: Option<u32>, key: i32) -> Result<Option<Self>> {
        let choice = vec![color.map_or(-1, i64::from), i64::from(key)];
        let receive = vec![0; 2 * self.size];
        let (sequence, pending) = {
            let buffers = Buffers::new(Exchanged { send: choice.into(), receive: receive.into() });
            let mut operations = self.shared.operations();
            let sequence = operations.groups[self.group].next_sequence;
            let call = Call { operation: Operation::Split, element: None };
            let id = operations.start(self.group, call, buffers)?;
            (sequence, MpiOperation::<i64>::new(Arc::clone(&self.shared), id))
        };
        let choices = pending.wait()?.receive;
        let Some(color) = color else { return Ok(None) };

        let choices = choices.chunks_exact(2).map(|choice| (choice[0], choice[1]));
        let ranks = ranks_with_color(choices, i64::from(color));
        let place = ranks.iter().position(|&rank| rank == self.rank);
        place.map(|place| self.subgroup(Some(sequence), &ranks, place)).transpose()
    }

    fn group(&self, ranks: &[usize]) -> Result<Self> {
        let place = index_in_subgroup(ranks, self.rank, self.size)?;
        self.subgroup(None, ranks, place)
    }

    fn start_barrier(&self, (): &mut ()) -> Result<MpiBarrierRequest> {
        self.start(Operation::Barrier, None, HostBuffer::default(), HostBuffer::default())
            .map(MpiBarrierRequest)
    }
}

impl<T: Element> Communicator<T> for MpiCommunicator {
    type Buffer = HostBuffer<T>;
    type Request = MpiRequest<T>;
    type ExchangeRequest = MpiExchangeRequest<T>;
    type RedistributionRequest = MpiRedistributionRequest<T>;

    fn start_all_reduce(&self, buffer: HostBuffer<T>, op: ReduceOp, (): &mut ()) -> Result<MpiRequest<T>> {
        self.start_on_one(Operation::AllReduce { count: buffer.len(), op }, buffer)
    }

    fn start_broadcast(&self, buffer: HostBuffer<T>, root: usize, (): &mut ()) -> Result<MpiRequest<T>> {
        self.start_on_one(Operation::Broadcast { count: buffer.len(), root }, buffer)
    }

    fn start_all_gather(
        &self,
        send: HostBuffer<T>,
        receive: HostBuffer<T>,
        (): &mut (),
    ) -> Result<MpiExchangeRequest<T>> {
        self.start_on_two(Operation::AllGather { count: send.len() }, send, receive)
    }

    fn start_reduce_scatter(
        &self,
        send: HostBuffer<T>,
        receive: HostBuffer<T>,
        op: ReduceOp,
        (): &mut (),
    ) -> Result<MpiExchangeRequest<T>> {
        self.start_on_two(Operation::ReduceScatter { count: receive.len(), op }, send, receive)
    }

    fn start_all_to_all_v(
        &self,
        send: HostBuffer<T>,
        send_counts: &[usize],
        receive: HostBuffer<T>,
        receive_counts: &[usize],
        (): &mut (),
    ) -> Result<MpiExchangeRequest<T>> {
        let (send_counts, receive_counts) = (send_counts.to_vec(), receive_counts.to_vec());
        self.start_on_two(Operation::AllToAllV { send_counts, receive_counts }, send, receive)
    }

    fn start_send(&self, buffer: HostBuffer<T>, to: usize, tag: u32, (): &mut ()) -> Result<MpiRequest<T>> {
        self.start_on_one(Operation::Send { count: buffer.len(), to, tag }, buffer)
    }

    fn start_receive(
        &self,
        buffer: HostBuffer<T>,
        from: usize,
        tag: u32,
        (): &mut (),
    ) -> Result<MpiRequest<T>> {
        self.start_on_one(Operation::Receive { count: buffer.len(), from, tag }, buffer)
    }

    fn start_redistribution(
        &self,
        redistribution: &Arc<Redistribution>,
        buffers: RedistributionBuffers<HostBuffer<T>>,
        item_len: usize,
        (): &mut (),
    ) -> Result<Self::RedistributionRequest> {
        let moves = moves_of(self, redistribution, &buffers, item_len, HostBuffer::len)?;
        let [send_counts, receive_counts] =
            [&moves.sent, &moves.received].map(|chunks| chunks.counts(self.size));
        let operation = Operation::AllToAllV { send_counts, receive_counts };
        MpiRedistributionRequest::start(moves, buffers, self.size, |buffers, starts| {
            self.start_with(operation, Some(T::TYPE), Buffers::new(buffers).with_chunks_at(starts))
        })
    }
}
