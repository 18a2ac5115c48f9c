//! Who is in a group, and at which place.

use crate::partition::check_distinct;
use crate::{Error, Result};

/// Fails when a group of `size` has no such rank.
pub(crate) fn check_rank(rank: usize, size: usize) -> Result<()> {
    if rank < size { Ok(()) } else { Err(Error::NoSuchRank { rank, size }) }
}

/// The place of `rank`, of a group of `size`, in the subgroup of `ranks`.
pub(crate) fn place_among(ranks: &[usize], rank: usize, size: usize) -> Result<usize> {
    ranks.iter().try_for_each(|&rank| check_rank(rank, size))?;
    check_distinct(ranks)?;
    ranks
        .iter()
        .position(|&other| other == rank)
        .ok_or_else(|| Error::NotAMember { rank, ranks: ranks.to_vec() })
}

/// The ranks that chose `color`, ordered by their keys and then by rank, from all ranks' colors and keys.
pub(crate) fn of_one_color<N: Copy + Ord>(choices: impl Iterator<Item = (N, N)>, color: N) -> Vec<usize> {
    let mut members: Vec<(N, usize)> = choices
        .enumerate()
        .filter(|(_, (theirs, _))| *theirs == color)
        .map(|(rank, (_, key))| (key, rank))
        .collect();
    members.sort_unstable();
    members.into_iter().map(|(_, rank)| rank).collect()
}
