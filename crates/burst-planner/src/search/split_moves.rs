//! Search for splits of nodes, which starts from the arrangements without splits.

use std::cmp::Reverse;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::rc::Rc;

use rand_chacha::ChaCha8Rng;

use super::move_mix::USUAL;
use super::moves::Moves;
use super::random::below;
use super::stage::SearchStage;
use crate::evaluator::{Evaluator, NumberedArrangement};
use crate::groups::GroupId;
use crate::{NodeSplit, PlanProblem, Result, Values};

/// Maximum number of random moves of an arrangement at once.
const MAX_CHANGES: usize = 3;

/// A move: the places in the order whose nodes run on a list of ranks, with as many ranks for each
/// range of samples.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SplitMove {
    places: Range<usize>,
    ranks: Rc<[usize]>,
    parts: usize,
    /// Index among the splits of the first node with these parts.
    first: usize,
    /// Whether nodes rather have the output that the next node can read as ranges.
    keeps_ranges: bool,
}

impl Hash for SplitMove {
    /// Long lists of ranks with the same length are mostly the same.
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.places, self.ranks.len(), self.parts, self.first, self.keeps_ranges).hash(state);
    }
}

impl<'p> SearchStage<'p> {
    /// Offers all arrangements of another stage of the same problem.
    pub(super) fn offer_results(&mut self, other: &SearchStage<'_>) -> Result<()> {
        for entry in other.archive.starting_points() {
            let groups = entry.arrangement.groups.iter();
            let groups = groups.map(|&group| self.evaluator.group(other.evaluator.ranks(group))).collect();
            let order = Rc::clone(&entry.arrangement.order);
            self.offer(&NumberedArrangement { groups, splits: None, order })?;
        }
        Ok(())
    }

    /// Improves arrangements on the first `gpus` ranks by moves that give nodes splits: the fastest
    /// ones within some budgets of GPU time until no move is an improvement, with `counts` ranges
    /// of samples, and then random ones `moves` times. Ends early when this stage has evaluated
    /// `max_evaluations` arrangements.
    pub(super) fn improve_splits(
        &mut self,
        gpus: usize,
        counts: &[usize],
        (moves, max_evaluations): (usize, u64),
        random: &mut ChaCha8Rng,
    ) -> Result<()> {
        let changes = |stage: &mut Self, from: &_| stage.split_moves(from, gpus, counts);
        if self.descend(changes, Self::split, max_evaluations)? {
            self.is_budget_spent = true;
            return Ok(());
        }
        self.is_budget_spent |= moves > 0;
        for _ in 0..moves {
            let entries = self.archive.starting_points();
            if entries.is_empty() || self.evaluator.evaluations >= max_evaluations {
                return Ok(());
            }
            let mut now = entries[below(random, entries.len())].arrangement.clone();
            for _ in 0..=below(random, MAX_CHANGES) {
                now = self.random_split(&now, gpus, random).unwrap_or(now);
            }
            self.offer(&now)?;
        }
        Ok(())
    }

