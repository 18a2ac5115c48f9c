//! Boxes of an array of items, and copies of them between row-major buffers.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// A box of an array of items: a range along each dimension, the outermost dimension first.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Region {
    ranges: Vec<Range<usize>>,
}

impl Region {
    /// Creates the box with these ranges, the outermost dimension first.
    #[must_use]
    pub fn new(ranges: impl Into<Vec<Range<usize>>>) -> Self {
        Self { ranges: ranges.into() }
    }

    /// Creates a box without items in an array of this number of dimensions.
    pub(crate) fn empty(dimensions: usize) -> Self {
        Self { ranges: vec![0..0; dimensions.max(1)] }
    }

    /// Returns the range along each dimension.
    #[must_use]
    pub fn ranges(&self) -> &[Range<usize>] {
        &self.ranges
    }

    /// Returns the range along the first dimension: the samples. Empty if the box is.
    #[must_use]
    pub fn samples(&self) -> Range<usize> {
        if self.is_empty() { 0..0 } else { self.ranges.first().cloned().unwrap_or(0..0) }
    }

    /// Number of items in the box; `None` if it exceeds `usize`.
    #[must_use]
    pub fn items(&self) -> Option<usize> {
        if self.is_empty() {
            return Some(0);
        }
        self.ranges.iter().try_fold(1_usize, |items, range| items.checked_mul(range.len()))
    }

    /// Whether the box has no items.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.iter().any(Range::is_empty)
    }

    /// Returns the items that both boxes have. They are of the same array.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let both = self.ranges.iter().zip(&other.ranges);
        Self { ranges: both.map(|(a, b)| intersection(a, b)).collect() }
    }
}

/// Returns the numbers that both ranges have: an empty range if there are none.
pub(crate) fn intersection(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    let start = a.start.max(b.start);
    start..a.end.min(b.end).max(start)
}

/// A copy of a region from the row-major buffer of one box to that of another, in elements: runs of
/// consecutive elements at regular distances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RegionCopy {
    /// Index of the first element in the source.
    pub(crate) from: usize,
    /// Index of the first element in the target.
    pub(crate) to: usize,
    /// Repetitions of the runs, outermost first: their number, and the distances in source and
    /// target.
    pub(crate) loops: Vec<Repetition>,
    /// Number of elements of a run.
    pub(crate) run: usize,
}

/// A copy of a region from the buffer of one rank to that of another. Ranks are numbered in their
/// group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoxCopy {
    /// Rank that holds the box from which is copied.
    pub(crate) from: usize,
    /// Rank that holds the box to which is copied.
    pub(crate) to: usize,
    /// The elements.
    pub(crate) copy: RegionCopy,
}

/// Copies between the boxes of two layouts and the number of elements of their items, computed when
/// they are needed first. They follow from the layouts, so that all caches are equal.
#[derive(Debug, Clone, Default)]
pub(crate) struct CachedBoxCopies(OnceLock<(usize, Arc<[BoxCopy]>)>);

impl PartialEq for CachedBoxCopies {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for CachedBoxCopies {}

impl CachedBoxCopies {
    /// Returns the copies for items of `item_len` elements. Those of the first `item_len` are kept.
    pub(crate) fn get(&self, item_len: usize, compute: impl Fn() -> Arc<[BoxCopy]>) -> Arc<[BoxCopy]> {
        let (kept_len, kept) = self.0.get_or_init(|| (item_len, compute()));
        if *kept_len == item_len { Arc::clone(kept) } else { compute() }
    }
}

/// A number of repetitions, and their distances in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Repetition {
    pub(crate) count: usize,
    pub(crate) from_distance: usize,
    pub(crate) to_distance: usize,
}

impl RegionCopy {
    /// Returns the copy of `region` from the buffer of the box `from` to that of the box `to`. Both
    /// contain the region. An item has `item_len` elements. The runs are as long as possible. O(d),
    /// for d dimensions.
    pub(crate) fn new(region: &Region, from: &Region, to: &Region, item_len: usize) -> Self {
        let mut copy = Self { from: 0, to: 0, loops: Vec::new(), run: item_len };
        if region.is_empty() {
            return Self { run: 0, ..copy };
        }
        let (mut from_distance, mut to_distance) = (item_len, item_len);
        // From the innermost dimension outwards. The outermost of the loops so far is the last.
        for (range, (from, to)) in region.ranges.iter().zip(from.ranges.iter().zip(&to.ranges)).rev() {
            copy.from += (range.start - from.start) * from_distance;
            copy.to += (range.start - to.start) * to_distance;
            let next = Repetition { count: range.len(), from_distance, to_distance };
            copy.repeat(next);
            from_distance *= from.len();
            to_distance *= to.len();
        }
        copy.loops.reverse();
        copy
    }

