//! The traits that every backend implements. A *backend* implements them for one kind of rank:
//! threads, processes of MPI, or processes with one GPU each.

use std::mem;
use std::sync::Arc;

use crate::{Element, Exchanged, Redistribution, RedistributionBuffers, ReduceOp, Request, Result};

/// A set of ranks that can synchronize and be divided, as an MPI communicator. Its methods do not
/// depend on an element type; [`Communicator`] adds the transfer of data.
///
/// Ranks are numbered from 0 to `size() - 1` within the group. All members make the same collective
/// calls on a group in the same order. Groups are independent of each other. A rank in several
/// overlapping groups either calls their blocking collectives in an order that all ranks agree on,
/// or starts all of them by the `start_` methods before it waits for any.
pub trait Group: Sized {
    /// Queue for enqueued work: `()` for a backend that works on the calling thread, or a stream of
    /// a device. Operations are enqueued in it.
    type Queue;

    /// Handle of a started [`barrier`](Group::barrier).
    type BarrierRequest: Request<Output = ()>;

    /// Returns this rank's number in the group.
    fn rank(&self) -> usize;

    /// Returns the number of ranks in the group.
    fn size(&self) -> usize;

    /// Divides the group: ranks with the same `color` form a new group, ordered by `key` and then
    /// by rank. A rank with color `None` gets no group. Collective over the whole group, and
    /// blocking.
    ///
    /// Every split creates new groups, independent of all others over the same ranks.
    ///
    /// # Errors
    /// The error of the collective call, such as [`Error::TimedOut`](crate::Error::TimedOut).
    fn split(&self, color: Option<u32>, key: i32) -> Result<Option<Self>>;

    /// Returns the subgroup of `ranks` (numbered in this group), in the given order. Only its
    /// members call it.
    ///
    /// Groups are cached: the same list returns a handle of the same group, and the collectives on
    /// all handles form one sequence. If ranks are processes, the first call may block until all
    /// members have made it. Ranks that create several groups must create them in the same order.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`](crate::Error::NoSuchRank) if a listed rank is not in this group,
    /// [`Error::DuplicateRank`](crate::Error::DuplicateRank) if a rank is listed twice,
    /// [`Error::NotAMember`](crate::Error::NotAMember) if the caller is not listed, and the errors
    /// of the backend if members are processes.
    fn group(&self, ranks: &[usize]) -> Result<Self>;

    /// Starts a [`barrier`](Group::barrier) and returns without waiting for other ranks.
    ///
    /// # Errors
    /// The error of the group if an earlier operation has failed it, or of the backend.
    fn start_barrier(&self, queue: &mut Self::Queue) -> Result<Self::BarrierRequest>;

    /// Waits until every rank of the group has called it.
    ///
    /// # Errors
    /// The error of the operation, such as [`Error::TimedOut`](crate::Error::TimedOut).
    fn barrier(&self, queue: &mut Self::Queue) -> Result<()> {
        self.start_barrier(queue)?.wait()
    }
}

/// A [`Group`] whose ranks exchange elements of type `T`.
///
/// Every operation has two forms: one starts it and takes its buffers, the other also waits and
/// works on borrowed buffers. Sent data does not change; `send` is `&mut` because the operation
/// owns the buffer until it completes. If a method that waits returns an error, its buffers are
/// left empty (`Default`).
///
/// Collectives are matched by the order in which each rank starts them. Messages are matched by
/// sender, receiver, tag and order. All ranks pass the same operation, lengths, root and element
/// type. Backends that compare calls report a difference on every rank.
///
/// Errors of all operations: [`Error::WrongLength`](crate::Error::WrongLength) if lengths do not
/// fit each other, [`Error::NoSuchRank`](crate::Error::NoSuchRank) for a root or peer outside of
/// the group, [`Error::Mismatch`](crate::Error::Mismatch),
/// [`Error::RankFailed`](crate::Error::RankFailed), [`Error::TimedOut`](crate::Error::TimedOut),
/// and the errors of the backend. A call returns them when it starts the operation or when it
/// waits.
pub trait Communicator<T: Element>: Group {
    /// Memory that the backend can send from and receive into. The default is empty and replaces a
    /// buffer that an operation owns.
    type Buffer: Default;

