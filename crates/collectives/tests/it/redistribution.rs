//! Tests of redistributions' moves. The suite tests that the samples arrive.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use collectives::{
    Communicator, Error, HostBuffer, Layout, Redistribution, RedistributionBuffers, ThreadCommunicator,
    ThreadWorld,
};
use proptest::prelude::*;

/// A layout of `samples` over up to six ranks in any order, uneven, with some empty shards.
fn layouts(samples: usize) -> impl Strategy<Value = Layout> {
    let ranks = Just((0..6_usize).collect::<Vec<_>>()).prop_shuffle();
    let cuts = prop::collection::vec(0..=samples, 0..6);
    (ranks, cuts).prop_map(move |(ranks, mut cuts)| {
        cuts.sort_unstable();
        cuts.push(samples);
        let starts = std::iter::once(&0).chain(&cuts);
        let counts: Vec<_> =
            ranks.into_iter().zip(starts.zip(&cuts).map(|(start, end)| end - start)).collect();
        Layout::from_counts(&counts).expect("the ranks are distinct")
    })
}

fn two_layouts() -> impl Strategy<Value = (Layout, Layout)> {
    (0..40_usize).prop_flat_map(|samples| (layouts(samples), layouts(samples)))
}

/// Returns the rank that holds each sample.
fn owners(layout: &Layout) -> BTreeMap<usize, usize> {
    layout.shards().flat_map(|(rank, samples)| samples.map(move |sample| (sample, rank))).collect()
}

