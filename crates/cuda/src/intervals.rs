//! Topological orders and intervals of a sequence: the algorithms for cutting and merging graphs,
//! without CUDA.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::time::Duration;

/// Returns the lexicographically smallest topological order of the nodes `0..nodes`, or `None` if
/// the edges form a cycle.
///
/// An edge is (before, after). O((n + e) log n) time for n nodes and e edges (Kahn's algorithm with
/// a heap).
pub(crate) fn order(nodes: usize, edges: &[(usize, usize)]) -> Option<Vec<usize>> {
    let (mut waits_for, mut followers) = (vec![0_usize; nodes], vec![Vec::new(); nodes]);
    for &(before, after) in edges {
        waits_for[after] += 1;
        followers[before].push(after);
    }
    let mut next: BinaryHeap<_> = (0..nodes).filter(|&node| waits_for[node] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(nodes);
    while let Some(Reverse(node)) = next.pop() {
        order.push(node);
        for &follower in &followers[node] {
            waits_for[follower] -= 1;
            if waits_for[follower] == 0 {
                next.push(Reverse(follower));
            }
        }
    }
    (order.len() == nodes).then_some(order)
}

/// Cuts a sequence greedily into intervals whose times sum to at most `budget`, and returns their
/// ranges of indices. An element that exceeds the budget is a separate interval.
pub(crate) fn pieces(times: &[Duration], budget: Duration) -> Vec<Range<usize>> {
    split(times, |whole, _| whole > budget, |_, _| false)
}

/// Groups consecutive elements by their times until a group exceeds `soft_limit` or has `count`
/// elements, and returns the groups' ranges of indices. A group exceeds `hard_limit` only if it is
/// a single element.
pub(crate) fn groups(
    times: &[Duration],
    soft_limit: Duration,
    hard_limit: Duration,
    count: NonZeroUsize,
) -> Vec<Range<usize>> {
    split(times, |whole, _| whole > hard_limit, |whole, members| whole > soft_limit || members >= count.get())
}

/// Cuts a sequence into intervals. `too_much` is called with the next element included and refuses
/// it; `full` is called after an element was added and closes the interval.
fn split(
    times: &[Duration],
    too_much: impl Fn(Duration, usize) -> bool,
    full: impl Fn(Duration, usize) -> bool,
) -> Vec<Range<usize>> {
    let mut intervals = Vec::new();
    let (mut start, mut whole) = (0, Duration::ZERO);
    for (index, &time) in times.iter().enumerate() {
        if start < index && too_much(whole.saturating_add(time), index + 1 - start) {
            intervals.push(start..index);
            (start, whole) = (index, Duration::ZERO);
        }
        whole = whole.saturating_add(time);
        if full(whole, index + 1 - start) {
            intervals.push(start..index + 1);
            (start, whole) = (index + 1, Duration::ZERO);
        }
    }
    if start < times.len() {
        intervals.push(start..times.len());
    }
    intervals
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sum(times: &[Duration]) -> Duration {
        times.iter().sum()
    }

    /// Strategy for acyclic graphs: edges lead from smaller to larger numbers, and then the numbers
    /// are shuffled.
    fn graph() -> impl Strategy<Value = (usize, Vec<(usize, usize)>)> {
        (1_usize..40).prop_flat_map(|nodes| {
            let edges = proptest::collection::vec((0..nodes, 0..nodes), 0..80);
            let names = Just((0..nodes).collect::<Vec<_>>()).prop_shuffle();
            (Just(nodes), edges, names).prop_map(|(nodes, edges, names)| {
                let forwards = edges.into_iter().filter(|(a, b)| a != b);
                let edges = forwards.map(|(a, b)| (names[a.min(b)], names[a.max(b)])).collect();
                (nodes, edges)
            })
        })
    }

    fn times() -> impl Strategy<Value = Vec<Duration>> {
        proptest::collection::vec((0_u64..900).prop_map(Duration::from_micros), 0..60)
    }

    proptest! {
        #[test]
        fn every_node_comes_once_and_after_those_that_it_waits_for((nodes, edges) in graph()) {
            let order = order(nodes, &edges).expect("there is no cycle");
            let mut place = vec![usize::MAX; nodes];
            for (position, &node) in order.iter().enumerate() {
                prop_assert_eq!(place[node], usize::MAX);
                place[node] = position;
            }
            prop_assert_eq!(order.len(), nodes);
            prop_assert!(edges.iter().all(|&(before, after)| place[before] < place[after]));
        }

        #[test]
        fn intervals_of_an_order_need_nothing_from_later_ones((nodes, edges) in graph(), cuts in times()) {
            let order = order(nodes, &edges).expect("there is no cycle");
            let times: Vec<_> = (0..nodes).map(|node| cuts.get(node).copied().unwrap_or_default()).collect();
            let pieces = pieces(&times, Duration::from_millis(1));
            let piece_of = |node| {
                let position = order.iter().position(|&at| at == node).expect("every node has a place");
                pieces.iter().position(|piece| piece.contains(&position)).expect("every place is in a piece")
            };
            prop_assert!(edges.iter().all(|&(before, after)| piece_of(before) <= piece_of(after)));
        }

        #[test]
        fn pieces_cover_everything_once_and_keep_the_budget(times in times(), budget in 0_u64..2000) {
            let budget = Duration::from_micros(budget);
            let pieces = pieces(&times, budget);
            prop_assert!(pieces.iter().cloned().flatten().eq(0..times.len()));
            for (index, piece) in pieces.iter().enumerate() {
                prop_assert!(piece.len() == 1 || sum(&times[piece.clone()]) <= budget);
                // The cut was necessary.
                if let Some(next) = pieces.get(index + 1) {
                    prop_assert!(sum(&times[piece.start..=next.start]) > budget);
                }
            }
        }

        #[test]
        fn groups_keep_their_limits(times in times(), count in 1_usize..12) {
            let (soft_limit, hard_limit) = (Duration::from_micros(500), Duration::from_millis(1));
            let groups = groups(&times, soft_limit, hard_limit, NonZeroUsize::new(count).unwrap());
            prop_assert!(groups.iter().cloned().flatten().eq(0..times.len()));
            for (index, group) in groups.iter().enumerate() {
                let whole = sum(&times[group.clone()]);
                prop_assert!(group.len() <= count);
                prop_assert!(group.len() == 1 || whole <= hard_limit);
                // Without its last element, a group is within the limit.
                prop_assert!(sum(&times[group.start..group.end - 1]) <= soft_limit);
                let next = groups.get(index + 1).map(|next| times[next.start]);
                let closed = whole > soft_limit || group.len() == count;
                prop_assert!(next.is_none_or(|next| closed || whole + next > hard_limit));
            }
        }
    }

    #[test]
    fn a_cycle_has_no_order() {
        assert_eq!(order(3, &[(0, 1), (1, 2), (2, 1)]), None);
        assert_eq!(order(0, &[]), Some(vec![]));
    }
}
