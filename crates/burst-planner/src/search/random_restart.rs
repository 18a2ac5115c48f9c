//! Uniformly random arrangements, from which the search restarts.

use rand_chacha::ChaCha8Rng;

use super::graph_parts::GraphParts;
use super::random::below;
use crate::evaluator::{Evaluator, NumberedArrangement};

/// Draws for each node a GPU count and that number of the first `gpus` ranks, and an order. Returns
/// `None` if a node cannot run on any count up to `gpus`, or the cost model has no times for the
/// drawn one. O(nodes x gpus + edges).
pub(super) fn random_arrangement(
    evaluator: &mut Evaluator<'_>,
    graph_parts: &GraphParts,
    gpus: usize,
    random: &mut ChaCha8Rng,
) -> Option<NumberedArrangement> {
    let nodes = graph_parts.before.len();
    let mut groups = Vec::with_capacity(nodes);
    for node in 0..nodes {
        let counts = &evaluator.problem().nodes[node].gpu_counts;
        let usable = counts.iter().take_while(|&&count| count <= gpus).count();
        let count = *counts[..usable].get(below(random, usable.max(1)))?;
        let mut ranks: Vec<usize> = (0..gpus).collect();
        for place in 0..count {
            ranks.swap(place, place + below(random, gpus - place));
        }
        ranks.truncate(count);
        ranks.sort_unstable();
        let group = evaluator.group(&ranks);
        if !evaluator.is_option(node, group) {
            return None;
        }
        groups.push(group);
    }
    let mut waits: Vec<usize> = graph_parts.before.iter().map(Vec::len).collect();
    let mut ready: Vec<usize> = (0..nodes).filter(|&node| waits[node] == 0).collect();
    let mut order = Vec::with_capacity(nodes);
    while !ready.is_empty() {
        let node = ready.swap_remove(below(random, ready.len()));
        order.push(node as u32);
        for &after in &graph_parts.after[node] {
            waits[after] -= 1;
            if waits[after] == 0 {
                ready.push(after);
            }
        }
    }
    Some(NumberedArrangement { groups, order: order.into() })
}
