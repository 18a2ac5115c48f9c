//! The part of a redistribution of one rank.

use std::sync::Arc;

use crate::region::{BoxCopy, RegionCopy};
use crate::{Error, Group, Move, Redistribution, RedistributionBuffers, Region, Result};

impl Redistribution {
    /// Returns the number of elements of the buffers in which a rank packs what it sends and what
    /// it receives, in this order, for items of `item_len` elements. It is 0 if the elements for
    /// each other rank are consecutive in the rank's box, so that they need no packing.
    ///
    /// # Errors
    /// [`Error::ArrayTooLarge`] if the whole array has more elements than `usize` can count.
    pub fn packed_len(&self, rank: usize, item_len: usize) -> Result<[usize; 2]> {
        let moves = RankMoves::new(self, rank, item_len)?;
        Ok([moves.sent.packed_len(), moves.received.packed_len()])
    }
}

/// The part of a redistribution of one rank, in elements.
#[derive(Debug)]
pub(crate) struct RankMoves {
    /// The chunks that it sends.
    pub(crate) sent: Chunks,
    /// The chunks that it receives.
    pub(crate) received: Chunks,
    /// The copy of the items that stay, from its source box to its target box.
    #[cfg(any(feature = "mpi", feature = "nccl"))]
    pub(crate) kept: RegionCopy,
    /// Number of elements of its source box and of its target box.
    pub(crate) lens: [usize; 2],
}

/// The elements that a rank sends to each other rank, or receives from it.
#[derive(Debug)]
pub(crate) struct Chunks {
    /// By index in [`Redistribution::ranks`]: the copy between the rank's box and the packed
    /// elements, in which the chunks follow each other.
    pub(crate) copies: Vec<(usize, RegionCopy)>,
    /// Whether the elements of each chunk are consecutive in the box.
    pub(crate) is_direct: bool,
}

impl Chunks {
    fn new(copies: Vec<(usize, RegionCopy)>) -> Self {
        let is_direct = copies.iter().all(|(_, copy)| copy.loops.is_empty());
        Self { copies, is_direct }
    }

    /// Number of elements of all chunks.
    pub(crate) fn len(&self) -> usize {
        self.copies.iter().map(|(_, copy)| copy.elements()).sum()
    }

    /// Number of elements for each of `ranks` ranks.
    #[cfg(any(feature = "mpi", feature = "nccl"))]
    pub(crate) fn counts(&self, ranks: usize) -> Vec<usize> {
        let mut counts = vec![0; ranks];
        for (place, copy) in &self.copies {
            counts[*place] = copy.elements();
        }
        counts
    }

    /// Number of elements that need packing.
    pub(crate) fn packed_len(&self) -> usize {
        if self.is_direct { 0 } else { self.len() }
    }
}

impl RankMoves {
    /// Returns the moves of a rank for items of `item_len` elements. O(moves).
    ///
    /// # Errors
    /// [`Error::ArrayTooLarge`] if the whole array has more elements than `usize` can count.
    pub(crate) fn new(redistribution: &Redistribution, rank: usize, item_len: usize) -> Result<Self> {
        let (from, to) = (redistribution.source(), redistribution.target());
        let (moves, ranks) = (redistribution.moves(), redistribution.ranks());
        let whole = from.extents().iter().try_fold(item_len, |len, &extent| len.checked_mul(extent.max(1)));
        if whole.is_none() {
            return Err(Error::ArrayTooLarge { extents: from.extents().to_vec(), item_len });
        }
        let nothing = || Region::empty(from.extents().len());
        let [held, wanted] = [from, to].map(|layout| layout.region(rank).unwrap_or_else(nothing));
        let chunks =
            |own: fn(&Move) -> usize, peer: fn(&Move) -> usize, copy: &dyn Fn(&Region) -> RegionCopy| {
                let of_rank = moves.iter().filter(|m| own(m) == rank);
                of_rank.filter_map(|m| Some((ranks.binary_search(&peer(m)).ok()?, copy(&m.region)))).collect()
            };
        let pack = |region: &Region| RegionCopy::new(region, &held, region, item_len);
        let unpack = |region: &Region| RegionCopy::new(region, region, &wanted, item_len);
        let mut sent: Vec<(usize, RegionCopy)> = chunks(|m| m.from_rank, |m| m.to_rank, &pack);
        let mut received: Vec<(usize, RegionCopy)> = chunks(|m| m.to_rank, |m| m.from_rank, &unpack);
        // Packed chunks follow each other in the order of the ranks.
        sent.sort_by_key(|(place, _)| *place);
        received.sort_by_key(|(place, _)| *place);
        let mut end = 0;
        for (_, copy) in &mut sent {
            copy.to = end;
            end += copy.elements();
        }
        end = 0;
        for (_, copy) in &mut received {
            copy.from = end;
            end += copy.elements();
        }
        let len = |region: &Region| region.items().unwrap_or(0) * item_len;
        Ok(Self {
            sent: Chunks::new(sent),
            received: Chunks::new(received),
            #[cfg(any(feature = "mpi", feature = "nccl"))]
            kept: RegionCopy::new(&redistribution.kept(rank), &held, &wanted, item_len),
            lens: [len(&held), len(&wanted)],
        })
    }

