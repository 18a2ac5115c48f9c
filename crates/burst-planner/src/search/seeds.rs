//! Initial arrangements proposed by simpler models. `counts` are the GPU counts of proposed
//! arrangements, ascending.

use std::ops::Range;
use std::rc::Rc;

use rustc_hash::FxHashSet;

use crate::bound::Bound;
use crate::evaluator::{Evaluator, NumberedArrangement};

/// Numbers of last nodes in topological order that are tried on fewer GPUs than the nodes before
/// them.
pub(super) const SUFFIX_LENGTHS: [usize; 9] = [1, 2, 3, 4, 6, 9, 14, 22, 35];
/// Approximate number of choices of GPU counts that the bound of a chain proposes.
const RELAXED_CHOICES: usize = 100;

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
                    seeds.push(NumberedArrangement { groups, order: Rc::clone(&order) });
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

/// Returns arrangements of a chain with the GPU counts for which the lower bound on `gpus` GPUs is
/// small. Variants place the node with the longest update, or all nodes from it on, on other ranks
/// than the nodes before, where its update can start before their backward steps end. Arrangements
/// on the first `fewer` ranks are left out. Empty if the graph has branches.
pub(super) fn relaxed_chain(
    evaluator: &mut Evaluator<'_>,
    (fewer, gpus): (usize, usize),
    counts: &[usize],
) -> Vec<NumberedArrangement> {
    if evaluator.structure().has_branches() {
        return Vec::new();
    }
    let is_proposed = |count: usize| counts.contains(&count);
    let bound = Bound::new(evaluator.problem(), gpus, evaluator.structure(), evaluator.costs(), is_proposed);
    let order = Rc::clone(evaluator.own_order());
    let heaviest = bound.longest_update();
    let (mut seeds, mut met) = (Vec::new(), FxHashSet::default());
    for counts in bound.chain_choices(RELAXED_CHOICES, evaluator.stop()) {
        let end =
            counts.iter().skip(heaviest).take_while(|&&count| count == counts[heaviest]).count() + heaviest;
        for beyond in [0..0, heaviest..heaviest + 1, heaviest..end, heaviest..order.len()] {
            let lists = aligned(&counts, &beyond, gpus);
            if lists.iter().flatten().all(|&rank| rank < fewer) {
                continue;
            }
            let mut groups = vec![0; order.len()];
            for (list, &node) in lists.iter().zip(&*order) {
                groups[node as usize] = evaluator.group(list);
            }
            if met.insert(groups.clone()) {
                seeds.push(NumberedArrangement { groups, order: Rc::clone(&order) });
            }
        }
    }
    seeds
}

/// Returns ranks for each node of a chain by its count: each node is on ranks that already have its
/// samples, or next to them. The nodes `beyond` are on other ranks than those before, as far as
/// possible.
fn aligned(counts: &[usize], beyond: &Range<usize>, gpus: usize) -> Vec<Vec<usize>> {
    let mut lists: Vec<Vec<usize>> = Vec::with_capacity(counts.len());
    let widest = counts[..beyond.start].iter().copied().max().unwrap_or(0);
    for (place, &count) in counts.iter().enumerate() {
        let before = place.checked_sub(1).map(|before| &lists[before]);
        let enters = place == beyond.start && !beyond.is_empty();
        let leaves = place == beyond.end && !beyond.is_empty();
        let list = match before {
            Some(before) if before.len() == count && !enters && !leaves => before.clone(),
            _ if enters => {
                let start = widest.min(gpus - count);
                (start..start + count).collect()
            }
            Some(before) if !leaves && before.len() > count => {
                // The rank in the middle of the samples that the next one needs.
                let middle = |place: usize| ((2 * place + 1) * before.len()).div_ceil(2 * count) - 1;
                (0..count).map(|place| before[middle(place)]).collect()
            }
            _ => match lists.iter().rev().find(|list| list.len() == count) {
                Some(same) => same.clone(),
                None => (0..count).collect(),
            },
        };
        lists.push(list);
    }
    lists
}
