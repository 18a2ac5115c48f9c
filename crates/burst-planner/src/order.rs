//! The order in which a program does things one after another.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::PlanProblem;

/// The nodes of a valid problem in program order: producers before consumers, else the one that was added first.
pub(crate) fn program_order(problem: &PlanProblem) -> Vec<usize> {
    let mut consumers = vec![Vec::new(); problem.nodes.len()];
    for edge in &problem.edges {
        consumers[edge.from.0].push(edge.to.0);
    }
    topological(consumers.len(), |node| consumers[node].iter().copied())
}

/// So many nodes, each before those that come `after` it, else the smaller index first. As far as it goes: fewer if there is a cycle.
pub(crate) fn topological<I: Iterator<Item = usize>>(count: usize, after: impl Fn(usize) -> I) -> Vec<usize> {
    let mut waits = vec![0_usize; count];
    for later in (0..count).flat_map(&after) {
        waits[later] += 1;
    }
    let mut ready: BinaryHeap<_> = (0..count).filter(|&node| waits[node] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(count);
    while let Some(Reverse(node)) = ready.pop() {
        order.push(node);
        for later in after(node) {
            waits[later] -= 1;
            if waits[later] == 0 {
                ready.push(Reverse(later));
            }
        }
    }
    order
}
