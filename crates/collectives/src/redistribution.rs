//! Moves of samples between two partitions.

use std::ops::Range;

use crate::{Error, Partition, Result};

/// Moves that turn one [`Partition`] into another of the same samples.
///
/// The moves are minimal: a sample moves if and only if its rank changes, and it moves once. There
/// is at most one move between two ranks, because both hold contiguous ranges.
///
/// ```
/// use collectives::{Partition, Redistribution};
///
/// let narrow = Partition::even(8, &[0, 1])?;
/// let wide = Partition::even(8, &[0, 1, 2, 3])?;
/// let widen = Redistribution::new(&narrow, &wide)?;
/// let moves: Vec<_> =
///     widen.moves().iter().map(|m| (m.from_rank, m.to_rank, m.samples.clone())).collect();
/// assert_eq!(moves, [(0, 1, 2..4), (1, 2, 4..6), (1, 3, 6..8)]);
/// assert_eq!(widen.busiest_rank_bytes(4), 16);
/// # Ok::<(), collectives::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redistribution {
    from: Partition,
    to: Partition,
    moves: Vec<Move>,
    ranks: Vec<usize>,
}

/// A range of samples that moves from one rank to another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Move {
    /// Rank that holds the samples before the move.
    pub from_rank: usize,
    /// Rank that holds the samples after the move.
    pub to_rank: usize,
    /// Samples, numbered in the whole batch. Never empty.
    pub samples: Range<usize>,
}

impl Redistribution {
    /// Computes the moves between two partitions. O(ranks log ranks), independent of the number of
    /// samples.
    ///
    /// # Errors
    /// [`Error::SampleCountsDiffer`] if the partitions have different numbers of samples.
    pub fn new(from: &Partition, to: &Partition) -> Result<Self> {
        if from.samples() != to.samples() {
            return Err(Error::SampleCountsDiffer { from: from.samples(), to: to.samples() });
        }
        let moves = moves(from.shards(), to.shards()).collect();
        let mut ranks = [from.ranks(), to.ranks()].concat();
        ranks.sort_unstable();
        ranks.dedup();
        Ok(Self { from: from.clone(), to: to.clone(), moves, ranks })
    }

    /// Restricts the redistribution to the given samples, whose ranges ascend and do not overlap.
    ///
    /// Each move is reduced to the range from the first to the last given sample in it. The other
    /// samples of a target shard have unspecified values afterwards. Ranks that neither move nor
    /// keep any of the given samples do not take part.
    ///
    /// ```
    /// use collectives::{Partition, Redistribution};
    ///
    /// let two = Partition::even(8, &[0, 1])?;
    /// let four = Partition::even(8, &[0, 1, 2, 3])?;
    /// let part = Redistribution::new(&two, &four)?.restricted_to(&[0..3]);
    /// assert_eq!((part.ranks(), part.moves().len()), (&[0, 1][..], 1));
    /// assert_eq!(part.moves()[0].samples, 2..3);
    /// # Ok::<(), collectives::Error>(())
    /// ```
    #[must_use]
    pub fn restricted_to(&self, samples: &[Range<usize>]) -> Self {
        let hull = |of: &Range<usize>| {
            let mut parts =
                samples.iter().map(|range| intersection(range, of)).filter(|part| !part.is_empty());
            let first = parts.next()?;
            Some(first.start..parts.next_back().map_or(first.end, |last| last.end))
        };
        let moved = |m: &Move| Some(Move { samples: hull(&m.samples)?, ..m.clone() });
        let moves: Vec<Move> = self.moves.iter().filter_map(moved).collect();
        let takes_part = |rank: &usize| {
            moves.iter().any(|m| m.from_rank == *rank || m.to_rank == *rank)
                || hull(&self.kept(*rank)).is_some()
        };
        let ranks = self.ranks.iter().copied().filter(takes_part).collect();
        Self { from: self.from.clone(), to: self.to.clone(), moves, ranks }
    }

