//! Gradients reduced in buckets: the sums, whatever the order in which they become ready, and what is refused.
#![expect(clippy::cast_possible_wrap, reason = "ranks and elements are small numbers")]

use std::time::Duration;

use collectives::{BucketedAllReduce, Bucketing, Error, Gradient, GradientFault, Group, ThreadWorld};
use proptest::prelude::*;

const RANKS: usize = 4;

/// Gradients of random groups and lengths, and for each rank an order in which it computes them.
fn gradients() -> impl Strategy<Value = (Vec<Gradient>, Vec<Vec<usize>>)> {
    let ranks = prop::sample::subsequence((0..RANKS).collect::<Vec<_>>(), 1..=RANKS);
    let gradient = (ranks, 0..300_usize).prop_map(|(ranks, elements)| Gradient { ranks, elements });
    prop::collection::vec(gradient, 1..12).prop_flat_map(|gradients| {
        let order = Just((0..gradients.len()).collect::<Vec<_>>()).prop_shuffle();
        (Just(gradients), prop::collection::vec(order, RANKS))
    })
}

fn value(rank: usize, gradient: usize, iteration: usize, element: usize) -> i64 {
    (rank * 1_000 + gradient * 100 + iteration * 10 + element % 7) as i64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Ranks compute in different orders: the groups overlap, and still nobody waits for ever or gets another's sum.
    #[test]
    fn every_gradient_is_summed_over_its_ranks((gradients, orders) in gradients(), bucket_bytes in 0..4_000_u64) {
        let results = ThreadWorld::new(RANKS).run(|ranks| -> Result<(), Error> {
            let me = ranks.rank();
            let mut all_reduce = BucketedAllReduce::new(&ranks, &gradients, bucket_bytes)?;
            for iteration in 0..3 {
                for &g in orders[me].iter().filter(|&&g| gradients[g].ranks.contains(&me)) {
                    let values: Vec<i64> =
                        (0..gradients[g].elements).map(|i| value(me, g, iteration, i)).collect();
                    all_reduce.ready(g, &values, &mut ())?;
                }
                let mut seen = Vec::new();
                all_reduce.finish(|g, sums| {
                    seen.push(g);
                    let sum = |i| gradients[g].ranks.iter().map(|&rank| value(rank, g, iteration, i)).sum();
                    let expected: Vec<i64> = (0..gradients[g].elements).map(sum).collect();
                    assert_eq!(sums, expected);
                })?;
                seen.sort_unstable();
                let mine: Vec<usize> =
                    (0..gradients.len()).filter(|&g| gradients[g].ranks.contains(&me)).collect();
                assert_eq!(seen, mine);
            }
            Ok(())
        });
        for result in results {
            prop_assert_eq!(result, Ok(()));
        }
    }

    /// Each gradient once, with its own kind, in order; full buckets have the size but for their last gradient.
    #[test]
    fn buckets_are_of_one_group_and_size((gradients, _) in gradients(), bucket_bytes in 1..2_000_u64) {
        let mut bucketing = Bucketing::new(bucket_bytes);
        let bytes = |g: usize| gradients[g].elements as u64;
        let mut seen = Vec::new();
        for (g, gradient) in gradients.iter().enumerate() {
            if let Some(full) = bucketing.add(&gradient.ranks, g, bytes(g)) {
                prop_assert_eq!(full.gradients.last(), Some(&g));
                prop_assert!(full.bytes >= bucket_bytes && full.bytes - bytes(g) < bucket_bytes);
                seen.push(full);
            }
        }
        seen.extend(bucketing.finish());
        for bucket in &seen {
            prop_assert!(bucket.gradients.iter().all(|&g| gradients[g].ranks == bucket.ranks));
            prop_assert!(bucket.gradients.is_sorted());
            prop_assert_eq!(bucket.gradients.iter().map(|&g| bytes(g)).sum::<u64>(), bucket.bytes);
        }
        let mut all: Vec<usize> = seen.into_iter().flat_map(|bucket| bucket.gradients).collect();
        all.sort_unstable();
        prop_assert_eq!(all, (0..gradients.len()).collect::<Vec<_>>());
    }
}

