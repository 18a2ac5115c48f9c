//! Random arguments of the laws.

use collectives::{Layout, ReduceOp};
use proptest::prelude::*;

/// Maximum number of ranks of a group.
pub(crate) const MAX_RANKS: usize = 8;

/// Arguments of the laws, for groups of up to [`MAX_RANKS`].
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) op: ReduceOp,
    pub(crate) len: usize,
    /// A root, or the rank that makes a mistake; modulo the size of the group.
    pub(crate) rank: usize,
    /// Index of a choice, modulo the number of choices.
    pub(crate) choice: usize,
    /// Whether requests are polled before they are waited for.
    pub(crate) polls: bool,
    /// Number of elements from each rank to each rank.
    pub(crate) counts: Vec<Vec<usize>>,
    /// Sender, receiver, tag and length of each message.
    pub(crate) messages: Vec<(usize, usize, u32, usize)>,
    /// Each rank's order of six requests.
    pub(crate) orders: Vec<Vec<usize>>,
    /// Each rank's color and key.
    pub(crate) colors: Vec<(Option<u32>, i32)>,
    /// Ranks in some order, and the number of them that form a group.
    pub(crate) lists: Vec<(Vec<usize>, usize)>,
    pub(crate) layouts: (Layout, Layout),
    /// Extents of an array, and the choices that make up two grids over it.
    pub(crate) array: ([usize; 3], [GridChoices; 2]),
    pub(crate) sample_len: usize,
}

/// Random choices that make up a grid: an order of the ranks, the number of parts along each
/// dimension and of replicas, and whether the ranges overlap.
pub(crate) type GridChoices = (Vec<usize>, [usize; 4], bool);

impl Case {
    /// Returns two grids of the array over some of `size` ranks. Ranges of the second may overlap.
    pub(crate) fn grids(&self, size: usize) -> [Layout; 2] {
        let (extents, [from, to]) = &self.array;
        let [from, to] = [from, to].map(|(order, choices, _)| {
            let mut left = size;
            let [parts @ .., replicas] = choices.map(|choice| {
                let count = 1 + choice % left;
                left /= count;
                count
            });
            let ranks: Vec<usize> = order.iter().copied().filter(|&rank| rank < size).collect();
            let count = parts.iter().product::<usize>() * replicas;
            Layout::grid(extents, &parts, &ranks[..count]).expect("a grid of the ranks")
        });
        let (.., overlap) = &self.array.1[1];
        [from, if *overlap { overlapping(to) } else { to }]
    }
}

/// Extends the ranges along the last dimension by one index on both sides.
fn overlapping(layout: Layout) -> Layout {
    let dimension = layout.extents().len() - 1;
    let extent = layout.extents()[dimension];
    let mut ranges: Vec<_> = layout.regions().map(|(_, region)| region.ranges()[dimension].clone()).collect();
    ranges.sort_by_key(|range| (range.start, range.end));
    // Several ranks have the same range.
    let parts =
        (1..=ranges.len()).find(|parts| layout.clone().with_ranges(dimension, vec![0..0; *parts]).is_ok());
    let every = ranges.len() / parts.expect("a number of parts");
    let wider =
        ranges.iter().step_by(every).map(|range| range.start.saturating_sub(1)..extent.min(range.end + 1));
    layout.with_ranges(dimension, wider.collect()).expect("ranges within the array")
}

fn grid_choices() -> impl Strategy<Value = GridChoices> {
    (
        Just((0..MAX_RANKS).collect::<Vec<_>>()).prop_shuffle(),
        prop::array::uniform4(0..MAX_RANKS),
        any::<bool>(),
    )
}

/// Generates cases.
pub(crate) fn cases() -> impl Strategy<Value = Case> {
    let each_rank = MAX_RANKS..=MAX_RANKS;
    let op = prop_oneof![Just(ReduceOp::Sum), Just(ReduceOp::Max), Just(ReduceOp::Min)];
    // No elements, less than one a rank, and enough for any algorithm that divides the buffer.
    let len = prop_oneof![Just(0), 1..10_usize, 10..2_000_usize, 9_000..20_000_usize];
    let counts =
        prop::collection::vec(prop::collection::vec(0..40_usize, each_rank.clone()), each_rank.clone());
    let message = (0..MAX_RANKS, 0..MAX_RANKS, 0..3_u32, prop_oneof![0..50_usize, 3_000..6_000_usize]);
    let order = Just((0..6_usize).collect::<Vec<_>>()).prop_shuffle();
    let color = (prop::option::of(0..3_u32), -2..3_i32);
    let list = (Just((0..MAX_RANKS).collect::<Vec<_>>()).prop_shuffle(), 1..=MAX_RANKS);
    let first = (op, len, 0..MAX_RANKS, any::<usize>(), any::<bool>(), counts);
    let second = (
        prop::collection::vec(message, 0..20),
        prop::collection::vec(order, each_rank.clone()),
        prop::collection::vec(color, each_rank),
        prop::collection::vec(list, 1..4),
        (0..40_usize).prop_flat_map(|samples| (layouts(samples), layouts(samples))),
        (prop::array::uniform3(0..7_usize), prop::array::uniform2(grid_choices())),
        0..4_usize,
    );
    (first, second).prop_map(|(first, second)| {
        let (op, len, rank, choice, polls, counts) = first;
        let (messages, orders, colors, lists, layouts, array, sample_len) = second;
        Case {
            op,
            len,
            rank,
            choice,
            polls,
            counts,
            messages,
            orders,
            colors,
            lists,
            layouts,
            array,
            sample_len,
        }
    })
}

/// A layout of `samples` over all ranks in any order, uneven, with some empty shards.
fn layouts(samples: usize) -> impl Strategy<Value = Layout> {
    let ranks = Just((0..MAX_RANKS).collect::<Vec<_>>()).prop_shuffle();
    let cuts = prop::collection::vec(0..=samples, 0..MAX_RANKS);
    (ranks, cuts).prop_map(move |(ranks, mut cuts)| {
        cuts.sort_unstable();
        cuts.push(samples);
        let starts = std::iter::once(&0).chain(&cuts);
        let counts: Vec<_> =
            ranks.into_iter().zip(starts.zip(&cuts).map(|(start, end)| end - start)).collect();
        Layout::from_counts(&counts).expect("the ranks are distinct")
    })
}
