//! The two traits that every backend implements.

use std::mem;

use crate::{Element, Exchanged, Redistribution, RedistributionRequest, ReduceOp, Request, Result};

/// A set of ranks that can synchronize and be divided further: what does not depend on the type of the elements. It is what MPI
/// calls a communicator; [`Communicator`] adds the transfer of data.
///
/// A rank is counted from 0 to `size() - 1` within its group. All members make the same collective calls on a group in
/// the same order; groups are independent of each other. A rank in several overlapping groups calls their blocking
/// collectives in an order on which all ranks agree; otherwise it starts them all by the `start_` methods before it waits
/// for any of them.
pub trait Group: Sized {
    /// Where the work is enqueued: `()` for a backend that works on the calling thread, a stream on a device.
    type Queue;

    /// A started [`barrier`](Group::barrier).
    type BarrierRequest: Request<Output = ()>;

    /// This rank's place in the group.
    fn rank(&self) -> usize;

    /// How many ranks the group has.
    fn size(&self) -> usize;

    /// Divides the group: ranks that give the same `color` form a new group, ordered by `key` and then by rank. A rank
    /// that gives `None` gets no group. Collective over the whole group, and blocking.
    ///
    /// Each split makes new groups, independent of all others over the same ranks.
    fn split(&self, color: Option<u32>, key: i32) -> Result<Option<Self>>;

    /// The subgroup of `ranks` (counted in this group), in the order given. Only its members call it.
    ///
    /// Cached: the same list returns a handle of the same group, and collectives on all handles are matched as one sequence.
    /// Where ranks are processes, the first call may block until all members have made it; ranks that create several groups
    /// then create them in the same order.
    ///
    /// # Errors
    /// A rank out of range or listed twice, and a caller that is not listed.
    fn group(&self, ranks: &[usize]) -> Result<Self>;

    /// Starts a [`barrier`](Group::barrier).
    fn start_barrier(&self, queue: &mut Self::Queue) -> Result<Self::BarrierRequest>;

    /// Returns when every rank of the group has called it.
    fn barrier(&self, queue: &mut Self::Queue) -> Result<()> {
        self.start_barrier(queue)?.wait()
    }
}

/// A [`Group`] whose ranks exchange elements of type `T`.
///
/// Every operation has a form that starts it and takes its buffers, and a form that also waits and works on borrowed
/// buffers. What was sent comes back unchanged: `send` is `&mut` because the operation owns it meanwhile. If a method that
/// waits returns an error, the buffers passed to it are left empty (`Default`).
///
/// Collectives are matched by the order in which each rank starts them, messages by sender, receiver, tag and order.
/// All ranks give the same operation, lengths, root and element type; backends that can compare them report a
/// difference on every rank.
pub trait Communicator<T: Element>: Group {
    /// Memory that the backend can send from and receive into. The default is empty and stands in for a buffer that an
    /// operation owns.
    type Buffer: Default;

    /// A started operation on one buffer.
    type Request: Request<Output = Self::Buffer>;

    /// A started operation that reads one buffer and fills another.
    type ExchangeRequest: Request<Output = Exchanged<Self::Buffer>>;

    /// A started [redistribution](Communicator::start_redistribution).
    type RedistributionRequest: RedistributionRequest<Buffer = Self::Buffer>;

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

    /// Starts to move samples from the caller's shard of a redistribution's source partition to its shard of the target
    /// partition; every rank of [`redistribution.ranks()`](Redistribution::ranks) calls it.
    ///
    /// This is the group of those ranks in that order. `input` holds the caller's shard before, samples of `sample_len`
    /// elements one after another, and may be overwritten once this returns, on a device by work that is enqueued later.
    /// Samples that stay on their rank are copied locally; when nothing moves at all, no rank communicates.
    ///
    /// For gradients, the same call on [`reversed`](Redistribution::reversed) takes the way back.
    ///
    /// # Errors
    /// A group of another size than `redistribution.ranks()`, an `input` that is not the shard's length, and whatever
    /// all-to-all-v gives.
    fn start_redistribution(
        &self,
        redistribution: &Redistribution,
        input: &Self::Buffer,
        sample_len: usize,
        queue: &mut Self::Queue,
    ) -> Result<Self::RedistributionRequest>;

    /// Replaces every rank's buffer by the element-wise reduction of all of them. The result is the same to the bit on
    /// all ranks.
    fn all_reduce(&self, buffer: &mut Self::Buffer, op: ReduceOp, queue: &mut Self::Queue) -> Result<()> {
        *buffer = self.start_all_reduce(mem::take(buffer), op, queue)?.wait()?;
        Ok(())
    }

    /// Copies the buffer of rank `root` to every rank's.
    fn broadcast(&self, buffer: &mut Self::Buffer, root: usize, queue: &mut Self::Queue) -> Result<()> {
        *buffer = self.start_broadcast(mem::take(buffer), root, queue)?.wait()?;
        Ok(())
    }

    /// Fills every rank's `receive` with the `send` buffers of ranks 0, 1, ... one after another. All send buffers
    /// have the same length, and `receive` is `size()` times as long.
    fn all_gather(
        &self,
        send: &mut Self::Buffer,
        receive: &mut Self::Buffer,
        queue: &mut Self::Queue,
    ) -> Result<()> {
        let request = self.start_all_gather(mem::take(send), mem::take(receive), queue)?;
        give_back(request, send, receive)
    }

    /// Reduces all ranks' `send` buffers element by element and gives each rank its chunk of the result: rank `r` gets
    /// elements `r * n` to `(r + 1) * n`, where `n` is the length of `receive` and `send` is `size()` times as long.
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

    /// Sends `send_counts[r]` elements to each rank `r` and receives `receive_counts[r]` from it. Both buffers hold
    /// the chunks of ranks 0, 1, ... one after another; counts may be zero.
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

    /// Sends the buffer to rank `to`. May block until the receiver receives: if two ranks send to each other, at least one
    /// has to use [`start_send`](Communicator::start_send) or [`start_receive`](Communicator::start_receive).
    fn send(&self, buffer: &mut Self::Buffer, to: usize, tag: u32, queue: &mut Self::Queue) -> Result<()> {
        *buffer = self.start_send(mem::take(buffer), to, tag, queue)?.wait()?;
        Ok(())
    }

    /// Fills the buffer with the next message from rank `from` under `tag`, which has to be as long as the buffer.
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
