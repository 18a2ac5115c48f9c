//! Initial arrangements whose last nodes are on few GPUs.

use std::rc::Rc;

use super::super::evaluator::{Evaluator, Numbered};

/// How many of the last nodes are placed on fewer GPUs.
pub(super) const LENGTHS: [usize; 9] = [1, 2, 3, 4, 6, 9, 14, 22, 35];

/// All nodes on the first ranks, but for the last ones on fewer: large matrices of the last layers are not summed up then. On the
/// first or the last ranks, for each of some lengths and counts.
pub(super) fn narrow_ends(evaluator: &mut Evaluator<'_>, gpus: usize, counts: &[usize]) -> Vec<Numbered> {
    let order = Rc::clone(evaluator.own_order());
    let usable: Vec<usize> = counts.iter().copied().take_while(|&count| count <= gpus).collect();
    let mut seeds = Vec::new();
    for &wide in usable.iter().rev().take(2) {
        let all = evaluator.range(0, wide);
        for &narrow in usable.iter().filter(|&&narrow| narrow < wide && narrow.is_power_of_two()).take(3) {
            // With all GPUs, and the few on the first ranks, is what a staircase begins with.
            for start in [0, gpus - narrow].into_iter().filter(|&start| start > 0 || wide < gpus) {
                let few = evaluator.range(start, narrow);
                for length in LENGTHS.into_iter().take_while(|&length| length < order.len()) {
                    let mut groups = vec![all; order.len()];
                    for &node in &order[order.len() - length..] {
                        groups[node as usize] = few;
                    }
                    seeds.push(Numbered { groups, order: Rc::clone(&order) });
                }
            }
        }
    }
    let is_possible = |seed: &Numbered| {
        let mut places = seed.groups.iter().enumerate();
        places.all(|(node, &group)| evaluator.is_option(node, group))
    };
    seeds.retain(is_possible);
    seeds
}
