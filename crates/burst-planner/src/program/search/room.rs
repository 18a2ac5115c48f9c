//! Where memory is short: arrangements that spread what is held.

use std::rc::Rc;

use super::super::costs::{Share, TrainingCosts};
use super::super::evaluator::{Evaluator, Numbered};

/// The order of the nodes in stretches that hold about as much each, on ranks of their own: for every number of stretches, as many
/// ranks each as there are for all of them. None without a limit on memory. O(nodes x gpus).
pub(super) fn stretches<C: TrainingCosts>(evaluator: &mut Evaluator<'_, C>, gpus: usize) -> Vec<Numbered> {
    if evaluator.problem().memory_limit_bytes.is_none() {
        return Vec::new();
    }
    let order = Rc::clone(evaluator.own_order());
    let held: Vec<f64> = order.iter().map(|&node| held(evaluator, node as usize)).collect();
    let all: f64 = held.iter().sum();
    let mut found = Vec::new();
    for count in 2..=gpus {
        let ranks = gpus / count;
        let (mut groups, mut before) = (vec![0; order.len()], 0.0);
        for (&node, &held) in order.iter().zip(&held) {
            // By the middle of what the node holds.
            let place = (before + held / 2.0) / all.max(1.0) * count as f64;
            before += held;
            let stretch = (place as usize).min(count - 1);
            groups[node as usize] = evaluator.range(stretch * ranks, ranks);
        }
        if order.iter().all(|&node| evaluator.is_option(node as usize, groups[node as usize])) {
            found.push(Numbered { groups, order: Rc::clone(&order) });
        }
    }
    found
}

/// What a node holds on one rank.
fn held<C: TrainingCosts>(evaluator: &Evaluator<'_, C>, node: usize) -> f64 {
    let of_node = &evaluator.problem().nodes[node];
    evaluator.costs().memory(node, 1, Share::Larger).held_bytes as f64 + of_node.state_bytes as f64
}
