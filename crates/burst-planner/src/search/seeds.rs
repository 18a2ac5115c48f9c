//! Initial arrangements proposed by simpler models. `counts` are the GPU counts of proposed
//! arrangements, ascending.

use std::rc::Rc;

use crate::evaluator::{Evaluator, NumberedArrangement};

/// Numbers of last nodes in topological order that are tried on fewer GPUs than the nodes before
/// them.
pub(super) const SUFFIX_LENGTHS: [usize; 9] = [1, 2, 3, 4, 6, 9, 14, 22, 35];

/// Returns arrangements in which the last nodes run on fewer GPUs than the nodes before them. The
/// number of last nodes is each of [`SUFFIX_LENGTHS`]. The nodes before them are on the first
/// ranks, with each of the two largest of `counts` up to `gpus`. The last nodes are at the start or
/// at the end of the first `gpus` ranks, with each of the three smallest powers of two in `counts`.
/// Large matrices of the last layers then need no all-reduce.
pub(super) fn narrow_ends(
    evaluator: &mut Evaluator<'_>,
    gpus: usize,
    counts: &[usize],
) -> Vec<NumberedArrangement> {
    let order = Rc::clone(evaluator.own_order());
    let usable: Vec<usize> = counts.iter().copied().take_while(|&count| count <= gpus).collect();
    let mut seeds = Vec::new();
    for &wide in usable.iter().rev().take(2) {
        let all = evaluator.range(0, wide);
        for &narrow in usable.iter().filter(|&&narrow| narrow < wide && narrow.is_power_of_two()).take(3) {
            // All GPUs, with the last nodes on the first ranks, is the start of a staircase.
            for start in [0, gpus - narrow].into_iter().filter(|&start| start > 0 || wide < gpus) {
                let few = evaluator.range(start, narrow);
                for length in SUFFIX_LENGTHS.into_iter().take_while(|&length| length < order.len()) {
                    let mut groups = vec![all; order.len()];
                    for &node in &order[order.len() - length..] {
                        groups[node as usize] = few;
                    }
                    seeds.push(NumberedArrangement { groups, splits: None, order: Rc::clone(&order) });
                }
            }
        }
    }
    let is_possible = |seed: &NumberedArrangement| {
        let mut places = seed.groups.iter().enumerate();
        places.all(|(node, &group)| evaluator.is_option(node, group))
    };
    seeds.retain(is_possible);
    seeds
}
