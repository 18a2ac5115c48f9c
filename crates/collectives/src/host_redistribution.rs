//! Redistribution on host memory by an all-to-all-v.

use std::ops::Range;

use crate::{
    Communicator, Element, Error, HostBuffer, Redistribution, RedistributionRequest, Request, Result,
};

impl Redistribution {
    /// [Starts](Communicator::start_redistribution) to move the samples between buffers in host
    /// memory.
    ///
    /// # Errors
    /// As [`start_redistribution`](Communicator::start_redistribution).
    pub(crate) fn start<T, C>(
        &self,
        communicator: &C,
        input: &[T],
        sample_len: usize,
        queue: &mut C::Queue,
    ) -> Result<PendingRedistribution<T, C::ExchangeRequest>>
    where
        T: Element,
        C: Communicator<T, Buffer = HostBuffer<T>>,
    {
        let ranks = self.ranks();
        let wrong_group = || Error::WrongGroup { ranks: ranks.to_vec(), size: communicator.size() };
        if communicator.size() != ranks.len() {
            return Err(wrong_group());
        }
        let rank = *ranks.get(communicator.rank()).ok_or_else(wrong_group)?;
        let (held, wanted) = (self.source().shard(rank), self.target().shard(rank));
        check_shard(rank, &held, sample_len, input.len())?;
        // Such samples exceed any buffer. A rank without samples would not detect it.
        if self.source().samples().checked_mul(sample_len).is_none() {
            return Err(Error::WrongShard { rank, samples: held.len(), sample_len, actual: input.len() });
        }

        let kept = self.kept(rank);
        let mut pending = PendingRedistribution {
            rank,
            sample_len,
            kept: input[elements(&kept, held.start, sample_len)].to_vec(),
            kept_samples: kept,
            wanted,
            arriving: Vec::new(),
            exchange: None,
        };
        if self.is_identity() {
            return Ok(pending);
        }

        let mut packed = Vec::new();
        let mut send_counts = vec![0; ranks.len()];
        let mut receive_counts = vec![0; ranks.len()];
        for (i, &peer) in ranks.iter().enumerate() {
            for sent in self.moves().iter().filter(|m| m.from_rank == rank && m.to_rank == peer) {
                packed.extend_from_slice(&input[elements(&sent.samples, held.start, sample_len)]);
                send_counts[i] = sent.samples.len() * sample_len;
            }
            for received in self.moves().iter().filter(|m| m.from_rank == peer && m.to_rank == rank) {
                receive_counts[i] = received.samples.len() * sample_len;
                pending.arriving.push(received.samples.clone());
            }
        }
        let landing = vec![T::default(); receive_counts.iter().sum()].into();
        pending.exchange = Some(communicator.start_all_to_all_v(
            packed.into(),
            &send_counts,
            landing,
            &receive_counts,
            queue,
        )?);
        Ok(pending)
    }
}

/// A started redistribution between host buffers. It owns all its memory.
#[derive(Debug)]
#[must_use = "the samples arrive when it is waited for"]
pub struct PendingRedistribution<T, R> {
    rank: usize,
    sample_len: usize,
    kept: Vec<T>,
    kept_samples: Range<usize>,
    wanted: Range<usize>,
    /// Samples in the receive buffer, in its order.
    arriving: Vec<Range<usize>>,
    /// `None` if no sample moves.
    exchange: Option<R>,
}

impl<T, R> RedistributionRequest for PendingRedistribution<T, R>
where
    T: Element,
    R: Request<Output = crate::Exchanged<HostBuffer<T>>>,
{
    type Buffer = HostBuffer<T>;

    fn test(&mut self) -> Result<bool> {
        self.exchange.as_mut().map_or(Ok(true), Request::test)
    }

    fn wait_into(self, output: &mut HostBuffer<T>) -> Result<()> {
        check_shard(self.rank, &self.wanted, self.sample_len, output.len())?;
        let first = self.wanted.start;
        output[elements(&self.kept_samples, first, self.sample_len)].copy_from_slice(&self.kept);
        if let Some(exchange) = self.exchange {
            let received = exchange.wait()?.receive;
            let mut unread = &received[..];
            for samples in &self.arriving {
                let (block, rest) = unread.split_at(samples.len() * self.sample_len);
                output[elements(samples, first, self.sample_len)].copy_from_slice(block);
                unread = rest;
            }
        }
        Ok(())
    }
}

/// Returns the elements that `samples` occupy in the buffer of a shard whose first sample is
/// `first`: `0..0` for an empty range. Samples are numbered in the whole batch and have
/// `sample_len` elements.
pub(crate) fn elements(samples: &Range<usize>, first: usize, sample_len: usize) -> Range<usize> {
    if samples.is_empty() {
        return 0..0;
    }
    (samples.start - first) * sample_len..(samples.end - first) * sample_len
}

/// Checks that a buffer of `actual` elements has room for exactly the samples of a shard of `rank`,
/// with `sample_len` elements each.
///
/// # Errors
/// [`Error::WrongShard`] if it has another length.
pub(crate) fn check_shard(
    rank: usize,
    samples: &Range<usize>,
    sample_len: usize,
    actual: usize,
) -> Result<()> {
    if samples.len().checked_mul(sample_len) == Some(actual) {
        Ok(())
    } else {
        Err(Error::WrongShard { rank, samples: samples.len(), sample_len, actual })
    }
}
