//! Redistribution by an all-to-all-v. Chunks of consecutive elements are sent and received in
//! place; others are packed.

use std::time::{Duration, Instant};

use super::request::MpiOperation;
use crate::rank_moves::{Chunks, RankMoves};
use crate::region::RegionCopy;
use crate::request::impl_requests;
use crate::{Element, Exchanged, HostBuffer, RedistributionBuffers, Request, Result};

/// Pending redistribution.
#[derive(Debug)]
#[must_use = "an operation gives its buffers back when it is waited for"]
pub struct MpiRedistributionRequest<T: Element> {
    pending: MpiOperation<T>,
    /// The buffers that the all-to-all-v does not use. The others are empty.
    others: RedistributionBuffers<HostBuffer<T>>,
    /// Whether the all-to-all-v sends, or receives, packed elements.
    is_packed: [bool; 2],
    /// The copies from the received packed elements to the output.
    unpack: Vec<RegionCopy>,
}

impl<T: Element> MpiRedistributionRequest<T> {
    /// Starts the moves of this rank in a group of `size` ranks. `start` starts an all-to-all-v
    /// between two buffers, and is given the index of the first element of each member's chunk in
    /// them.
    ///
    /// # Errors
    /// The error of `start`.
    pub(super) fn start(
        moves: RankMoves,
        mut buffers: RedistributionBuffers<HostBuffer<T>>,
        size: usize,
        start: impl FnOnce(Exchanged<HostBuffer<T>>, [Vec<usize>; 2]) -> Result<MpiOperation<T>>,
    ) -> Result<Self> {
        let RankMoves { sent, received, kept, .. } = moves;
        let is_packed = [!sent.is_direct, !received.is_direct];
        let RedistributionBuffers { input, output, packed: [packed, arrived] } = &mut buffers;
        kept.copy(input, output);
        if is_packed[0] {
            sent.copies.iter().for_each(|(_, copy)| copy.copy(input, packed));
        }
        let starts = [
            starts(&sent, size, |copy| if is_packed[0] { copy.to } else { copy.from }),
            starts(&received, size, |copy| if is_packed[1] { copy.from } else { copy.to }),
        ];
        let send = std::mem::take(if is_packed[0] { packed } else { input });
        let receive = std::mem::take(if is_packed[1] { arrived } else { output });
        let pending = start(Exchanged { send, receive }, starts)?;
        let unpack = received.copies.into_iter().filter(|_| is_packed[1]).map(|(_, copy)| copy).collect();
        Ok(Self { pending, others: buffers, is_packed, unpack })
    }
}

impl_requests!(
    @impl [T: Element] MpiRedistributionRequest<T>, RedistributionBuffers<HostBuffer<T>>, pending, |request| {
        let Self { pending, others: mut buffers, is_packed, unpack } = request;
        let Exchanged { send, receive } = pending.wait()?;
        let RedistributionBuffers { input, output, packed: [packed, arrived] } = &mut buffers;
        *(if is_packed[0] { packed } else { input }) = send;
        *(if is_packed[1] { &mut *arrived } else { &mut *output }) = receive;
        for copy in unpack {
            copy.copy(arrived, output);
        }
        Ok(buffers)
    }
);

/// Returns the index of the first element of each member's chunk.
fn starts(chunks: &Chunks, size: usize, start: impl Fn(&RegionCopy) -> usize) -> Vec<usize> {
    let mut starts = vec![0; size];
    for (place, copy) in &chunks.copies {
        starts[*place] = start(copy);
    }
    starts
}