    /// Returns the systematic moves of an arrangement: nodes in a row, on their own ranks or on the
    /// first ones. Those that begin at the node with the largest gradient come first.
    fn split_moves(
        &self,
        from: &NumberedArrangement,
        gpus: usize,
        counts: &[usize],
    ) -> impl Iterator<Item = SplitMove> + use<'p> {
        let problem = self.evaluator.problem();
        // By number of parts: lists of first ranks.
        let firsts = all_parts(problem).into_iter().map(|parts| {
            let lengths = counts.iter().map(|ranges| ranges * parts).filter(|&count| count <= gpus);
            (parts, lengths.map(|count| (0..count).collect()).collect())
        });
        let firsts: Vec<(usize, Vec<Rc<[usize]>>)> = firsts.collect();
        let ranks = |node: u32| Rc::clone(self.evaluator.ranks(from.groups[node as usize]));
        let nodes: Vec<(usize, Rc<[usize]>)> =
            from.order.iter().map(|&node| (node as usize, ranks(node))).collect();
        let mut starts: Vec<usize> = (0..nodes.len()).collect();
        starts.sort_by_key(|&start| Reverse(problem.nodes[nodes[start].0].gradient_bytes));
        starts.into_iter().flat_map(move |start| {
            let (node, own) = &nodes[start];
            let mut moves = Vec::new();
            for (parts, firsts) in &firsts {
                let of_parts = problem.nodes[*node].splits.iter().filter(|split| split.parts == *parts);
                let splits = of_parts.count().max(usize::from(*parts == 1));
                let own = (own.len() % parts == 0).then_some(own);
                for end in ends(start, nodes.len()) {
                    for first in 0..splits {
                        for ranks in own.into_iter().chain(firsts) {
                            for keeps_ranges in [false, true] {
                                let (places, ranks, parts) = (start..end, Rc::clone(ranks), *parts);
                                moves.push(SplitMove { places, ranks, parts, first, keeps_ranges });
                            }
                        }
                    }
                }
            }
            moves
        })
    }

    /// Applies a random move, or returns `None` if it is not possible.
    fn random_split(
        &mut self,
        from: &NumberedArrangement,
        gpus: usize,
        random: &mut ChaCha8Rng,
    ) -> Option<NumberedArrangement> {
        let nodes = from.order.len();
        if nodes > 1 && below(random, 4) == 0 {
            let graph_parts = &self.graph_parts;
            return Moves { graph_parts, gpus, is_short_of_memory: false, mix: USUAL }.reorder(from, random);
        }
        let start = below(random, nodes);
        let end = (start + 1 + below(random, 3)).min(nodes);
        let all_parts = all_parts(self.evaluator.problem());
        let parts = all_parts[below(random, all_parts.len())];
        let ranks: Rc<[usize]> = if below(random, 2) == 0 {
            Rc::clone(self.evaluator.ranks(from.groups[below(random, nodes)]))
        } else {
            // Consecutive ranks, wherever the first one is, without those of another node or with
            // these first.
            let count = parts * (1 + below(random, gpus / parts.min(gpus)));
            let mut is_other = vec![false; gpus];
            for &rank in self.evaluator.ranks(from.groups[below(random, nodes)]).iter() {
                is_other[rank] = true;
            }
            let first = below(random, gpus);
            let mut ranks: Vec<usize> = (first..gpus).chain(0..first).collect();
            let is_without = below(random, 2) == 0;
            ranks.sort_by_key(|&rank| is_other[rank] == is_without);
            ranks.truncate(count);
            ranks.sort_unstable();
            ranks.into()
        };
        let (first, keeps_ranges) = (below(random, 4), below(random, 2) == 0);
        self.split(from, &SplitMove { places: start..end, ranks, parts, first, keeps_ranges })
    }

    /// Applies a move. Returns `None` if it is not possible, or changes nothing.
    fn split(&mut self, from: &NumberedArrangement, change: &SplitMove) -> Option<NumberedArrangement> {
        let SplitMove { places, ranks, parts, first, keeps_ranges } = change;
        if ranks.len() % parts > 0 {
            return None;
        }
        let problem = self.evaluator.problem();
        let mut groups = from.groups.clone();
        let none = || vec![0; groups.len()];
        let mut splits = from.splits.as_deref().map_or_else(none, <[u32]>::to_vec);
        // The values of the output of the node before, if that is in parts.
        let mut before: Option<Values> = None;
        let mut list = RankList::new(ranks);
        for place in places.clone() {
            let node = from.order[place] as usize;
            let in_parts = problem.nodes[node].splits.iter().enumerate();
            let in_parts = in_parts.filter(|(_, split)| split.parts == *parts);
            let chosen = if place == places.start {
                in_parts.clone().nth(*first).map(|(index, _)| index)
            } else {
                let rank = |split: &NodeSplit| {
                    let is_same = before.is_some_and(|values| fits(values, split.input));
                    (is_same, (split.output == Values::Ranges) == *keeps_ranges)
                };
                in_parts.clone().max_by_key(|(_, split)| rank(split)).map(|(index, _)| index)
            };
            if chosen.is_none() && *parts > 1 && place == places.start {
                return None;
            }
            before = chosen.map(|split| problem.nodes[node].splits[split].output);
            let owner = problem.nodes[node].parameters_of.map_or(node, |owner| owner.0);
            let users = &self.evaluator.structure().users[owner];
            let is_shared = users.len() > 1 && (chosen.is_some() || splits[owner] > 0);
            let moved = if is_shared { users.clone() } else { vec![node] };
            for node in moved {
                let splits_of = &problem.nodes[node].splits;
                if chosen.is_some_and(|split| splits_of.get(split).is_none_or(|own| own.parts != *parts)) {
                    // A user of the same parameters has other splits.
                    return None;
                }
                let group = self.evaluator.option_group(node, &mut list, chosen)?;
                (groups[node], splits[node]) = (group, chosen.map_or(0, |split| split as u32 + 1));
            }
        }
        let splits: Option<Rc<[u32]>> = splits.iter().any(|&split| split > 0).then(|| splits.into());
        let changed = NumberedArrangement { groups, splits, order: Rc::clone(&from.order) };
        (changed != *from).then_some(changed)
    }
}