    /// Handle of a started operation on one buffer.
    type Request: Request<Output = Self::Buffer>;

    /// Handle of a started operation that reads one buffer and fills another.
    type ExchangeRequest: Request<Output = Exchanged<Self::Buffer>>;

    /// Handle of a started [redistribution](Communicator::start_redistribution).
    type RedistributionRequest: Request<Output = RedistributionBuffers<Self::Buffer>>;

    /// Starts an [`all_reduce`](Communicator::all_reduce).
    fn start_all_reduce(
        &self,
        buffer: Self::Buffer,
        op: ReduceOp,
        queue: &mut Self::Queue,
    ) -> Result<Self::Request>;

    /// Starts a [`broadcast`](Communicator::broadcast).
    fn start_broadcast(
        &self,
        buffer: Self::Buffer,
        root: usize,
        queue: &mut Self::Queue,
    ) -> Result<Self::Request>;

    /// Starts an [`all_gather`](Communicator::all_gather).
    fn start_all_gather(
        &self,
        send: Self::Buffer,
        receive: Self::Buffer,
        queue: &mut Self::Queue,
    ) -> Result<Self::ExchangeRequest>;

    /// Starts a [`reduce_scatter`](Communicator::reduce_scatter).
    fn start_reduce_scatter(
        &self,
        send: Self::Buffer,
        receive: Self::Buffer,
        op: ReduceOp,
        queue: &mut Self::Queue,
    ) -> Result<Self::ExchangeRequest>;

    /// Starts an [`all_to_all_v`](Communicator::all_to_all_v).
    fn start_all_to_all_v(
        &self,
        send: Self::Buffer,
        send_counts: &[usize],
        receive: Self::Buffer,
        receive_counts: &[usize],
        queue: &mut Self::Queue,
    ) -> Result<Self::ExchangeRequest>;

    /// Starts a [`send`](Communicator::send).
    fn start_send(
        &self,
        buffer: Self::Buffer,
        to: usize,
        tag: u32,
        queue: &mut Self::Queue,
    ) -> Result<Self::Request>;

    /// Starts a [`receive`](Communicator::receive).
    fn start_receive(
        &self,
        buffer: Self::Buffer,
        from: usize,
        tag: u32,
        queue: &mut Self::Queue,
    ) -> Result<Self::Request>;

    /// Starts to move items from the caller's box of a redistribution's source layout to its box of
    /// the target layout. Every rank of [`redistribution.ranks()`](Redistribution::ranks) calls it.
    ///
    /// `self` is the group of those ranks in that order. The boxes are row-major arrays of items of
    /// `item_len` elements each. The input is read until the request is complete, and does not
    /// change. Items that stay on their rank are copied locally.
    ///
    /// # Errors
    /// [`Error::WrongGroup`](crate::Error::WrongGroup) if the group is not of
    /// `redistribution.ranks()`, [`Error::WrongShard`](crate::Error::WrongShard) if a buffer does
    /// not have its length, [`Error::ArrayTooLarge`](crate::Error::ArrayTooLarge), and the errors
    /// of [`start_all_to_all_v`](Communicator::start_all_to_all_v).
    fn start_redistribution(
        &self,
        redistribution: &Arc<Redistribution>,
        buffers: RedistributionBuffers<Self::Buffer>,
        item_len: usize,
        queue: &mut Self::Queue,
    ) -> Result<Self::RedistributionRequest>;

