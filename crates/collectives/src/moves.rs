//! Enumeration of the moves between two layouts.

use std::ops::Range;

use crate::region::intersection;
use crate::{Error, Layout, Result};

/// Calls `each` for each move between two layouts of the same array, of which the first is
/// complete: with the rank that sends, the rank that receives, and the ranges of the items along
/// each dimension. O(moves x replicas).
///
/// # Errors
/// [`Error::ExtentsDiffer`] if the layouts are of different arrays. [`Error::Incomplete`] if the
/// ranges of the source layout do not cover a dimension in ascending order, each index once.
pub(crate) fn each_move(
    from: &Layout,
    to: &Layout,
    mut each: impl FnMut(usize, usize, &[Range<usize>]),
) -> Result<()> {
    if from.extents() != to.extents() {
        let [from, to] = [from, to].map(|layout| layout.extents().to_vec());
        return Err(Error::ExtentsDiffer { from, to });
    }
    if let Some(dimension) = from.first_incomplete_dimension() {
        return Err(Error::Incomplete { dimension });
    }
    let overlaps: Vec<Vec<Overlap>> =
        from.cuts().iter().zip(to.cuts()).map(|(source, target)| overlaps(source, target)).collect();
    let sizes = from.cuts().iter().zip(to.cuts()).map(|(source, target)| [source.len(), target.len()]);
    let sizes: Vec<[usize; 2]> = sizes.collect();
    let mut ranges = vec![0..0; sizes.len()];
    // Ranks that hold the box `source` of the first layout, and those that want the box `target`.
    let holders = |source: usize| &from.ranks()[source * from.replicas()..][..from.replicas()];
    let wanting = |target: usize| &to.ranks()[target * to.replicas()..][..to.replicas()];
    if from.replicas() == 1 {
        combine(&overlaps, &sizes, [0, 0], &mut ranges, &mut |[source, target], ranges| {
            let from_rank = from.ranks()[source];
            for &to_rank in wanting(target).iter().filter(|&&rank| rank != from_rank) {
                each(from_rank, to_rank, ranges);
            }
        });
        return Ok(());
    }
    // By box of the first layout: the ranks that receive items of it, and later the ranks from
    // which they do.
    let mut receivers: Vec<Vec<(usize, usize)>> = vec![Vec::new(); from.ranks().len() / from.replicas()];
    combine(&overlaps, &sizes, [0, 0], &mut ranges, &mut |[source, target], _ranges| {
        let others = wanting(target).iter().filter(|rank| !holders(source).contains(rank));
        receivers[source].extend(others.map(|&rank| (rank, rank)));
    });
    for (source, receivers) in receivers.iter_mut().enumerate() {
        receivers.sort_unstable();
        choose_senders(holders(source), receivers);
    }
    combine(&overlaps, &sizes, [0, 0], &mut ranges, &mut |[source, target], ranges| {
        let receivers = &receivers[source];
        for &to_rank in wanting(target) {
            if let Ok(place) = receivers.binary_search_by_key(&to_rank, |&(rank, _)| rank) {
                each(receivers[place].1, to_rank, ranges);
            }
        }
    });
    Ok(())
}

/// Sets the second number of each pair to the holder from which the first number receives: the
/// nearest one that does not yet send to an equal share of the receivers.
fn choose_senders(holders: &[usize], receivers: &mut [(usize, usize)]) {
    let share = receivers.len().div_ceil(holders.len());
    let mut free: Vec<(usize, usize)> = holders.iter().map(|&holder| (holder, share)).collect();
    for (receiver, sender) in receivers {
        let nearest = free.iter_mut().filter(|(_, free)| *free > 0);
        if let Some((holder, free)) = nearest.min_by_key(|(holder, _)| (holder.abs_diff(*receiver), *holder))
        {
            (*sender, *free) = (*holder, *free - 1);
        }
    }
}

/// A range of the source with an overlapping range of the target: their indices, and the overlap.
struct Overlap {
    source: usize,
    target: usize,
    range: Range<usize>,
}

/// Returns the overlaps along a dimension, by target, then by source. The ranges of the source
/// ascend and do not overlap.
fn overlaps(source: &[Range<usize>], target: &[Range<usize>]) -> Vec<Overlap> {
    let of_target = |(index, wanted): (usize, &Range<usize>)| {
        let first = source.partition_point(|range| range.end <= wanted.start);
        let end = wanted.end;
        let wanted = wanted.clone();
        source[first..].iter().enumerate().take_while(move |(_, range)| range.start < end).filter_map(
            move |(skipped, range)| {
                let range = intersection(range, &wanted);
                (!range.is_empty()).then_some(Overlap { source: first + skipped, target: index, range })
            },
        )
    };
    target.iter().enumerate().flat_map(of_target).collect()
}

/// Calls `each` for all combinations of an overlap of each dimension, with the indices of the two
/// boxes in their grids and the ranges of their intersection, which replace the last `ranges`.
fn combine(
    overlaps: &[Vec<Overlap>],
    sizes: &[[usize; 2]],
    [source, target]: [usize; 2],
    ranges: &mut [Range<usize>],
    each: &mut impl FnMut([usize; 2], &[Range<usize>]),
) {
    let (Some((of_dimension, overlaps)), Some((size, sizes))) = (overlaps.split_first(), sizes.split_first())
    else {
        return each([source, target], ranges);
    };
    let dimension = ranges.len() - 1 - overlaps.len();
    for overlap in of_dimension {
        ranges[dimension] = overlap.range.clone();
        let next = [source * size[0] + overlap.source, target * size[1] + overlap.target];
        if overlaps.is_empty() {
            each(next, ranges);
        } else {
            combine(overlaps, sizes, next, ranges, each);
        }
    }
}

/// Returns the moves between two even divisions of the same samples: each with its two ranks and
/// its number of samples.
pub(crate) fn even_moves(
    mut sources: impl Iterator<Item = (usize, Range<usize>)>,
    mut targets: impl Iterator<Item = (usize, Range<usize>)>,
) -> impl Iterator<Item = (usize, usize, usize)> {
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
                return Some((from_rank, to_rank, samples.len()));
            }
        }
        None
    })
}
