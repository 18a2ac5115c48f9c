//! Layouts: the box of an array of items that each rank holds.

use std::ops::Range;

use crate::{Error, Region, Result};

/// The boxes of an array of items that the ranks hold.
///
/// The first dimension is usually the samples of a batch. Further dimensions are parts of a sample,
/// such as channels or features. Each dimension is divided into ranges, and the ranks form a grid
/// over these ranges: the first ranks have the first range of the first dimension. Several ranks
/// may hold copies of a box, its *replicas*; they follow each other in the list of ranks.
///
/// ```
/// use collectives::Layout;
///
/// let samples = Layout::even(10, &[0, 1, 2, 3])?;
/// assert_eq!(samples.shard(0), 0..3);
/// assert_eq!(samples.shard(3), 8..10);
/// assert!(samples.shard(7).is_empty());
///
/// // Two ranges of samples, each of which has two ranges of its 6 features.
/// let features = Layout::grid(&[10, 6], &[2, 2], &[0, 1, 2, 3])?;
/// assert_eq!(features.region(1).map(|region| region.ranges().to_vec()), Some(vec![0..5, 3..6]));
/// # Ok::<(), collectives::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Length of the array along each dimension.
    extents: Vec<usize>,
    /// Ranges along each dimension.
    cuts: Vec<Vec<Range<usize>>>,
    /// Number of ranks that hold each box.
    replicas: usize,
    /// Ranks in the row-major order of their boxes; the replicas of a box follow each other.
    ranks: Vec<usize>,
}

impl Layout {
    /// Divides samples as evenly as possible: the first `samples % ranks.len()` ranks hold one
    /// sample more than the others. Ranges are assigned in the order of `ranks`.
    ///
    /// # Errors
    /// [`Error::NoRanks`] if there are no ranks, [`Error::DuplicateRank`] if a rank is listed
    /// twice.
    pub fn even(samples: usize, ranks: &[usize]) -> Result<Self> {
        Self::grid(&[samples], &[ranks.len()], ranks)
    }

    /// Creates a layout of samples from pairs of a rank and its number of samples, in the order of
    /// their ranges.
    ///
    /// # Errors
    /// [`Error::NoRanks`] if there are no ranks, [`Error::DuplicateRank`] if a rank is listed
    /// twice.
    pub fn from_counts(counts: &[(usize, usize)]) -> Result<Self> {
        let ranks: Vec<usize> = counts.iter().map(|&(rank, _)| rank).collect();
        let ranges: Vec<Range<usize>> = counts
            .iter()
            .scan(0_usize, |end, &(_, count)| {
                let start = *end;
                *end = end.saturating_add(count);
                Some(start..*end)
            })
            .collect();
        let samples = ranges.last().map_or(0, |last| last.end);
        Self::grid(&[samples], &[ranks.len()], &ranks)?.with_ranges(0, ranges)
    }

    /// Divides each dimension of an array as evenly as possible into a number of parts. The number
    /// of ranks is a multiple of the number of boxes; if it is larger, each box has replicas.
    ///
    /// # Errors
    /// [`Error::NoRanks`] if there are no ranks, [`Error::DuplicateRank`] if a rank is listed
    /// twice, [`Error::WrongGrid`] if the ranks are no grid of the parts.
    pub fn grid(extents: &[usize], parts: &[usize], ranks: &[usize]) -> Result<Self> {
        if ranks.is_empty() {
            return Err(Error::NoRanks { samples: extents.first().copied().unwrap_or(0) });
        }
        check_distinct(ranks)?;
        let boxes = parts.iter().try_fold(1_usize, |boxes, &parts| boxes.checked_mul(parts));
        let replicas = boxes.filter(|&boxes| boxes > 0 && ranks.len() % boxes == 0);
        let Some(replicas) =
            replicas.map(|boxes| ranks.len() / boxes).filter(|_| extents.len() == parts.len())
        else {
            let (extents, parts) = (extents.to_vec(), parts.to_vec());
            return Err(Error::WrongGrid { extents, parts, ranks: ranks.len() });
        };
        let cuts = extents.iter().zip(parts).map(|(&extent, &parts)| even_ranges(extent, parts).collect());
        Ok(Self { extents: extents.to_vec(), cuts: cuts.collect(), replicas, ranks: ranks.to_vec() })
    }

