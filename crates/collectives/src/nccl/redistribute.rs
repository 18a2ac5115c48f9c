//! Carrying a redistribution out within device memory.

use super::buffer::{NcclBuffer, NcclStream};
use super::communicator::NcclCommunicator;
use super::launch::NcclStep;
use super::request::{Buffers, NcclRedistributionRequest};
use crate::redistribute::{check_shard, elements};
use crate::{Element, Error, Exchanged, Group, Operation, Redistribution, Result};

impl NcclCommunicator {
    /// [Starts](crate::Communicator::start_redistribution) to move samples. What moves goes from its place in a copy of `input`
    /// straight to its place in new memory, and what stays is copied on the device.
    pub(super) fn redistribute<T: Element>(
        &self,
        redistribution: &Redistribution,
        input: &NcclBuffer<T>,
        sample_len: usize,
        queue: &mut NcclStream,
    ) -> Result<NcclRedistributionRequest<T>> {
        let ranks = redistribution.ranks();
        let wrong_group = || Error::WrongGroup { ranks: ranks.to_vec(), size: self.size() };
        if self.size() != ranks.len() {
            return Err(wrong_group());
        }
        let rank = *ranks.get(self.rank()).ok_or_else(wrong_group)?;
        let held = redistribution.source().shard(rank);
        let wanted = redistribution.target().shard(rank);
        check_shard(rank, &held, sample_len, input.len())?;
        let elements_of = |samples: usize| {
            let wrong = Error::WrongShard { rank, samples, sample_len, actual: input.len() };
            samples.checked_mul(sample_len).ok_or(wrong)
        };
        let output = NcclBuffer::uninitialised(elements_of(wanted.len())?, queue)?;
        let copy = NcclBuffer::uninitialised(input.len(), queue)?;

        let mut send_counts = vec![0; ranks.len()];
        let mut receive_counts = vec![0; ranks.len()];
        let place = |rank: usize| ranks.binary_search(&rank).map_err(|_| wrong_group());
        // Where the samples of each move lie in the shard, in elements, and with whom they are exchanged.
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        for moved in redistribution.moves() {
            if moved.from_rank == rank {
                let (to, range) = (place(moved.to_rank)?, elements(&moved.samples, held.start, sample_len));
                send_counts[to] = range.len();
                sent.push((to, range));
            }
            if moved.to_rank == rank {
                let (from, range) =
                    (place(moved.from_rank)?, elements(&moved.samples, wanted.start, sample_len));
                receive_counts[from] = range.len();
                received.push((from, range));
            }
        }
        let kept = redistribution.kept(rank);
        let (kept_from, kept_to) =
            (elements(&kept, held.start, sample_len), elements(&kept, wanted.start, sample_len));
        let steps = |memory: &Buffers<T>| {
            let whole = NcclStep::Copy { from: input.at(0), to: memory.send.at(0), count: memory.send.len() };
            let kept = NcclStep::Copy {
                from: memory.send.at(kept_from.start),
                to: memory.receive.at(kept_to.start),
                count: kept_from.len(),
            };
            let sends = sent.iter().map(|(to, range)| NcclStep::Send {
                buffer: memory.send.at(range.start),
                count: range.len(),
                to: *to,
            });
            let receives = received.iter().map(|(from, range)| NcclStep::Receive {
                buffer: memory.receive.at(range.start),
                count: range.len(),
                from: *from,
            });
            [whole, kept].into_iter().chain(sends).chain(receives).collect()
        };
        let operation = Operation::AllToAllV { send_counts, receive_counts };
        let pending = self.collective(operation, queue, Exchanged { send: copy, receive: output }, steps)?;
        Ok(NcclRedistributionRequest { pending, rank, wanted, sample_len })
    }
}
