//! Subgroups: who is in them, and that they do not disturb each other.
#![expect(clippy::cast_possible_wrap, reason = "ranks and samples are small numbers")]

use std::thread;

use collectives::{Communicator, Error, Group, ReduceOp, Request, Result, ThreadCommunicator, ThreadWorld};
use proptest::prelude::*;

/// Who is in the group, in its order, as ranks of the world.
fn members(group: &ThreadCommunicator, world_rank: usize) -> Result<Vec<i64>> {
    let mut all = vec![0; group.size()];
    group.all_gather(&mut vec![world_rank as i64], &mut all, &mut ())?;
    Ok(all)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn split_groups_by_color_and_orders_by_key(
        choices in prop::collection::vec((prop::option::of(0..3_u32), -2..3_i32), 1..=8),
    ) {
        let results = ThreadWorld::new(choices.len()).run(|ranks| {
            let (color, key) = choices[ranks.rank()];
            match ranks.split(color, key)? {
                Some(group) => members(&group, ranks.rank()).map(|all| Some((group.rank(), all))),
                None => Ok(None),
            }
        });
        for (rank, result) in results.into_iter().enumerate() {
            let (color, _) = choices[rank];
            let mut expected: Vec<(i32, i64)> = (0..choices.len())
                .filter(|&other| color.is_some() && choices[other].0 == color)
                .map(|other| (choices[other].1, other as i64))
                .collect();
            expected.sort_unstable();
            let expected: Vec<i64> = expected.into_iter().map(|(_, other)| other).collect();
            let group = result.expect("split succeeds");
            prop_assert_eq!(group.is_some(), color.is_some());
            if let Some((place, all)) = group {
                prop_assert_eq!(all[place], rank as i64);
                prop_assert_eq!(all, expected);
            }
        }
    }

    /// Rank lists in any order, overlapping, asked for again and again, used side by side with the whole world.
    #[test]
    fn listed_groups_work_side_by_side(
        size in 2..=6_usize,
        lists in prop::collection::vec(Just((0..6_usize).collect::<Vec<_>>()).prop_shuffle(), 1..5),
        widths in prop::collection::vec(1..=6_usize, 5),
    ) {
        let lists: Vec<Vec<usize>> = lists
            .iter()
            .zip(&widths)
            .map(|(list, &width)| list.iter().copied().filter(|&rank| rank < size).take(width).collect())
            .collect();
        let results = ThreadWorld::new(size).run(|ranks| {
            let mut pending = Vec::new();
            for round in 0..3 {
                for list in lists.iter().filter(|list| list.contains(&ranks.rank())) {
                    let value = vec![(ranks.rank() + round) as i64];
                    let sum: i64 = list.iter().map(|rank| (rank + round) as i64).sum();
                    pending.push((sum, ranks.group(list)?.start_all_reduce(value, ReduceOp::Sum, &mut ())?));
                }
                ranks.barrier(&mut ())?;
            }
            pending.into_iter().rev().try_for_each(|(sum, request)| {
                assert_eq!(request.wait()?, [sum]);
                Ok::<_, Error>(())
            })
        });
        for result in results {
            result.expect("all groups reduce");
        }
    }
}

/// Two splits over the same ranks are two groups: two threads of each rank use them in whatever order they come.
#[test]
fn split_groups_are_independent_even_over_the_same_ranks() {
    let results = ThreadWorld::new(3).run(|ranks| {
        let first = ranks.split(Some(0), 0)?.expect("a color was given");
        let second = ranks.split(Some(0), 0)?.expect("a color was given");
        let work = |group: ThreadCommunicator, step: i64| -> Result<()> {
            for round in 0..200 {
                let mut value = vec![group.rank() as i64 * step + round];
                group.all_reduce(&mut value, ReduceOp::Sum, &mut ())?;
                assert_eq!(value, [3 * step + 3 * round]);
            }
            Ok(())
        };
        thread::scope(|scope| {
            let other = scope.spawn(|| work(second, 1_000));
            work(first, 10).and(other.join().expect("no assertion fails"))
        })
    });
    for result in results {
        result.expect("both groups reduce");
    }
}

#[test]
fn groups_nest() {
    let results = ThreadWorld::new(6).run(|ranks| {
        let Some(odd) = ranks.split((ranks.rank() % 2 == 1).then_some(7), -(ranks.rank() as i32))? else {
            return Ok(None);
        };
        // The odd ranks in descending order are 5, 3, 1; their first and last are 5 and 1.
        if odd.rank() == 1 {
            return Ok(None);
        }
        members(&odd.group(&[2, 0])?, ranks.rank()).map(Some)
    });
    let results: Vec<_> = results.into_iter().map(|result| result.expect("groups are made")).collect();
    assert_eq!(results, [None, Some(vec![1, 5]), None, None, None, Some(vec![1, 5])]);
}

#[test]
fn rank_lists_are_checked() {
    let ranks = ThreadWorld::new(3).communicators().remove(1);
    let error = |list: &[usize]| ranks.group(list).expect_err("the list is wrong");
    assert_eq!(error(&[0, 3, 1]), Error::NoSuchRank { rank: 3, size: 3 });
    assert_eq!(error(&[1, 0, 1]), Error::DuplicateRank { rank: 1 });
    assert_eq!(error(&[2, 0]), Error::NotAMember { rank: 1, ranks: vec![2, 0] });
    assert_eq!(error(&[]), Error::NotAMember { rank: 1, ranks: vec![] });
}
