//! Redistribution within device memory.

use std::ops::Range;

use cuda::{Buffer, Stream};

use super::communicator::NcclCommunicator;
use super::request::{NcclBuffers, NcclExchangeRequest, NcclOperation, NcclRedistributionRequest};
use crate::host_redistribution::{check_shard, elements};
use crate::{Element, Error, Exchanged, Group, Operation, Redistribution, Result};

/// Moves of a redistribution on one rank, in elements.
struct RankMoves {
    rank: usize,
    /// Samples of the rank's target shard.
    wanted: Range<usize>,
    /// Receivers, and the elements for each in the source shard.
    sent: Vec<(usize, Range<usize>)>,
    /// Senders, and the elements from each in the target shard.
    received: Vec<(usize, Range<usize>)>,
    /// Elements that stay: in the source shard, and in the target shard.
    kept: [Range<usize>; 2],
    output_len: usize,
}

impl RankMoves {
    fn operation(&self, ranks: usize) -> Operation {
        let counts = |moves: &[(usize, Range<usize>)]| {
            let mut counts = vec![0; ranks];
            for (rank, range) in moves {
                counts[*rank] = range.len();
            }
            counts
        };
        Operation::AllToAllV { send_counts: counts(&self.sent), receive_counts: counts(&self.received) }
    }
}

impl NcclCommunicator {
    /// [Starts](crate::Communicator::start_redistribution) to move samples between buffers of
    /// devices. Moved samples are sent from a copy of `input` to new memory, from which the wait
    /// copies them to the output. Samples that stay are copied on the device.
    ///
    /// # Errors
    /// As [`start_redistribution`](crate::Communicator::start_redistribution).
    pub(super) fn redistribute<T: Element>(
        &self,
        redistribution: &Redistribution,
        input: &Buffer<T>,
        sample_len: usize,
        queue: &mut Stream,
    ) -> Result<NcclRedistributionRequest<T>> {
        let moves = self.moves(redistribution, input.len(), sample_len)?;
        let allocate =
            |len| Buffer::in_stream(queue, len).map_err(Error::in_cuda("allocate memory for samples"));
        let memory = Exchanged { send: allocate(input.len())?, receive: allocate(moves.output_len)? };
        memory
            .send
            .enqueue_copy(queue, 0, input, 0..input.len())
            .map_err(Error::in_cuda("copy the samples"))?;
        let pending = self.exchange(&moves, memory, queue)?;
        let (rank, wanted) = (moves.rank, moves.wanted);
        Ok(NcclRedistributionRequest { pending, stream: queue.clone(), rank, wanted, sample_len })
    }

    /// Like [`start_redistribution`](crate::Communicator::start_redistribution), but allocates no
    /// memory: samples are sent directly from `input` to `output`, which the request owns until it
    /// returns them. Work that is enqueued later in the same stream sees the result.
    ///
    /// # Errors
    /// As [`start_redistribution`](crate::Communicator::start_redistribution);
    /// [`Error::WrongShard`] if `output` does not have the length of the target shard.
    pub fn start_redistribution_in_place<T: Element>(
        &self,
        redistribution: &Redistribution,
        input: Buffer<T>,
        output: Buffer<T>,
        sample_len: usize,
        queue: &mut Stream,
    ) -> Result<NcclExchangeRequest<T>> {
        let moves = self.moves(redistribution, input.len(), sample_len)?;
        check_shard(moves.rank, &moves.wanted, sample_len, output.len())?;
        self.exchange(&moves, Exchanged { send: input, receive: output }, queue).map(NcclExchangeRequest)
    }

    /// Starts the moves from the send buffer to the receive buffer.
    fn exchange<T: Element>(
        &self,
        moves: &RankMoves,
        memory: NcclBuffers<T>,
        queue: &Stream,
    ) -> Result<NcclOperation<T>> {
        let [from, to] = &moves.kept;
        let operation = moves.operation(self.size());
        self.collective(operation, queue, (from.clone(), to.start), memory, |calls, memory| {
            for (peer, range) in &moves.sent {
                calls.send(&memory.send, range, *peer);
            }
            for (peer, range) in &moves.received {
                calls.receive(&memory.receive, range, *peer);
            }
        })
    }

    /// Returns this rank's moves, for an input of `input_len` elements.
    fn moves(
        &self,
        redistribution: &Redistribution,
        input_len: usize,
        sample_len: usize,
    ) -> Result<RankMoves> {
        let ranks = redistribution.ranks();
        let wrong_group = || Error::WrongGroup { ranks: ranks.to_vec(), size: self.size() };
        if self.size() != ranks.len() {
            return Err(wrong_group());
        }
        let rank = *ranks.get(self.rank()).ok_or_else(wrong_group)?;
        let held = redistribution.source().shard(rank);
        let wanted = redistribution.target().shard(rank);
        check_shard(rank, &held, sample_len, input_len)?;
        let output_len = wanted.len().checked_mul(sample_len).ok_or(Error::WrongShard {
            rank,
            samples: wanted.len(),
            sample_len,
            actual: input_len,
        })?;
        let place = |rank: usize| ranks.binary_search(&rank).map_err(|_| wrong_group());
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        for moved in redistribution.moves() {
            if moved.from_rank == rank {
                sent.push((place(moved.to_rank)?, elements(&moved.samples, held.start, sample_len)));
            }
            if moved.to_rank == rank {
                received.push((place(moved.from_rank)?, elements(&moved.samples, wanted.start, sample_len)));
            }
        }
        let kept = redistribution.kept(rank);
        let kept = [elements(&kept, held.start, sample_len), elements(&kept, wanted.start, sample_len)];
        Ok(RankMoves { rank, wanted, sent, received, kept, output_len })
    }
}