    /// Replaces the ranges along a dimension by the same number of other ranges. They may overlap,
    /// so that neighbours hold the same items, and may leave items out.
    ///
    /// # Errors
    /// [`Error::WrongRanges`] if their number differs or one is not within the array.
    pub fn with_ranges(mut self, dimension: usize, ranges: Vec<Range<usize>>) -> Result<Self> {
        let extent = self.extents.get(dimension).copied().unwrap_or(0);
        let parts = self.cuts.get(dimension).map_or(0, Vec::len);
        let is_within = |range: &Range<usize>| range.start <= range.end && range.end <= extent;
        match self.cuts.get_mut(dimension) {
            Some(cuts) if ranges.len() == parts && ranges.iter().all(is_within) => *cuts = ranges,
            _ => return Err(Error::WrongRanges { dimension, extent, parts }),
        }
        Ok(self)
    }

    /// Returns the ranks in the order of their boxes, including those with empty ones.
    #[must_use]
    pub fn ranks(&self) -> &[usize] {
        &self.ranks
    }

    /// Returns the length of the array along each dimension.
    #[must_use]
    pub fn extents(&self) -> &[usize] {
        &self.extents
    }

    /// Returns the total number of samples: the length of the first dimension.
    #[must_use]
    pub fn samples(&self) -> usize {
        self.extents.first().copied().unwrap_or(0)
    }

    /// Returns the box of a rank; `None` for a rank that is not in the layout. O(ranks).
    #[must_use]
    pub fn region(&self, rank: usize) -> Option<Region> {
        self.ranks.iter().position(|&holder| holder == rank).map(|place| self.region_at(place))
    }

    /// Returns each rank with its box.
    pub fn regions(&self) -> impl Iterator<Item = (usize, Region)> {
        self.ranks.iter().enumerate().map(|(place, &rank)| (rank, self.region_at(place)))
    }

    /// Returns the samples of a rank: the range of its box along the first dimension. An empty
    /// range if the rank is not in the layout. O(ranks).
    #[must_use]
    pub fn shard(&self, rank: usize) -> Range<usize> {
        self.shards().find(|(holder, _)| *holder == rank).map_or(0..0, |(_, samples)| samples)
    }

    /// Returns each rank with its samples.
    pub fn shards(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
        let of_each = self.cuts.first().map_or(1, |cuts| self.ranks.len() / cuts.len().max(1)).max(1);
        self.ranks.iter().enumerate().map(move |(place, &rank)| {
            (rank, self.cuts.first().map_or(0..0, |cuts| cuts[place / of_each].clone()))
        })
    }

    /// Returns the ranges along each dimension.
    pub(crate) fn cuts(&self) -> &[Vec<Range<usize>>] {
        &self.cuts
    }

    /// Number of ranks that hold each box.
    pub(crate) fn replicas(&self) -> usize {
        self.replicas
    }

    /// Returns the first dimension whose ranges overlap or leave items out, or do not ascend.
    pub(crate) fn first_incomplete_dimension(&self) -> Option<usize> {
        let is_complete = |(cuts, &extent): (&Vec<Range<usize>>, &usize)| {
            let mut end = 0;
            let continues = cuts.iter().all(|range| std::mem::replace(&mut end, range.end) == range.start);
            continues && end == extent
        };
        self.cuts.iter().zip(&self.extents).position(|dimension| !is_complete(dimension))
    }

    fn region_at(&self, place: usize) -> Region {
        let mut rest = place / self.replicas;
        let mut ranges: Vec<Range<usize>> = self
            .cuts
            .iter()
            .rev()
            .map(|cuts| {
                let range = cuts[rest % cuts.len()].clone();
                rest /= cuts.len();
                range
            })
            .collect();
        ranges.reverse();
        Region::new(ranges)
    }
}

/// Returns the ranges of as even a division of `0..extent` as possible into a number of parts.
fn even_ranges(extent: usize, parts: usize) -> impl Iterator<Item = Range<usize>> {
    let divisor = parts.max(1);
    let (each, more) = (extent / divisor, extent % divisor);
    let mut end = 0;
    (0..parts).map(move |index| {
        let start = end;
        end += each + usize::from(index < more);
        start..end
    })
}

/// Returns the ranks with their samples if the samples are divided as evenly as possible. Empty for
/// no ranks.
pub(crate) fn even_shards(samples: usize, ranks: &[usize]) -> impl Iterator<Item = (usize, Range<usize>)> {
    ranks.iter().copied().zip(even_ranges(samples, ranks.len()))
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
