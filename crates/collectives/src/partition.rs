//! Division of samples over ranks.

use std::ops::Range;

use crate::{Error, Result};

/// Division of the samples `0..samples()` over ranks. Each rank holds one contiguous range, which
/// may be empty.
///
/// ```
/// use collectives::Partition;
///
/// let partition = Partition::even(10, &[0, 1, 2, 3])?;
/// assert_eq!(partition.shard(0), 0..3);
/// assert_eq!(partition.shard(3), 8..10);
/// assert!(partition.shard(7).is_empty());
/// # Ok::<(), collectives::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Partition {
    ranks: Vec<usize>,
    /// `starts[i]..starts[i + 1]` are the samples of `ranks[i]`.
    starts: Vec<usize>,
}

impl Partition {
    /// Divides the samples as evenly as possible: the first `samples % ranks.len()` ranks hold one
    /// sample more than the others. Ranges are assigned in the order of `ranks`.
    ///
    /// # Errors
    /// [`Error::NoRanks`] if there are no ranks, [`Error::DuplicateRank`] if a rank is listed
    /// twice.
    pub fn even(samples: usize, ranks: &[usize]) -> Result<Self> {
        if ranks.is_empty() {
            return Err(Error::NoRanks { samples });
        }
        let counts: Vec<(usize, usize)> =
            even_shards(samples, ranks).map(|(rank, samples)| (rank, samples.len())).collect();
        Self::from_counts(&counts)
    }

    /// Creates a partition from pairs of a rank and its number of samples, in the order of their
    /// ranges.
    ///
    /// # Errors
    /// [`Error::NoRanks`] if there are no ranks, [`Error::DuplicateRank`] if a rank is listed
    /// twice.
    pub fn from_counts(counts: &[(usize, usize)]) -> Result<Self> {
        if counts.is_empty() {
            return Err(Error::NoRanks { samples: 0 });
        }
        let ranks: Vec<usize> = counts.iter().map(|&(rank, _)| rank).collect();
        check_distinct(&ranks)?;
        let mut starts = vec![0];
        starts.extend(counts.iter().scan(0_usize, |end, &(_, count)| {
            *end = end.saturating_add(count);
            Some(*end)
        }));
        Ok(Self { ranks, starts })
    }

    /// Returns the ranks in the order of their ranges, including those without samples.
    #[must_use]
    pub fn ranks(&self) -> &[usize] {
        &self.ranks
    }

    /// Returns the total number of samples.
    #[must_use]
    pub fn samples(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Returns the samples of a rank: an empty range if the rank is not in the partition. O(ranks).
    #[must_use]
    pub fn shard(&self, rank: usize) -> Range<usize> {
        self.shards().find(|(holder, _)| *holder == rank).map_or(0..0, |(_, samples)| samples)
    }

    /// Returns each rank with its samples, in the order of the ranges.
    pub fn shards(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
        self.ranks.iter().zip(self.starts.windows(2)).map(|(&rank, ends)| (rank, ends[0]..ends[1]))
    }
}

/// Returns the ranks with their samples if the samples are divided as evenly as possible. Empty for
/// no ranks.
pub(crate) fn even_shards(samples: usize, ranks: &[usize]) -> impl Iterator<Item = (usize, Range<usize>)> {
    let divisor = ranks.len().max(1);
    let (each, more) = (samples / divisor, samples % divisor);
    let mut end = 0;
    ranks.iter().enumerate().map(move |(index, &rank)| {
        let start = end;
        end += each + usize::from(index < more);
        (rank, start..end)
    })
}

/// Checks that no rank is listed twice. O(n log n).
///
/// # Errors
/// [`Error::DuplicateRank`] if a rank is listed twice.
pub(crate) fn check_distinct(ranks: &[usize]) -> Result<()> {
    let mut sorted = ranks.to_vec();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Error::DuplicateRank { rank: pair[0] }),
        None => Ok(()),
    }
}
