//! Membership and independence of subgroups.

use std::thread;

use collectives::{ReduceOp, Request, Result};

use super::{Carries, Case, Subject};

/// Gathers `own` of each member of the group, in its order.
fn members<C: Carries<i64>>(group: &C, own: usize) -> Result<Vec<usize>> {
    let mut all = group.buffer(&vec![0; group.size()]);
    group.all_gather(&mut group.buffer(&[own as i64]), &mut all, &mut group.queue())?;
    Ok(group.values(&all).into_iter().map(|member| member as usize).collect())
}

pub(crate) fn split_groups_by_color_and_orders_by_key<C: Subject>(ranks: &C, case: &Case) -> Result<()> {
    let (color, key) = case.colors[ranks.rank()];
    let mut expected: Vec<(i32, usize)> = (0..ranks.size())
        .filter(|&other| color.is_some() && case.colors[other].0 == color)
        .map(|other| (case.colors[other].1, other))
        .collect();
    expected.sort_unstable();
    let expected: Vec<usize> = expected.into_iter().map(|(_, other)| other).collect();

    let group = ranks.split(color, key)?;
    assert_eq!(group.is_some(), color.is_some());
    if let Some(group) = group {
        let all = members(&group, ranks.rank())?;
        assert_eq!(all[group.rank()], ranks.rank());
        assert_eq!(all, expected);
    }
    Ok(())
}

/// Overlapping rank lists in any order, requested repeatedly and used concurrently with the whole
/// group.
pub(crate) fn listed_groups_are_independent<C: Subject>(ranks: &C, case: &Case) -> Result<()> {
    fn law<C: Carries<i64>>(ranks: &C, case: &Case) -> Result<()> {
        let queue = &mut ranks.queue();
        let size = ranks.size();
        let lists = case.lists.iter().map(|(list, width)| {
            list.iter().copied().filter(|&rank| rank < size).take(*width).collect::<Vec<_>>()
        });
        let mine: Vec<_> = lists.filter(|list| list.contains(&ranks.rank())).collect();
        let mut pending = Vec::new();
        for round in 0..3 {
            for list in &mine {
                let value = ranks.buffer(&[(ranks.rank() + round) as i64]);
                let sum: i64 = list.iter().map(|rank| (rank + round) as i64).sum();
                let group = ranks.group(list)?;
                pending.push((sum, group.start_all_reduce(value, ReduceOp::Sum, queue)?));
            }
            ranks.barrier(queue)?;
        }
        pending.into_iter().rev().try_for_each(|(sum, request)| {
            assert_eq!(ranks.values(&request.wait()?), [sum]);
            Ok(())
        })
    }
    law(ranks, case)
}

pub(crate) fn groups_nest<C: Subject>(ranks: &C, _: &Case) -> Result<()> {
    let rank = ranks.rank();
    let Some(odd) = ranks.split((rank % 2 == 1).then_some(7), -(rank as i32))? else { return Ok(()) };
    // The odd ranks in descending order, and of these the last and the first.
    let last = odd.size() - 1;
    if last == 0 || (odd.rank() != 0 && odd.rank() != last) {
        return Ok(());
    }
    assert_eq!(members(&odd.group(&[last, 0])?, rank)?, [1, 2 * last + 1]);
    Ok(())
}

/// Splits over the same ranks are independent groups: two threads of each rank use them in any
/// order and create further groups meanwhile.
pub(crate) fn threads_of_a_rank_use_separate_groups<C: Subject>(ranks: &C, case: &Case) -> Result<()> {
    fn work<C: Carries<i64>>(group: &C, step: usize, rounds: usize) -> Result<()> {
        let queue = &mut group.queue();
        let size = group.size();
        for round in 0..rounds {
            let mut value = group.buffer(&[(group.rank() * step + round) as i64]);
            group.all_reduce(&mut value, ReduceOp::Sum, queue)?;
            assert_eq!(group.values(&value), [(step * size * (size - 1) / 2 + round * size) as i64]);
        }
        Ok(())
    }
    fn use_group<C: Carries<i64>>(group: &C, step: usize, rounds: usize) -> Result<()> {
        work(group, step, rounds)?;
        let reversed: Vec<usize> = (0..group.size()).rev().collect();
        work(&group.group(&reversed)?, step, rounds)?;
        match group.split(Some(group.rank() as u32 % 2), 0)? {
            Some(half) => work(&half, step, rounds),
            None => Ok(()),
        }
    }
    let groups = [ranks.split(Some(0), 0)?, ranks.split(Some(0), 0)?, Some(ranks.clone())];
    let rounds = 3 + case.choice % 20;
    thread::scope(|scope| {
        let threads: Vec<_> = groups
            .iter()
            .flatten()
            .enumerate()
            .map(|(step, group)| scope.spawn(move || use_group(group, 10 * step + 1, rounds)))
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no assertion fails"))
    })
}