    /// Moves items between two layouts: see
    /// [`start_redistribution`](Communicator::start_redistribution). Allocates no memory for
    /// elements.
    fn redistribute(
        &self,
        redistribution: &Arc<Redistribution>,
        buffers: &mut RedistributionBuffers<Self::Buffer>,
        item_len: usize,
        queue: &mut Self::Queue,
    ) -> Result<()> {
        *buffers = self.start_redistribution(redistribution, mem::take(buffers), item_len, queue)?.wait()?;
        Ok(())
    }

    /// Replaces every rank's buffer by the element-wise reduction of all of them. The result is
    /// bitwise identical on all ranks.
    fn all_reduce(&self, buffer: &mut Self::Buffer, op: ReduceOp, queue: &mut Self::Queue) -> Result<()> {
        *buffer = self.start_all_reduce(mem::take(buffer), op, queue)?.wait()?;
        Ok(())
    }

    /// Copies the buffer of rank `root` to every rank.
    fn broadcast(&self, buffer: &mut Self::Buffer, root: usize, queue: &mut Self::Queue) -> Result<()> {
        *buffer = self.start_broadcast(mem::take(buffer), root, queue)?.wait()?;
        Ok(())
    }

    /// Fills every rank's `receive` with the concatenated `send` buffers of ranks 0, 1, ... All
    /// send buffers have the same length *n*; `receive` has `size() * n` elements.
    fn all_gather(
        &self,
        send: &mut Self::Buffer,
        receive: &mut Self::Buffer,
        queue: &mut Self::Queue,
    ) -> Result<()> {
        let request = self.start_all_gather(mem::take(send), mem::take(receive), queue)?;
        give_back(request, send, receive)
    }

    /// Reduces all ranks' `send` buffers element by element and gives each rank its chunk of the
    /// result: rank `r` gets elements `r * n` to `(r + 1) * n`. `receive` has *n* elements and
    /// `send` has `size() * n`.
    fn reduce_scatter(
        &self,
        send: &mut Self::Buffer,
        receive: &mut Self::Buffer,
        op: ReduceOp,
        queue: &mut Self::Queue,
    ) -> Result<()> {
        let request = self.start_reduce_scatter(mem::take(send), mem::take(receive), op, queue)?;
        give_back(request, send, receive)
    }

    /// Sends `send_counts[r]` elements to each rank `r` and receives `receive_counts[r]` elements
    /// from it. Both buffers hold the chunks of ranks 0, 1, ... one after another. Counts may be
    /// zero.
    fn all_to_all_v(
        &self,
        send: &mut Self::Buffer,
        send_counts: &[usize],
        receive: &mut Self::Buffer,
        receive_counts: &[usize],
        queue: &mut Self::Queue,
    ) -> Result<()> {
        let request =
            self.start_all_to_all_v(mem::take(send), send_counts, mem::take(receive), receive_counts, queue)?;
        give_back(request, send, receive)
    }

    /// Sends the buffer to rank `to`. May block until the receiver receives: if two ranks send to
    /// each other, at least one must use [`start_send`](Communicator::start_send) or
    /// [`start_receive`](Communicator::start_receive).
    fn send(&self, buffer: &mut Self::Buffer, to: usize, tag: u32, queue: &mut Self::Queue) -> Result<()> {
        *buffer = self.start_send(mem::take(buffer), to, tag, queue)?.wait()?;
        Ok(())
    }

    /// Fills the buffer with the next message from rank `from` with `tag`, which must have the
    /// buffer's length.
    fn receive(
        &self,
        buffer: &mut Self::Buffer,
        from: usize,
        tag: u32,
        queue: &mut Self::Queue,
    ) -> Result<()> {
        *buffer = self.start_receive(mem::take(buffer), from, tag, queue)?.wait()?;
        Ok(())
    }
}

fn give_back<B>(request: impl Request<Output = Exchanged<B>>, send: &mut B, receive: &mut B) -> Result<()> {
    let buffers = request.wait()?;
    *send = buffers.send;
    *receive = buffers.receive;
    Ok(())
}