    /// Repeats all loops so far, which begin with the innermost one. Repetitions that continue the
    /// previous one extend it.
    fn repeat(&mut self, next: Repetition) {
        let Repetition { count, from_distance, to_distance } = next;
        if count == 1 {
            return;
        }
        let continues = |distances: [usize; 2]| distances == [from_distance, to_distance];
        if let Some(last) = self.loops.last_mut() {
            if continues([last.count * last.from_distance, last.count * last.to_distance]) {
                last.count *= count;
            } else {
                self.loops.push(next);
            }
        } else if continues([self.run; 2]) {
            self.run *= count;
        } else {
            self.loops.push(next);
        }
    }

    /// Number of elements that are copied.
    pub(crate) fn elements(&self) -> usize {
        self.loops.iter().map(|repetition| repetition.count).product::<usize>() * self.run
    }

    /// Calls `copy` for each run with the index of its first element in the source and in the
    /// target, and its number of elements.
    pub(crate) fn for_each_run(&self, mut copy: impl FnMut(usize, usize, usize)) {
        if self.run > 0 {
            runs(&self.loops, self.from, self.to, &mut |from, to| copy(from, to, self.run));
        }
    }

    /// Copies the elements.
    ///
    /// # Panics
    /// If a buffer is shorter than its box.
    #[cfg(any(test, feature = "mpi"))]
    pub(crate) fn copy<T: Copy>(&self, from: &[T], to: &mut [T]) {
        self.for_each_run(|source, target, len| {
            to[target..target + len].copy_from_slice(&from[source..source + len]);
        });
    }
}

fn runs(loops: &[Repetition], from: usize, to: usize, run: &mut impl FnMut(usize, usize)) {
    let Some((first, inner)) = loops.split_first() else { return run(from, to) };
    for index in 0..first.count {
        runs(inner, from + index * first.from_distance, to + index * first.to_distance, run);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A region of an array of up to four dimensions, and two boxes that contain it.
    fn regions() -> impl Strategy<Value = [Region; 3]> {
        let dimension = (0..3_usize, 0..3_usize, 0..4_usize, prop::array::uniform2(0..3_usize)).prop_map(
            |(before, inside, len, [more, after])| {
                let region = before + inside..before + inside + len;
                let own = inside.min(more);
                [
                    region.clone(),
                    region.start - inside..region.end + after,
                    region.start - own..region.end + more,
                ]
            },
        );
        prop::collection::vec(dimension, 0..5).prop_map(|dimensions| {
            [0, 1, 2]
                .map(|which| Region::new(dimensions.iter().map(|d| d[which].clone()).collect::<Vec<_>>()))
        })
    }

    /// Returns the place of an item in the row-major buffer of a box.
    fn place(item: &[usize], of: &Region) -> usize {
        item.iter()
            .zip(of.ranges())
            .fold(0, |place, (index, range)| place * range.len() + index - range.start)
    }

    fn items(region: &Region) -> Vec<Vec<usize>> {
        region.ranges().iter().fold(vec![Vec::new()], |items, range| {
            let extended = |item: Vec<usize>| range.clone().map(move |index| [&item[..], &[index]].concat());
            items.into_iter().flat_map(extended).collect()
        })
    }

    proptest! {
        #[test]
        fn a_copy_moves_each_item_of_the_region([region, from, to] in regions(), item_len in 0..3_usize) {
            let source: Vec<usize> = (1..=from.items().unwrap_or(0) * item_len).collect();
            let mut expected = vec![0; to.items().unwrap_or(0) * item_len];
            let mut target = expected.clone();
            for item in items(&region) {
                for element in 0..item_len {
                    expected[place(&item, &to) * item_len + element] =
                        source[place(&item, &from) * item_len + element];
                }
            }
            let copy = RegionCopy::new(&region, &from, &to, item_len);
            prop_assert_eq!(copy.elements(), region.items().unwrap_or(0) * item_len);
            copy.copy(&source, &mut target);
            prop_assert_eq!(target, expected);
        }
    }

    #[test]
    fn whole_dimensions_are_one_run() {
        let [region, whole] = [Region::new([1..3, 0..4, 0..5]), Region::new([0..8, 0..4, 0..5])];
        let copy = RegionCopy::new(&region, &whole, &region, 2);
        assert_eq!(copy, RegionCopy { from: 40, to: 0, loops: Vec::new(), run: 80 });
        let part = Region::new([0..8, 1..3, 0..5]);
        let copy = RegionCopy::new(&part, &whole, &part, 2);
        let of_sample = Repetition { count: 8, from_distance: 40, to_distance: 20 };
        assert_eq!(copy, RegionCopy { from: 10, to: 0, loops: vec![of_sample], run: 20 });
    }
}
