//! The order in which a program does things one after another.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::PlanProblem;

/// The nodes of a valid problem in program order: producers before consumers, else the one that was added first.
pub(crate) fn program_order(problem: &PlanProblem) -> Vec<usize> {
    let mut consumers = vec![Vec::new(); problem.nodes.len()];
    let mut producers = vec![0_usize; problem.nodes.len()];
    for edge in &problem.edges {
        consumers[edge.from.0].push(edge.to.0);
        producers[edge.to.0] += 1;
    }
    let ready = (0..problem.nodes.len()).filter(|&node| producers[node] == 0).map(Reverse);
    let mut ready: BinaryHeap<Reverse<usize>> = ready.collect();
    let mut order = Vec::with_capacity(problem.nodes.len());
    while let Some(Reverse(node)) = ready.pop() {
        order.push(node);
        for &consumer in &consumers[node] {
            producers[consumer] -= 1;
            if producers[consumer] == 0 {
                ready.push(Reverse(consumer));
            }
        }
    }
    order
}
