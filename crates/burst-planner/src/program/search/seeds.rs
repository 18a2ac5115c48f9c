//! Initial arrangements, by simpler models of time, whose times are not used for anything else.

use std::rc::Rc;

use super::super::bound::Bound;
use super::super::evaluator::{Evaluator, Numbered};

/// How many of the last nodes are placed on fewer GPUs.
pub(super) const LENGTHS: [usize; 9] = [1, 2, 3, 4, 6, 9, 14, 22, 35];
/// What a GPU-microsecond is taken to be worth, microseconds, times the GPUs that there are.
const RELAXED_PRICES: [f64; 4] = [0.0, 0.3, 1.5, 8.0];

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

/// The GPU counts with which a chain is fastest by its lower bound on `gpus` GPUs, on the first ranks; and with a node that the optimiser
/// takes long for, or all from there on, on the last ranks, where its update can begin before others end their backward steps.
pub(super) fn relaxed_chain(evaluator: &mut Evaluator<'_>, gpus: usize, counts: &[usize]) -> Vec<Numbered> {
    let structure = evaluator.structure();
    if structure.producers.iter().chain(&structure.consumers).any(|neighbours| neighbours.len() > 1) {
        return Vec::new();
    }
    let is_proposed = |count: usize| counts.contains(&count);
    let bound = Bound::new(evaluator.problem(), gpus, evaluator.structure(), evaluator.costs(), is_proposed);
    let order = Rc::clone(evaluator.own_order());
    let heaviest = bound.longest_update();
    let mut seeds = Vec::new();
    for counts in bound.chain_choices(&RELAXED_PRICES) {
        let end =
            counts.iter().skip(heaviest).take_while(|&&count| count == counts[heaviest]).count() + heaviest;
        for last in [0..0, heaviest..heaviest + 1, heaviest..end, heaviest..order.len()] {
            let mut groups = vec![0; order.len()];
            for (place, &count) in counts.iter().enumerate() {
                let start = if last.contains(&place) { gpus - count } else { 0 };
                groups[order[place] as usize] = evaluator.range(start, count);
            }
            seeds.push(Numbered { groups, order: Rc::clone(&order) });
        }
    }
    seeds.dedup();
    seeds
}
