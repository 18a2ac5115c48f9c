//! Membership of ranks in groups. A *group* is a list of ranks, numbered from 0 in the group.

use crate::layout::check_distinct;
use crate::{Error, Result};

/// Checks that `rank` is a rank of a group of `size` ranks.
///
/// # Errors
/// [`Error::NoSuchRank`] if `rank` is not below `size`.
pub(crate) fn check_rank(rank: usize, size: usize) -> Result<()> {
    if rank < size { Ok(()) } else { Err(Error::NoSuchRank { rank, size }) }
}

/// Returns the index of `rank` in the subgroup `ranks`. Both are numbered in the parent group,
/// which has `size` ranks.
///
/// # Errors
/// [`Error::NoSuchRank`] if a listed rank is not below `size`, [`Error::DuplicateRank`] if a rank
/// is listed twice, [`Error::NotAMember`] if `rank` is not listed.
pub(crate) fn index_in_subgroup(ranks: &[usize], rank: usize, size: usize) -> Result<usize> {
    ranks.iter().try_for_each(|&rank| check_rank(rank, size))?;
    check_distinct(ranks)?;
    ranks
        .iter()
        .position(|&other| other == rank)
        .ok_or_else(|| Error::NotAMember { rank, ranks: ranks.to_vec() })
}

/// Returns the ranks that chose `color` in a `split`, ordered by key and then by rank. `choices`
/// has the color and key of every rank, in the order of the ranks.
pub(crate) fn ranks_with_color<N: Copy + Ord>(choices: impl Iterator<Item = (N, N)>, color: N) -> Vec<usize> {
    let mut members: Vec<(N, usize)> = choices
        .enumerate()
        .filter(|(_, (theirs, _))| *theirs == color)
        .map(|(rank, (_, key))| (key, rank))
        .collect();
    members.sort_unstable();
    members.into_iter().map(|(_, rank)| rank).collect()
}