proptest! {
    #[test]
    fn even_layouts_are_contiguous_and_differ_by_at_most_one(
        samples in 0..100_usize,
        ranks in Just((0..7_usize).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let layout = Layout::even(samples, &ranks).expect("the ranks are distinct");
        let mut next = 0;
        for (i, &rank) in ranks.iter().enumerate() {
            let shard = layout.shard(rank);
            prop_assert_eq!(shard.start, next);
            prop_assert_eq!(shard.len(), samples / 7 + usize::from(i < samples % 7));
            next = shard.end;
        }
        prop_assert_eq!((next, layout.samples(), layout.ranks()), (samples, samples, &ranks[..]));
    }

    #[test]
    fn a_sample_moves_once_and_only_if_its_owner_changes((from, to) in two_layouts()) {
        let redistribution = Redistribution::new(&from, &to).expect("the samples are the same");
        let (before, after) = (owners(&from), owners(&to));
        let mut moved = BTreeMap::new();
        for one in redistribution.moves() {
            for sample in one.samples() {
                prop_assert_eq!(moved.insert(sample, (one.from_rank, one.to_rank)), None);
            }
        }
        let changed: BTreeMap<_, _> = before
            .iter()
            .map(|(&sample, &owner)| (sample, (owner, after[&sample])))
            .filter(|(_, (before, after))| before != after)
            .collect();
        prop_assert_eq!(&moved, &changed);
        prop_assert_eq!(redistribution.is_identity(), changed.is_empty());
        for rank in 0..6 {
            let sent = changed.values().filter(|(before, _)| *before == rank).count() as u64;
            let received = changed.values().filter(|(_, after)| *after == rank).count() as u64;
            prop_assert_eq!(redistribution.sent_bytes(rank, 12), sent * 12);
            prop_assert_eq!(redistribution.received_bytes(rank, 12), received * 12);
            let kept: Vec<usize> =
                before.keys().copied().filter(|s| before[s] == rank && after[s] == rank).collect();
            prop_assert_eq!(redistribution.kept(rank).samples().collect::<Vec<_>>(), kept);
        }
        let rank_bytes = |r| redistribution.sent_bytes(r, 3).max(redistribution.received_bytes(r, 3));
        let busiest = (0..6).map(rank_bytes).max();
        prop_assert_eq!(Some(redistribution.busiest_rank_bytes(3)), busiest);
    }

    #[test]
    fn each_wanted_item_arrives_once_and_replicas_send_to_as_many_ranks(
        extents in prop::array::uniform2(1..7_usize),
        order in Just((0..12_usize).collect::<Vec<_>>()).prop_shuffle(),
        (parts, replicas) in (prop::array::uniform2(1..3_usize), 1..4_usize),
        wanted in prop::array::uniform2(1..4_usize),
    ) {
        let holders = &order[..parts[0] * parts[1] * replicas];
        let from = Layout::grid(&extents, &parts, holders).expect("a grid with replicas");
        let targets: Vec<usize> = (0..12).collect();
        let to = Layout::grid(&extents, &[wanted[0], 1], &targets[..wanted[0] * wanted[1]]).expect("a grid");
        let redistribution = Redistribution::new(&from, &to).expect("the same array");
        for (rank, region) in to.regions() {
            let moves = redistribution.moves().iter().filter(|m| m.to_rank == rank);
            let received: usize = moves.map(collectives::Move::items).sum();
            let kept = redistribution.kept(rank).items();
            prop_assert_eq!(Some(received + kept.expect("few items")), region.items());
        }
        for one in redistribution.moves() {
            let held = from.region(one.from_rank).expect("a rank that has items");
            prop_assert_eq!(&held.intersection(&one.region), &one.region);
            // No holder of the box sends to more ranks than if the box was sent evenly.
            let copies = from.regions().filter(|(_, region)| *region == held).map(|(rank, _)| rank);
            let sent = |holder| redistribution.moves().iter().filter(|m| m.from_rank == holder).count();
            let sent: Vec<usize> = copies.map(sent).collect();
            let even = sent.iter().sum::<usize>().div_ceil(sent.len());
            prop_assert!(sent.iter().all(|&sent| sent <= even), "{sent:?}");
        }
    }
}

#[test]
fn replicas_share_the_sending() {
    // Both halves of the items are on two ranks, and go to ranks that have none.
    let copies = Layout::grid(&[4], &[2], &[0, 1, 2, 3]).expect("two replicas");
    let wide = Layout::even(4, &[4, 5, 1, 6]).expect("distinct ranks");
    let spread = Redistribution::new(&copies, &wide).expect("the same samples");
    let moves: Vec<_> = spread.moves().iter().map(|m| (m.from_rank, m.to_rank, m.samples())).collect();
    assert_eq!(moves, [(1, 4, 0..1), (0, 5, 1..2), (2, 1, 2..3), (3, 6, 3..4)]);
    // A rank that has the items already receives none.
    let all = Layout::grid(&[4], &[1], &[0, 2, 5]).expect("three replicas");
    let gather = Redistribution::new(&copies, &all).expect("the same samples");
    let moves: Vec<_> = gather.moves().iter().map(|m| (m.from_rank, m.to_rank, m.samples())).collect();
    assert_eq!(moves, [(1, 2, 0..2), (0, 5, 0..2), (2, 0, 2..4), (3, 5, 2..4)]);
}

#[test]
fn replicas_send_to_near_ranks() {
    // Ranks 0 and 8 are on two hosts.
    let copies = Layout::grid(&[4], &[1], &[0, 8]).expect("two replicas");
    let wide = Layout::even(4, &[10, 1, 9, 2]).expect("distinct ranks");
    let spread = Redistribution::new(&copies, &wide).expect("the same samples");
    let moves: Vec<_> = spread.moves().iter().map(|m| (m.from_rank, m.to_rank)).collect();
    assert_eq!(moves, [(8, 10), (0, 1), (8, 9), (0, 2)]);
}

#[test]
fn wrong_layouts_groups_and_buffers_are_errors() {
    assert_eq!(Layout::even(3, &[]), Err(Error::NoRanks { samples: 3 }));
    assert_eq!(Layout::even(3, &[4, 4]), Err(Error::DuplicateRank { rank: 4 }));
    assert_eq!(Layout::from_counts(&[(1, 2), (0, 0), (1, 0)]), Err(Error::DuplicateRank { rank: 1 }));
    for parts in [&[2, 2][..], &[0, 3], &[3], &[1, 1, 3], &[usize::MAX, 2]] {
        let error = Layout::grid(&[6, 6], parts, &[0, 1, 2]).expect_err("no grid");
        assert_eq!(error, Error::WrongGrid { extents: vec![6, 6], parts: parts.to_vec(), ranks: 3 });
    }
    let three = Layout::even(3, &[0]).expect("one rank");
    let four = Layout::even(4, &[0, 1]).expect("two ranks");
    for ranges in [Vec::new(), vec![0..2, 2..5], vec![0..4, Range { start: 2, end: 1 }]] {
        let error = four.clone().with_ranges(0, ranges).expect_err("wrong ranges");
        assert_eq!(error, Error::WrongRanges { dimension: 0, extent: 4, parts: 2 });
    }
    let differ = Error::ExtentsDiffer { from: vec![3], to: vec![4] };
    assert_eq!(Redistribution::new(&three, &four), Err(differ));
    for ranges in [vec![0..2, 3..4], vec![0..3, 2..4], vec![2..4, 0..2], vec![0..2, 2..3]] {
        let partial = four.clone().with_ranges(0, ranges).expect("two ranges");
        assert_eq!(Redistribution::new(&partial, &four), Err(Error::Incomplete { dimension: 0 }));
    }

    let one = Layout::even(4, &[0]).expect("one rank");
    let narrow = Arc::new(Redistribution::new(&four, &one).expect("four samples"));
    let start =
        |ranks: &ThreadCommunicator, redistribution, [input, output, packed]: [usize; 3], item_len| {
            let buffer = |len| HostBuffer::from(vec![0_u8; len]);
            let packed = [buffer(packed), buffer(0)];
            let buffers = RedistributionBuffers { input: buffer(input), output: buffer(output), packed };
            ranks.start_redistribution(redistribution, buffers, item_len, &mut ()).expect_err("it is wrong")
        };
    let alone = ThreadWorld::new(1).communicators().remove(0);
    assert_eq!(start(&alone, &narrow, [4, 8, 0], 2), Error::WrongGroup { ranks: vec![0, 1], size: 1 });
    let pair = ThreadWorld::new(2).communicators().remove(1);
    let wrong = |buffer, expected, actual| Error::WrongShard { rank: 1, buffer, expected, actual };
    assert_eq!(start(&pair, &narrow, [3, 0, 0], 2), wrong("input", 4, 3));
    assert_eq!(start(&pair, &narrow, [4, 1, 0], 2), wrong("output", 0, 1));
    assert_eq!(start(&pair, &narrow, [4, 0, 9], 2), wrong("packed input", 0, 9));
    let too_large = Error::ArrayTooLarge { extents: vec![4], item_len: usize::MAX / 2 };
    assert_eq!(start(&pair, &narrow, [0, 0, 0], usize::MAX / 2), too_large);
}
