//! What the laws are tried on.

use collectives::{Partition, ReduceOp};
use proptest::prelude::*;

/// Ranks that a group may have.
pub(crate) const MOST_RANKS: usize = 8;

/// Arguments for any law, for groups of up to [`MOST_RANKS`].
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) op: ReduceOp,
    pub(crate) len: usize,
    /// A root, or a rank that does something odd; modulo the size.
    pub(crate) rank: usize,
    /// Something to choose by, modulo the number of choices.
    pub(crate) choice: usize,
    /// Whether requests are polled before they are waited for.
    pub(crate) polls: bool,
    /// From each rank to each rank.
    pub(crate) counts: Vec<Vec<usize>>,
    /// From, to, tag and length.
    pub(crate) messages: Vec<(usize, usize, u32, usize)>,
    /// Each rank's order of six requests.
    pub(crate) orders: Vec<Vec<usize>>,
    /// Each rank's color and key.
    pub(crate) colors: Vec<(Option<u32>, i32)>,
    /// Ranks in some order, of which the first so many form a group.
    pub(crate) lists: Vec<(Vec<usize>, usize)>,
    pub(crate) partitions: (Partition, Partition),
    pub(crate) sample_len: usize,
}

/// Cases of all kinds.
pub(crate) fn cases() -> impl Strategy<Value = Case> {
    let each_rank = MOST_RANKS..=MOST_RANKS;
    let op = prop_oneof![Just(ReduceOp::Sum), Just(ReduceOp::Max), Just(ReduceOp::Min)];
    // Nothing, less than an element a rank, and enough for any algorithm that cuts it into pieces.
    let len = prop_oneof![Just(0), 1..10_usize, 10..2_000_usize, 9_000..20_000_usize];
    let counts =
        prop::collection::vec(prop::collection::vec(0..40_usize, each_rank.clone()), each_rank.clone());
    let message = (0..MOST_RANKS, 0..MOST_RANKS, 0..3_u32, prop_oneof![0..50_usize, 3_000..6_000_usize]);
    let order = Just((0..6_usize).collect::<Vec<_>>()).prop_shuffle();
    let color = (prop::option::of(0..3_u32), -2..3_i32);
    let list = (Just((0..MOST_RANKS).collect::<Vec<_>>()).prop_shuffle(), 1..=MOST_RANKS);
    let first = (op, len, 0..MOST_RANKS, any::<usize>(), any::<bool>(), counts);
    let second = (
        prop::collection::vec(message, 0..20),
        prop::collection::vec(order, each_rank.clone()),
        prop::collection::vec(color, each_rank),
        prop::collection::vec(list, 1..4),
        (0..40_usize).prop_flat_map(|samples| (partitions(samples), partitions(samples))),
        0..4_usize,
    );
    (first, second).prop_map(|(first, second)| {
        let (op, len, rank, choice, polls, counts) = first;
        let (messages, orders, colors, lists, partitions, sample_len) = second;
        Case { op, len, rank, choice, polls, counts, messages, orders, colors, lists, partitions, sample_len }
    })
}

/// A partition of `samples` over all ranks, uneven, in any order of ranks, some of them empty.
fn partitions(samples: usize) -> impl Strategy<Value = Partition> {
    let ranks = Just((0..MOST_RANKS).collect::<Vec<_>>()).prop_shuffle();
    let cuts = prop::collection::vec(0..=samples, 0..MOST_RANKS);
    (ranks, cuts).prop_map(move |(ranks, mut cuts)| {
        cuts.sort_unstable();
        cuts.push(samples);
        let starts = std::iter::once(&0).chain(&cuts);
        let counts: Vec<_> =
            ranks.into_iter().zip(starts.zip(&cuts).map(|(start, end)| end - start)).collect();
        Partition::from_counts(&counts).expect("the ranks are distinct")
    })
}
