//! Which gradients go into which bucket, what is refused, and what is left after a failure. (The sums are a law of the suite.)

use std::time::Duration;

use collectives::{BucketedAllReduce, Bucketing, Error, Gradient, GradientFault, Group, ThreadWorld};
use proptest::prelude::*;

fn gradients() -> impl Strategy<Value = Vec<Gradient>> {
    let ranks = prop::sample::subsequence((0..4_usize).collect::<Vec<_>>(), 1..=4);
    let gradient = (ranks, 0..300_usize).prop_map(|(ranks, elements)| Gradient { ranks, elements });
    prop::collection::vec(gradient, 1..12)
}

proptest! {
    /// Each gradient once, with its own kind, in order; full buckets have the size but for their last gradient.
    #[test]
    fn buckets_are_of_one_group_and_size(gradients in gradients(), bucket_bytes in 1..2_000_u64) {
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