    /// Checks the lengths of the buffers of `rank`.
    ///
    /// # Errors
    /// [`Error::WrongShard`] if one differs.
    pub(crate) fn check(&self, rank: usize, [input, output]: [usize; 2], packed: [usize; 2]) -> Result<()> {
        let lens = [
            ("input", self.lens[0], input),
            ("output", self.lens[1], output),
            ("packed input", self.sent.packed_len(), packed[0]),
            ("packed output", self.received.packed_len(), packed[1]),
        ];
        match lens.into_iter().find(|(_, expected, actual)| expected != actual) {
            Some((buffer, expected, actual)) => Err(Error::WrongShard { rank, buffer, expected, actual }),
            None => Ok(()),
        }
    }
}

/// Returns the copies between the boxes of all ranks, those within a rank included, for items of
/// `item_len` elements, which [`moves_of`] has checked. Those for the first `item_len` of the
/// redistribution are cached.
pub(crate) fn box_copies(redistribution: &Redistribution, item_len: usize) -> Arc<[BoxCopy]> {
    redistribution.box_copies.get(item_len, || compute_box_copies(redistribution, item_len))
}

/// Computes the copies of [`box_copies`]. O(ranks x (ranks + moves)).
fn compute_box_copies(redistribution: &Redistribution, item_len: usize) -> Arc<[BoxCopy]> {
    let ranks = redistribution.ranks();
    let copy = |from_rank: usize, to_rank: usize, region: &Region| {
        let from_box = redistribution.source().region(from_rank)?;
        let to_box = redistribution.target().region(to_rank)?;
        let [from, to] = [from_rank, to_rank].map(|rank| ranks.binary_search(&rank).ok());
        Some(BoxCopy { from: from?, to: to?, copy: RegionCopy::new(region, &from_box, &to_box, item_len) })
    };
    let kept = ranks.iter().filter_map(|&rank| copy(rank, rank, &redistribution.kept(rank)));
    let moved = redistribution.moves().iter().filter_map(|m| copy(m.from_rank, m.to_rank, &m.region));
    kept.chain(moved).collect()
}

/// Returns the moves of the calling rank, after a check of its group and its buffers.
///
/// # Errors
/// [`Error::WrongGroup`], [`Error::ArrayTooLarge`], [`Error::WrongShard`].
pub(crate) fn moves_of<B>(
    group: &impl Group,
    redistribution: &Redistribution,
    buffers: &RedistributionBuffers<B>,
    item_len: usize,
    len: impl Fn(&B) -> usize,
) -> Result<RankMoves> {
    let ranks = redistribution.ranks();
    let wrong_group = || Error::WrongGroup { ranks: ranks.to_vec(), size: group.size() };
    if group.size() != ranks.len() {
        return Err(wrong_group());
    }
    let rank = *ranks.get(group.rank()).ok_or_else(wrong_group)?;
    let moves = RankMoves::new(redistribution, rank, item_len)?;
    let RedistributionBuffers { input, output, packed: [sent, received] } = buffers;
    moves.check(rank, [len(input), len(output)], [len(sent), len(received)])?;
    Ok(moves)
}
