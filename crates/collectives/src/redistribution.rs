//! What has to move when samples go from one partition to another.

use std::ops::Range;

use crate::{Error, Partition, Result};

/// The moves that turn one [`Partition`] into another of the same samples.
///
/// Minimal: a sample moves if and only if its rank changes, and it moves once. Between two ranks there is at most one
/// move, because both hold contiguous ranges.
///
/// ```
/// use collectives::{Partition, Redistribution};
///
/// let narrow = Partition::even(8, &[0, 1])?;
/// let wide = Partition::even(8, &[0, 1, 2, 3])?;
/// let widen = Redistribution::new(&narrow, &wide)?;
/// let moves: Vec<_> = widen.moves().iter().map(|m| (m.from_rank, m.to_rank, m.samples.clone())).collect();
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

/// Samples that go from one rank to another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Move {
    /// Who holds them before.
    pub from_rank: usize,
    /// Who holds them afterwards.
    pub to_rank: usize,
    /// Which samples, counted in the whole batch; never empty.
    pub samples: Range<usize>,
}

impl Redistribution {
    /// The moves between two partitions. O(ranks log ranks), whatever the number of samples.
    ///
    /// # Errors
    /// The partitions divide different numbers of samples.
    pub fn new(from: &Partition, to: &Partition) -> Result<Self> {
        if from.samples() != to.samples() {
            return Err(Error::SampleCountsDiffer { from: from.samples(), to: to.samples() });
        }
        let mut moves = Vec::new();
        let (mut sources, mut targets) = (from.shards(), to.shards());
        let (mut source, mut target) = (sources.next(), targets.next());
        // Both lists of ranges ascend: walk them as in a merge.
        while let (Some((from_rank, held)), Some((to_rank, wanted))) = (&source, &target) {
            let samples = intersection(held, wanted);
            if from_rank != to_rank && !samples.is_empty() {
                moves.push(Move { from_rank: *from_rank, to_rank: *to_rank, samples });
            }
            if held.end <= wanted.end {
                source = sources.next();
            } else {
                target = targets.next();
            }
        }
        drop((sources, targets));
        let mut ranks = [from.ranks(), to.ranks()].concat();
        ranks.sort_unstable();
        ranks.dedup();
        Ok(Self { from: from.clone(), to: to.clone(), moves, ranks })
    }

    /// This, as far as it has to be for some samples: their ranges ascend and do not overlap. Between two ranks everything from the first to
    /// the last of them moves. What a rank holds afterwards of other samples is not specified; ranks that neither move any nor keep
    /// any take no part.
    ///
    /// ```
    /// use collectives::{Partition, Redistribution};
    ///
    /// let two = Partition::even(8, &[0, 1])?;
    /// let four = Partition::even(8, &[0, 1, 2, 3])?;
    /// let part = Redistribution::new(&two, &four)?.of_samples(&[0..3]);
    /// assert_eq!((part.ranks(), part.moves().len()), (&[0, 1][..], 1));
    /// assert_eq!(part.moves()[0].samples, 2..3);
    /// # Ok::<(), collectives::Error>(())
    /// ```
    #[must_use]
    pub fn of_samples(&self, samples: &[Range<usize>]) -> Self {
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

    /// The way back: what gradients take after their activations took this one.
    #[must_use]
    pub fn reversed(&self) -> Self {
        let moves = self
            .moves
            .iter()
            .map(|m| Move { from_rank: m.to_rank, to_rank: m.from_rank, samples: m.samples.clone() })
            .collect();
        Self { from: self.to.clone(), to: self.from.clone(), moves, ranks: self.ranks.clone() }
    }

    /// The partition before.
    #[must_use]
    pub fn source(&self) -> &Partition {
        &self.from
    }

    /// The partition afterwards.
    #[must_use]
    pub fn target(&self) -> &Partition {
        &self.to
    }

    /// The moves, in the order of their samples.
    #[must_use]
    pub fn moves(&self) -> &[Move] {
        &self.moves
    }

    /// The ranks that take part, ascending: those of both partitions, if it is of [all samples](Self::of_samples).
    #[must_use]
    pub fn ranks(&self) -> &[usize] {
        &self.ranks
    }

    /// The samples that a rank holds before and afterwards, which therefore go nowhere.
    #[must_use]
    pub fn kept(&self, rank: usize) -> Range<usize> {
        intersection(&self.from.shard(rank), &self.to.shard(rank))
    }

    /// Whether nothing moves.
    #[must_use]
    pub fn is_identity(&self) -> bool {
        self.moves.is_empty()
    }

    /// Bytes that a rank sends, for samples of `sample_bytes` each.
    #[must_use]
    pub fn sent_bytes(&self, rank: usize, sample_bytes: u64) -> u64 {
        samples_in(self.moves.iter().filter(|m| m.from_rank == rank)).saturating_mul(sample_bytes)
    }

    /// Bytes that a rank receives, for samples of `sample_bytes` each.
    #[must_use]
    pub fn received_bytes(&self, rank: usize, sample_bytes: u64) -> u64 {
        samples_in(self.moves.iter().filter(|m| m.to_rank == rank)).saturating_mul(sample_bytes)
    }

    /// The most bytes that any rank sends or receives: what the redistribution takes its time from on links that carry
    /// both directions at once.
    #[must_use]
    pub fn busiest_rank_bytes(&self, sample_bytes: u64) -> u64 {
        self.ranks
            .iter()
            .map(|&rank| self.sent_bytes(rank, sample_bytes).max(self.received_bytes(rank, sample_bytes)))
            .max()
            .unwrap_or(0)
    }
}

fn samples_in<'a>(moves: impl Iterator<Item = &'a Move>) -> u64 {
    moves.map(|m| m.samples.len() as u64).sum()
}

fn intersection(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    let start = a.start.max(b.start);
    start..a.end.min(b.end).max(start)
}