#[test]
fn wrong_gradients_are_refused_and_the_iteration_goes_on() {
    let gradients = [Gradient { ranks: vec![0, 1], elements: 2 }, Gradient { ranks: vec![1], elements: 1 }];
    let results = ThreadWorld::new(2).run(|ranks| {
        let mut all_reduce = BucketedAllReduce::new(&ranks, &gradients, 100)?;
        let mut faults = Vec::new();
        let mut fault = |outcome: Result<(), Error>| match outcome {
            Err(Error::BadGradient { rank, gradient, fault }) if rank == ranks.rank() => {
                faults.push((gradient, fault));
            }
            other => panic!("{other:?}"),
        };
        fault(all_reduce.ready(2, &[1.0], &mut ()));
        fault(all_reduce.ready(0, &[1.0], &mut ()));
        if ranks.rank() == 0 {
            fault(all_reduce.ready(1, &[1.0], &mut ()));
        } else {
            all_reduce.ready(1, &[5.0], &mut ())?;
            fault(all_reduce.ready(1, &[5.0], &mut ()));
        }
        fault(all_reduce.finish(|_, _| panic!("nothing is summed yet")));
        all_reduce.ready(0, &[1.0, 2.0], &mut ())?;
        let mut sums = Vec::new();
        all_reduce.finish(|_, sum| sums.extend_from_slice(sum))?;
        Ok::<_, Error>((faults, sums))
    });
    let unknown = (2, GradientFault::Unknown { gradients: 2 });
    let length = (0, GradientFault::WrongLength { expected: 2, actual: 1 });
    let missing = (0, GradientFault::Missing);
    let elsewhere = (1, GradientFault::Elsewhere { ranks: vec![1] });
    let twice = (1, GradientFault::Twice);
    let rank_0 = (vec![unknown.clone(), length.clone(), elsewhere, missing.clone()], vec![2.0, 4.0]);
    let rank_1 = (vec![unknown, length, twice, missing], vec![2.0, 4.0, 5.0]);
    assert_eq!(results, [Ok(rank_0), Ok(rank_1)]);
}

/// Rank 1 comes too late for one gradient of three: what the others had started by then meets nothing that comes later.
#[test]
fn after_a_failure_only_a_new_one_sums() {
    let gradients = [
        Gradient { ranks: vec![0, 1, 2], elements: 1 },
        Gradient { ranks: vec![0, 1], elements: 1 },
        Gradient { ranks: vec![0, 2], elements: 1 },
    ];
    let late = std::sync::Barrier::new(3);
    let world = ThreadWorld::new(3).with_timeout(Duration::from_millis(200));
    let results = world.run(|ranks| {
        let me = ranks.rank();
        let mut all_reduce = BucketedAllReduce::new(&ranks, &gradients, 1)?;
        let iteration = |all_reduce: &mut BucketedAllReduce<i64, _>, value: i64| {
            for g in (0..gradients.len()).filter(|&g| gradients[g].ranks.contains(&me)) {
                all_reduce.ready(g, &[value], &mut ())?;
            }
            let mut sums = Vec::new();
            all_reduce.finish(|_, sum| sums.push(sum[0]))?;
            Ok::<_, Error>(sums)
        };
        if me == 1 {
            late.wait();
        }
        let failed = iteration(&mut all_reduce, 1);
        if me != 1 {
            late.wait();
        }
        let failure = failed.expect_err("rank 1 came too late");
        assert!(matches!(failure, Error::TimedOut { .. }), "{failure}");
        assert_eq!(iteration(&mut all_reduce, 10), Err(failure));
        iteration(&mut BucketedAllReduce::new(&ranks, &gradients, 1)?, 100)
    });
    assert_eq!(results, [Ok(vec![300, 200, 200]), Ok(vec![300, 200]), Ok(vec![300, 200])]);
}

#[test]
fn a_bucket_larger_than_memory_is_refused() {
    let gradient = |elements| Gradient { ranks: vec![0], elements };
    let gradients = [gradient(1), gradient(usize::MAX / 4)];
    let ranks = ThreadWorld::new(1).communicators().remove(0);
    let outcome = BucketedAllReduce::<f32, _>::new(&ranks, &gradients, 100).map(|_| ());
    assert_eq!(outcome, Err(Error::BadGradient { rank: 0, gradient: 1, fault: GradientFault::TooLarge }));
}

#[test]
fn a_list_with_a_wrong_rank_is_refused() {
    let gradients = [Gradient { ranks: vec![0, 3], elements: 1 }];
    let ranks = ThreadWorld::new(2).communicators().remove(0);
    let outcome = BucketedAllReduce::<f32, _>::new(&ranks, &gradients, 1).map(|_| ());
    assert_eq!(outcome, Err(Error::NoSuchRank { rank: 3, size: 2 }));
}