/// Returns 1 and the numbers of parts of all splits, ascending.
fn all_parts(problem: &PlanProblem) -> Vec<usize> {
    std::iter::once(1).chain(problem.all_parts().into_iter().filter(|&parts| parts > 1)).collect()
}

/// Returns the ends of the stretches of the order from `start` on that move together: up to four
/// nodes, then twice as many each time, and all.
fn ends(start: usize, nodes: usize) -> impl Iterator<Item = usize> {
    let doubled = std::iter::successors(Some(8), |length| Some(2 * length));
    let lengths = (1..=4).chain(doubled.take_while(move |&length| length < nodes));
    lengths.map(move |length| start + length).filter(move |&end| end < nodes).chain([nodes])
}

/// Returns whether an output can be read on its ranks without a redistribution.
fn fits(output: Values, input: Values) -> bool {
    output == input || (output, input) == (Values::Addends, Values::Copies)
}

/// A list of ranks, with its groups as soon as they are needed.
pub(super) struct RankList<'r> {
    ranks: &'r [usize],
    /// The group of nodes without a split.
    whole: Option<GroupId>,
    /// The group of nodes with a split, and its number of parts.
    in_parts: Option<(usize, GroupId)>,
}

impl<'r> RankList<'r> {
    pub(super) fn new(ranks: &'r [usize]) -> Self {
        Self { ranks, whole: None, in_parts: None }
    }
}

impl Evaluator<'_> {
    /// Returns the group of a list of ranks for a node with a split, or without one, if the node
    /// can run there with one of its numbers of sample ranges.
    pub(super) fn option_group(
        &mut self,
        node: usize,
        list: &mut RankList<'_>,
        split: Option<usize>,
    ) -> Option<GroupId> {
        let ranks = list.ranks;
        let Some(split) = split else {
            let group = *list.whole.get_or_insert_with(|| self.group(ranks));
            return self.is_option(node, group).then_some(group);
        };
        let of_node = &self.problem().nodes[node];
        let parts = of_node.splits.get(split)?.parts;
        if ranks.len() % parts > 0 || of_node.gpu_counts.binary_search(&(ranks.len() / parts)).is_err() {
            return None;
        }
        let known = list.in_parts.filter(|&(of, _)| of == parts);
        let (_, group) = known.unwrap_or_else(|| (parts, self.group_in_parts(ranks, parts)));
        list.in_parts = Some((parts, group));
        self.split_steps(node, split, ranks.len()).map(|_| group)
    }
}
