//! Initial arrangements that spread memory over ranks, for problems with a memory limit.

use std::rc::Rc;

use crate::NodeId;
use crate::costs::ShardSize;
use crate::evaluator::{Evaluator, NumberedArrangement};
use crate::groups::GroupId;

/// Returns arrangements on the first `gpus` ranks that divide the order of the nodes into stretches
/// on different ranks, with about equal memory per rank. There is one for each number of stretches
/// with equal numbers of ranks, and one with two stretches for each number of ranks of the first.
/// Arrangements with a node that cannot run on its number of ranks are left out. Empty without a
/// memory limit. O(nodes x gpus).
pub(super) fn balanced_stretches(evaluator: &mut Evaluator<'_>, gpus: usize) -> Vec<NumberedArrangement> {
    if evaluator.problem().memory_limit_bytes.is_none() {
        return Vec::new();
    }
    let order = Rc::clone(evaluator.own_order());
    let held: Vec<f64> = order.iter().map(|&node| held(evaluator, node as usize)).collect();
    let even = (2..=gpus).map(|count| vec![gpus / count; count]);
    let uneven = (1..gpus).map(|first| vec![first, gpus - first]);
    let mut found = Vec::new();
    for sizes in even.chain(uneven) {
        let groups = in_stretches(evaluator, &order, &held, &sizes);
        if order.iter().all(|&node| evaluator.is_option(node as usize, groups[node as usize])) {
            found.push(NumberedArrangement { groups, splits: None, order: Rc::clone(&order) });
        }
    }
    found
}

/// Returns for each node the ranks of its stretch. `sizes` has the number of ranks of each stretch.
fn in_stretches(evaluator: &mut Evaluator<'_>, order: &[u32], held: &[f64], sizes: &[usize]) -> Vec<GroupId> {
    let all: f64 = held.iter().sum();
    let ranks = sizes.iter().sum::<usize>() as f64;
    let (mut stretch, mut start, mut before) = (0, 0, 0.0);
    let mut groups = vec![0; order.len()];
    for (&node, &held) in order.iter().zip(held) {
        // By the middle of the node's memory.
        let place = (before + held / 2.0) / all.max(1.0) * ranks;
        before += held;
        while stretch + 1 < sizes.len() && place >= (start + sizes[stretch]) as f64 {
            start += sizes[stretch];
            stretch += 1;
        }
        groups[node as usize] = evaluator.range(start, sizes[stretch]);
    }
    groups
}

/// Returns the memory of a node on one rank in the backward pass.
fn held(evaluator: &Evaluator<'_>, node: usize) -> f64 {
    let of_node = &evaluator.problem().nodes[node];
    let memory = evaluator.costs().memory(NodeId(node), 1, ShardSize::Larger);
    let parameters = of_node.state_bytes.saturating_add(of_node.gradient_bytes);
    [memory.held_bytes, memory.saved_bytes, memory.output_bytes, parameters]
        .into_iter()
        .fold(0.0, |sum, bytes| sum + bytes as f64)
}
