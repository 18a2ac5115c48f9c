//! Redistribution within device memory.

use std::ops::Range;

use cuda::{Buffer, RowCopy, Rows, Stream};

use super::communicator::NcclCommunicator;
use super::launch::Moment;
use super::request::NcclRedistributionRequest;
use crate::rank_moves::{Chunks, RankMoves, moves_of};
use crate::region::{RegionCopy, Repetition};
use crate::{Call, Element, Group, Operation, Redistribution, RedistributionBuffers, Result};

impl NcclCommunicator {
    /// [Starts](crate::Communicator::start_redistribution) to move items between buffers of
    /// devices. Elements that are not consecutive are packed by copies within the device. Work that
    /// is enqueued later in the same stream sees the result.
    ///
    /// # Errors
    /// As [`start_redistribution`](crate::Communicator::start_redistribution).
    pub(super) fn start_moves<T: Element>(
        &self,
        redistribution: &Redistribution,
        buffers: RedistributionBuffers<Buffer<T>>,
        item_len: usize,
        queue: &Stream,
    ) -> Result<NcclRedistributionRequest<T>> {
        let moves = moves_of(self, redistribution, &buffers, item_len, Buffer::len)?;
        let RankMoves { sent, received, kept, .. } = &moves;
        let [send_counts, receive_counts] = [sent, received].map(|chunks| chunks.counts(self.size()));
        let operation = Operation::AllToAllV { send_counts, receive_counts };
        let call = Call { operation, element: Some(T::TYPE) };
        let copies = |queue: &Stream, memory: &RedistributionBuffers<Buffer<T>>, moment| {
            let RedistributionBuffers { input, output, packed: [packed, arrived] } = memory;
            let (chunks, from, to) = match moment {
                Moment::BeforeCalls => {
                    enqueue(kept, input, output, queue)?;
                    (sent, input, packed)
                }
                Moment::AfterCalls => (received, arrived, output),
            };
            let mut copies = chunks.copies.iter().filter(|_| !chunks.is_direct);
            copies.try_for_each(|(_, copy)| enqueue(copy, from, to, queue))
        };
        let pending = self.collective(call, queue, buffers, copies, |calls, memory| {
            let RedistributionBuffers { input, output, packed: [packed, arrived] } = memory;
            let send = if sent.is_direct { input } else { packed };
            for (peer, range) in ranges(sent, |copy| if sent.is_direct { copy.from } else { copy.to }) {
                calls.send(send, &range, peer);
            }
            let receive = if received.is_direct { output } else { arrived };
            for (peer, range) in ranges(received, |copy| if received.is_direct { copy.to } else { copy.from })
            {
                calls.receive(receive, &range, peer);
            }
        })?;
        Ok(NcclRedistributionRequest(pending))
    }
}

/// Returns the elements of each chunk in its buffer, with its rank.
fn ranges<'c>(
    chunks: &'c Chunks,
    start: impl Fn(&RegionCopy) -> usize + 'c,
) -> impl Iterator<Item = (usize, Range<usize>)> + 'c {
    chunks.copies.iter().map(move |(peer, copy)| (*peer, start(copy)..start(copy) + copy.elements()))
}

/// Enqueues a copy within the device.
fn enqueue<T: Element>(
    copy: &RegionCopy,
    from: &Buffer<T>,
    to: &Buffer<T>,
    queue: &Stream,
) -> cuda::Result<()> {
    if copy.run == 0 {
        return Ok(());
    }
    if copy.loops.is_empty() {
        return to.enqueue_copy(queue, copy.to, from, copy.from..copy.from + copy.run);
    }
    // A copy of CUDA has at most two of the loops.
    let (outer, inner) = copy.loops.split_at(copy.loops.len().saturating_sub(2));
    let none = Repetition { count: 1, from_distance: 0, to_distance: 0 };
    let [slices, rows] = match inner {
        [slices, rows] => [*slices, *rows],
        _ => [none, inner[0]],
    };
    let slices_of = RegionCopy { loops: outer.to_vec(), ..copy.clone() };
    let mut enqueued = Ok(());
    slices_of.for_each_run(|first_from, first_to, len| {
        let place = |first, distance: fn(&Repetition) -> usize| Rows {
            first,
            distances: [distance(&slices), distance(&rows)],
        };
        let copy = RowCopy {
            counts: [slices.count, rows.count],
            len,
            from: place(first_from, |repetition| repetition.from_distance),
            to: place(first_to, |repetition| repetition.to_distance),
        };
        if enqueued.is_ok() {
            enqueued = to.enqueue_copy_rows(queue, from, &copy);
        }
    });
    enqueued
}
