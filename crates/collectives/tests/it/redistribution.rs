//! Tests of redistributions' moves. The suite tests that the samples arrive.

use std::collections::BTreeMap;

use collectives::{
    Communicator, Error, HostBuffer, Partition, Redistribution, RedistributionRequest, ThreadWorld,
};
use proptest::prelude::*;

/// A partition of `samples` over up to six ranks in any order, uneven, with some empty shards.
fn partitions(samples: usize) -> impl Strategy<Value = Partition> {
    let ranks = Just((0..6_usize).collect::<Vec<_>>()).prop_shuffle();
    let cuts = prop::collection::vec(0..=samples, 0..6);
    (ranks, cuts).prop_map(move |(ranks, mut cuts)| {
        cuts.sort_unstable();
        cuts.push(samples);
        let starts = std::iter::once(&0).chain(&cuts);
        let counts: Vec<_> =
            ranks.into_iter().zip(starts.zip(&cuts).map(|(start, end)| end - start)).collect();
        Partition::from_counts(&counts).expect("the ranks are distinct")
    })
}

fn two_partitions() -> impl Strategy<Value = (Partition, Partition)> {
    (0..40_usize).prop_flat_map(|samples| (partitions(samples), partitions(samples)))
}

/// Returns the rank that holds each sample.
fn owners(partition: &Partition) -> BTreeMap<usize, usize> {
    partition.shards().flat_map(|(rank, samples)| samples.map(move |sample| (sample, rank))).collect()
}

proptest! {
    #[test]
    fn even_partitions_are_contiguous_and_differ_by_at_most_one(
        samples in 0..100_usize,
        ranks in Just((0..7_usize).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let partition = Partition::even(samples, &ranks).expect("the ranks are distinct");
        let mut next = 0;
        for (i, &rank) in ranks.iter().enumerate() {
            let shard = partition.shard(rank);
            prop_assert_eq!(shard.start, next);
            prop_assert_eq!(shard.len(), samples / 7 + usize::from(i < samples % 7));
            next = shard.end;
        }
        prop_assert_eq!((next, partition.samples(), partition.ranks()), (samples, samples, &ranks[..]));
    }

    #[test]
    fn a_sample_moves_once_and_only_if_its_owner_changes((from, to) in two_partitions()) {
        let redistribution = Redistribution::new(&from, &to).expect("the samples are the same");
        let (before, after) = (owners(&from), owners(&to));
        let mut moved = BTreeMap::new();
        for one in redistribution.moves() {
            for sample in one.samples.clone() {
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
            prop_assert_eq!(redistribution.kept(rank).collect::<Vec<_>>(), kept);
        }
        let rank_bytes = |r| redistribution.sent_bytes(r, 3).max(redistribution.received_bytes(r, 3));
        let busiest = (0..6).map(rank_bytes).max();
        prop_assert_eq!(Some(redistribution.busiest_rank_bytes(3)), busiest);
        let reversed = Redistribution::new(&to, &from).expect("the same samples");
        prop_assert_eq!(&redistribution.reversed(), &reversed);
    }
}

#[test]
fn an_identity_does_not_communicate() {
    let partition = Partition::even(5, &[0, 1]).expect("the ranks are distinct");
    let stay = Redistribution::new(&partition, &partition).expect("the samples are the same");
    assert!(stay.is_identity());
    // Only rank 1 calls it, and rank 0 has already left.
    let rank_1 = ThreadWorld::new(2).communicators().remove(1);
    let mut arrived = HostBuffer::from(vec![0.0; 2]);
    let pending = rank_1.start_redistribution(&stay, &vec![3.0, 4.0].into(), 1, &mut ());
    assert_eq!(pending.and_then(|pending| pending.wait_into(&mut arrived)), Ok(()));
    assert_eq!(arrived, [3.0, 4.0]);
}

#[test]
fn wrong_partitions_groups_and_buffers_are_errors() {
    assert_eq!(Partition::even(3, &[]), Err(Error::NoRanks { samples: 3 }));
    assert_eq!(Partition::even(3, &[4, 4]), Err(Error::DuplicateRank { rank: 4 }));
    assert_eq!(Partition::from_counts(&[(1, 2), (0, 0), (1, 0)]), Err(Error::DuplicateRank { rank: 1 }));

    let three = Partition::even(3, &[0]).expect("one rank");
    let four = Partition::even(4, &[0, 1]).expect("two ranks");
    assert_eq!(Redistribution::new(&three, &four), Err(Error::SampleCountsDiffer { from: 3, to: 4 }));

    let narrow =
        Redistribution::new(&four, &Partition::even(4, &[0]).expect("one rank")).expect("four samples");
    let alone = ThreadWorld::new(1).communicators().remove(0);
    let error = alone
        .start_redistribution(&narrow, &vec![0_u8; 4].into(), 2, &mut ())
        .expect_err("the group is too small");
    assert_eq!(error, Error::WrongGroup { ranks: vec![0, 1], size: 1 });

    let pair = ThreadWorld::new(2).communicators().remove(1);
    let error = pair
        .start_redistribution(&narrow, &vec![0_u8; 3].into(), 2, &mut ())
        .expect_err("two samples are four elements");
    assert_eq!(error, Error::WrongShard { rank: 1, samples: 2, sample_len: 2, actual: 3 });
    let pending = pair
        .start_redistribution(&narrow.reversed(), &HostBuffer::<u8>::default(), 2, &mut ())
        .expect("rank 1 holds nothing yet");
    let error = pending.wait_into(&mut vec![0; 5].into()).expect_err("two samples are four elements");
    assert_eq!(error, Error::WrongShard { rank: 1, samples: 2, sample_len: 2, actual: 5 });
}
