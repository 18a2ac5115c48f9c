//! Moves of items between two layouts.

use std::ops::Range;

use crate::moves::each_move;
use crate::region::{CachedBoxCopies, intersection};
use crate::{Layout, Region, Result};

/// Moves that turn one [`Layout`] into another of the same array.
///
/// Every item that a rank has in the target layout and not in the source layout moves to it once.
/// Items that it has in both stay. There is at most one move between two ranks, because both hold
/// boxes. Items of which several ranks hold replicas come from the rank itself if it is one of
/// them. Otherwise the replicas share the sending equally, and each sends to the nearest ranks by
/// their numbers, which are often those of its host. The gradients of moved activations take the
/// way back: the redistribution from the second layout to the first.
///
/// ```
/// use collectives::{Layout, Redistribution};
///
/// let narrow = Layout::even(8, &[0, 1])?;
/// let wide = Layout::even(8, &[0, 1, 2, 3])?;
/// let widen = Redistribution::new(&narrow, &wide)?;
/// let moves = widen.moves().iter().map(|m| (m.from_rank, m.to_rank, m.samples()));
/// assert!(moves.eq([(0, 1, 2..4), (1, 2, 4..6), (1, 3, 6..8)]));
/// assert_eq!(widen.busiest_rank_bytes(4), 16);
///
/// // From samples to features: each rank sends half of the features of its samples.
/// let samples = Layout::grid(&[8, 6], &[2, 1], &[0, 1])?;
/// let features = Layout::grid(&[8, 6], &[1, 2], &[0, 1])?;
/// let turn = Redistribution::new(&samples, &features)?;
/// assert_eq!(turn.moves()[0].region.ranges(), [0..4, 3..6]);
/// assert_eq!(turn.moves()[1].region.ranges(), [4..8, 0..3]);
/// # Ok::<(), collectives::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redistribution {
    from: Layout,
    to: Layout,
    moves: Vec<Move>,
    ranks: Vec<usize>,
    pub(crate) box_copies: CachedBoxCopies,
}

/// A box of items that moves from one rank to another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Move {
    /// Rank that holds the items before the move.
    pub from_rank: usize,
    /// Rank that holds the items after the move.
    pub to_rank: usize,
    /// The items, by their indices in the whole array. Never empty.
    pub region: Region,
}

impl Move {
    /// Returns the samples that move: the range along the first dimension.
    #[must_use]
    pub fn samples(&self) -> Range<usize> {
        self.region.samples()
    }

    /// Number of items that move; the maximum of `usize` if it exceeds that.
    #[must_use]
    pub fn items(&self) -> usize {
        self.region.items().unwrap_or(usize::MAX)
    }
}

impl Redistribution {
    /// Computes the moves between two layouts. O(moves x replicas + ranks log ranks), independent
    /// of the number of items.
    ///
    /// # Errors
    /// [`Error::ExtentsDiffer`] if the layouts are of different arrays. [`Error::Incomplete`] if
    /// the ranges of the source layout do not cover a dimension in ascending order, each index
    /// once.
    ///
    /// [`Error::ExtentsDiffer`]: crate::Error::ExtentsDiffer
    /// [`Error::Incomplete`]: crate::Error::Incomplete
    pub fn new(from: &Layout, to: &Layout) -> Result<Self> {
        let mut moves = Vec::new();
        each_move(from, to, |from_rank, to_rank, ranges| {
            moves.push(Move { from_rank, to_rank, region: Region::new(ranges) });
        })?;
        let mut ranks = [from.ranks(), to.ranks()].concat();
        ranks.sort_unstable();
        ranks.dedup();
        Ok(Self { from: from.clone(), to: to.clone(), moves, ranks, box_copies: CachedBoxCopies::default() })
    }

    /// Restricts the redistribution to the given samples, whose ranges ascend and do not overlap.
    ///
    /// Each move is reduced to the range from the first to the last given sample in it. The other
    /// samples of a target box have unspecified values afterwards. Ranks that neither move nor keep
    /// any of the given samples do not take part.
    ///
    /// ```
    /// use collectives::{Layout, Redistribution};
    ///
    /// let two = Layout::even(8, &[0, 1])?;
    /// let four = Layout::even(8, &[0, 1, 2, 3])?;
    /// let part = Redistribution::new(&two, &four)?.restricted_to(&[0..3]);
    /// assert_eq!((part.ranks(), part.moves().len()), (&[0, 1][..], 1));
    /// assert_eq!(part.moves()[0].samples(), 2..3);
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
        let moved = |m: &Move| {
            let mut ranges = m.region.ranges().to_vec();
            *ranges.first_mut()? = hull(&m.samples())?;
            Some(Move { region: Region::new(ranges), ..m.clone() })
        };
        let moves: Vec<Move> = self.moves.iter().filter_map(moved).collect();
        let takes_part = |rank: &usize| {
            moves.iter().any(|m| m.from_rank == *rank || m.to_rank == *rank)
                || hull(&self.kept(*rank).samples()).is_some()
        };
        let ranks = self.ranks.iter().copied().filter(takes_part).collect();
        Self {
            from: self.from.clone(),
            to: self.to.clone(),
            moves,
            ranks,
            box_copies: CachedBoxCopies::default(),
        }
    }

    /// Returns the layout before the moves.
    #[must_use]
    pub fn source(&self) -> &Layout {
        &self.from
    }

    /// Returns the layout after the moves.
    #[must_use]
    pub fn target(&self) -> &Layout {
        &self.to
    }

    /// Returns the moves. Those of a layout of whole samples ascend by their samples.
    #[must_use]
    pub fn moves(&self) -> &[Move] {
        &self.moves
    }

    /// Returns the ranks that take part, ascending. These are the ranks of both layouts unless the
    /// redistribution is [restricted](Self::restricted_to).
    #[must_use]
    pub fn ranks(&self) -> &[usize] {
        &self.ranks
    }

    /// Returns the box of items that a rank holds both before and after. They do not move. Empty
    /// for a rank that is not in both layouts.
    #[must_use]
    pub fn kept(&self, rank: usize) -> Region {
        match (self.from.region(rank), self.to.region(rank)) {
            (Some(before), Some(after)) => before.intersection(&after),
            _ => Region::empty(self.from.extents().len()),
        }
    }

    /// Whether no item moves.
    #[must_use]
    pub fn is_identity(&self) -> bool {
        self.moves.is_empty()
    }

    /// Returns the number of bytes that a rank sends, for items of `item_bytes` each.
    #[must_use]
    pub fn sent_bytes(&self, rank: usize, item_bytes: u64) -> u64 {
        items_in(self.moves.iter().filter(|m| m.from_rank == rank)).saturating_mul(item_bytes)
    }

    /// Returns the number of bytes that a rank receives, for items of `item_bytes` each.
    #[must_use]
    pub fn received_bytes(&self, rank: usize, item_bytes: u64) -> u64 {
        items_in(self.moves.iter().filter(|m| m.to_rank == rank)).saturating_mul(item_bytes)
    }

    /// Returns the maximum number of bytes that any rank sends or receives. It determines the
    /// redistribution's duration on full-duplex links.
    #[must_use]
    pub fn busiest_rank_bytes(&self, item_bytes: u64) -> u64 {
        let busiest =
            |rank: &usize| self.sent_bytes(*rank, item_bytes).max(self.received_bytes(*rank, item_bytes));
        self.ranks.iter().map(busiest).max().unwrap_or(0)
    }
}

fn items_in<'a>(moves: impl Iterator<Item = &'a Move>) -> u64 {
    moves.fold(0_u64, |sum, m| sum.saturating_add(m.items() as u64))
}