    /// Returns the redistribution from target to source, for the gradients of the moved
    /// activations.
    #[must_use]
    pub fn reversed(&self) -> Self {
        let moves = self
            .moves
            .iter()
            .map(|m| Move { from_rank: m.to_rank, to_rank: m.from_rank, samples: m.samples.clone() })
            .collect();
        Self { from: self.to.clone(), to: self.from.clone(), moves, ranks: self.ranks.clone() }
    }

    /// Returns the partition that the samples have before the moves.
    #[must_use]
    pub fn source(&self) -> &Partition {
        &self.from
    }

    /// Returns the partition that the samples have after the moves.
    #[must_use]
    pub fn target(&self) -> &Partition {
        &self.to
    }

    /// Returns the moves in ascending order of their samples.
    #[must_use]
    pub fn moves(&self) -> &[Move] {
        &self.moves
    }

    /// Returns the ranks that take part, ascending. These are the ranks of both partitions unless
    /// the redistribution is [restricted](Self::restricted_to).
    #[must_use]
    pub fn ranks(&self) -> &[usize] {
        &self.ranks
    }

    /// Returns the samples, numbered in the whole batch, that a rank holds both before and after.
    /// They do not move. Empty for a rank outside of the partitions.
    #[must_use]
    pub fn kept(&self, rank: usize) -> Range<usize> {
        intersection(&self.from.shard(rank), &self.to.shard(rank))
    }

    /// Whether no sample moves.
    #[must_use]
    pub fn is_identity(&self) -> bool {
        self.moves.is_empty()
    }

    /// Returns the number of bytes that a rank sends, for samples of `sample_bytes` each.
    #[must_use]
    pub fn sent_bytes(&self, rank: usize, sample_bytes: u64) -> u64 {
        samples_in(self.moves.iter().filter(|m| m.from_rank == rank)).saturating_mul(sample_bytes)
    }

    /// Returns the number of bytes that a rank receives, for samples of `sample_bytes` each.
    #[must_use]
    pub fn received_bytes(&self, rank: usize, sample_bytes: u64) -> u64 {
        samples_in(self.moves.iter().filter(|m| m.to_rank == rank)).saturating_mul(sample_bytes)
    }

    /// Returns the maximum number of bytes that any rank sends or receives. It determines the
    /// redistribution's duration on full-duplex links.
    #[must_use]
    pub fn busiest_rank_bytes(&self, sample_bytes: u64) -> u64 {
        self.ranks
            .iter()
            .map(|&rank| self.sent_bytes(rank, sample_bytes).max(self.received_bytes(rank, sample_bytes)))
            .max()
            .unwrap_or(0)
    }
}

/// Returns the moves between two divisions of the same samples over ranks. Each has the ranks with
/// their samples, in ascending order of the samples.
pub(crate) fn moves(
    mut sources: impl Iterator<Item = (usize, Range<usize>)>,
    mut targets: impl Iterator<Item = (usize, Range<usize>)>,
) -> impl Iterator<Item = Move> {
    let (mut source, mut target) = (sources.next(), targets.next());
    // Both lists of ranges ascend: traverse them as in a merge.
    std::iter::from_fn(move || {
        while let (Some((from_rank, held)), Some((to_rank, wanted))) = (&source, &target) {
            let (from_rank, to_rank, samples) = (*from_rank, *to_rank, intersection(held, wanted));
            if held.end <= wanted.end {
                source = sources.next();
            } else {
                target = targets.next();
            }
            if from_rank != to_rank && !samples.is_empty() {
                return Some(Move { from_rank, to_rank, samples });
            }
        }
        None
    })
}

fn samples_in<'a>(moves: impl Iterator<Item = &'a Move>) -> u64 {
    moves.map(|m| m.samples.len() as u64).sum()
}

fn intersection(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    let start = a.start.max(b.start);
    start..a.end.min(b.end).max(start)
}
