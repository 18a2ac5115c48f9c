//! Moves: random changes of an arrangement. A *group* is a list of ranks.

use std::rc::Rc;

use rand_chacha::ChaCha8Rng;

use super::graph_parts::GraphParts;
use super::move_mix::{MoveKind, MoveMix};
use super::random::below;
use super::series_parallel::ParallelRegion;
use crate::evaluator::{Evaluator, NumberedArrangement};
use crate::groups::GroupId;

/// Draws moves of an arrangement on the first `gpus` ranks.
pub(super) struct Moves<'s> {
    /// Parts of the graph that moves treat as a unit.
    pub(super) graph_parts: &'s GraphParts,
    /// Number of ranks that moves use, the first ones.
    pub(super) gpus: usize,
    /// Whether an arrangement above the memory limit was evaluated; a rank is then also exchanged
    /// between two nodes.
    pub(super) is_short_of_memory: bool,
    /// Kinds of moves and their frequencies.
    pub(super) mix: MoveMix,
}

impl Moves<'_> {
    /// Draws a move. Returns `None` if the move that is drawn has no effect or is not possible.
    pub(super) fn draw(
        &self,
        evaluator: &mut Evaluator<'_>,
        from: &NumberedArrangement,
        random: &mut ChaCha8Rng,
    ) -> Option<NumberedArrangement> {
        let drawn = match self.mix.draw(random) {
            MoveKind::Node => self.regroup(evaluator, from, &[below(random, from.groups.len())], random),
            MoveKind::Window => self.regroup(evaluator, from, &window(from, random), random),
            MoveKind::Run => self.regroup(evaluator, from, &run(from, random), random),
            MoveKind::Boundary => shift_boundary(evaluator, from, random),
            MoveKind::Branch => {
                let nodes = self.branch(random)?.clone();
                self.regroup(evaluator, from, &nodes, random)
            }
            MoveKind::Spread => {
                let parallel = &self.graph_parts.parallels[self.parallel(random)?];
                self.spread(evaluator, from, parallel, random)
            }
            MoveKind::Exchange => self.exchange_rank(evaluator, from, random),
            MoveKind::CopyRanks => self.copy_ranks(evaluator, from, random),
            MoveKind::Swap => swap(evaluator, from, random),
            MoveKind::RotateRanks => Some(self.rotate_ranks(evaluator, from, random)),
            MoveKind::Reorder => self.reorder(from, random),
            MoveKind::Reverse => Some(reverse(evaluator, from, random)),
        };
        drawn.filter(|drawn| drawn != from)
    }

    fn parallel(&self, random: &mut ChaCha8Rng) -> Option<usize> {
        let count = self.graph_parts.parallels.len();
        (count > 0).then(|| below(random, count))
    }

    fn branch(&self, random: &mut ChaCha8Rng) -> Option<&Vec<usize>> {
        let branches = &self.graph_parts.parallels[self.parallel(random)?].branches;
        Some(&branches[below(random, branches.len())])
    }

    /// Moves nodes to another group: with another count, or with ranks that begin or end where
    /// another node's do.
    fn regroup(
        &self,
        evaluator: &mut Evaluator<'_>,
        from: &NumberedArrangement,
        nodes: &[usize],
        random: &mut ChaCha8Rng,
    ) -> Option<NumberedArrangement> {
        let first = *nodes.first()?;
        let counts = &evaluator.problem().nodes[first].gpu_counts;
        let usable = counts.iter().take_while(|&&count| count <= self.gpus).count();
        let now = evaluator.ranks(from.groups[first]).len();
        let index = counts[..usable].iter().position(|&count| count == now);
        let pick = match (index, below(random, 4)) {
            (Some(index), 0) => index + 1,
            (Some(index), 1) => index.wrapping_sub(1),
            (Some(index), 2) => index,
            _ => below(random, usable.max(1)),
        };
        let count = *counts[..usable].get(pick)?;
        let start = self.start(evaluator, from, count, random);
        let group = evaluator.range(start, count);
        assign(evaluator, from, nodes, group)
    }

    /// Moves nodes to the group of another node, often of a producer or consumer.
    fn copy_ranks(
        &self,
        evaluator: &Evaluator<'_>,
        from: &NumberedArrangement,
        random: &mut ChaCha8Rng,
    ) -> Option<NumberedArrangement> {
        let node = below(random, from.groups.len());
        let near: Vec<usize> =
            self.graph_parts.before[node].iter().chain(&self.graph_parts.after[node]).copied().collect();
        let other = match below(random, 3) {
            0 if !near.is_empty() => near[below(random, near.len())],
            _ => below(random, from.groups.len()),
        };
        let nodes = match below(random, 4) {
            0 => window(from, random),
            1 => run(from, random),
            _ => vec![node],
        };
        assign(evaluator, from, &nodes, from.groups[other])
    }

    /// Draws a first rank for a group: 0, or a rank where another group begins or ends, before or
    /// after it.
    fn start(
        &self,
        evaluator: &Evaluator<'_>,
        from: &NumberedArrangement,
        count: usize,
        random: &mut ChaCha8Rng,
    ) -> usize {
        if below(random, 2) == 0 {
            return 0;
        }
        let ranks = evaluator.ranks(from.groups[below(random, from.groups.len())]);
        let (first, last) =
            (ranks.iter().min().copied().unwrap_or(0), ranks.iter().max().copied().unwrap_or(0));
        let start = match below(random, 5) {
            0 => first,
            1 => last + 1,
            2 => first.saturating_sub(count),
            3 => (last + 1).saturating_sub(count),
            _ => self.gpus - count,
        };
        start.min(self.gpus - count)
    }

    /// Places the branches between a fork and a join on different ranks: the ranks are divided into
    /// a random number of ranges, and each branch runs on the range with the least work so far.
    fn spread(
        &self,
        evaluator: &mut Evaluator<'_>,
        from: &NumberedArrangement,
        parallel: &ParallelRegion,
        random: &mut ChaCha8Rng,
    ) -> Option<NumberedArrangement> {
        let widest = from.groups.iter().map(|&group| evaluator.ranks(group).len()).max().unwrap_or(1);
        let within = if below(random, 2) == 0 { widest } else { 1 + below(random, self.gpus) };
        let ranges = 1 + below(random, parallel.branches.len());
        on_rank_ranges(evaluator, from, parallel, within.min(self.gpus), ranges)
    }

    /// Replaces one rank of a node's group. If memory is short, in every second case a node on the
    /// new rank gets the old rank in exchange: neither rank may have memory for both nodes.
    fn exchange_rank(
        &self,
        evaluator: &mut Evaluator<'_>,
        from: &NumberedArrangement,
        random: &mut ChaCha8Rng,
    ) -> Option<NumberedArrangement> {
        let node = below(random, from.groups.len());
        let ranks = evaluator.ranks(from.groups[node]);
        let (left, taken) = (ranks[below(random, ranks.len())], below(random, self.gpus));
        let moved = replace_rank(evaluator, from, node, left, taken)?;
        if !self.is_short_of_memory || below(random, 2) == 0 {
            return Some(moved);
        }
        let other = below(random, from.groups.len());
        replace_rank(evaluator, &moved, other, taken, left)
    }

    /// Rotates the ranks of all nodes from one on, or up to one, by a distance at which another
    /// node's ranks begin or end, or by half of all ranks. A rank with much work in the first part
    /// then has less in the second one.
    fn rotate_ranks(
        &self,
        evaluator: &mut Evaluator<'_>,
        from: &NumberedArrangement,
        random: &mut ChaCha8Rng,
    ) -> NumberedArrangement {
        let nodes = from.order.len();
        let by = match below(random, 2) {
            0 => self.gpus / 2,
            _ => self.start(evaluator, from, 1, random),
        };
        let begin = below(random, nodes);
        let end = if below(random, 2) == 0 { nodes } else { begin + 1 + below(random, nodes - begin) };
        let mut to = from.clone();
        for &node in &from.order[begin..end] {
            let ranks = evaluator.ranks(from.groups[node as usize]);
            let mut turned: Vec<usize> = ranks.iter().map(|rank| (rank + by) % self.gpus).collect();
            turned.sort_unstable();
            to.groups[node as usize] = evaluator.group(&turned);
        }
        to
    }

    /// Moves nodes as early or as late in the order as dependencies allow.
    pub(super) fn reorder(
        &self,
        from: &NumberedArrangement,
        random: &mut ChaCha8Rng,
    ) -> Option<NumberedArrangement> {
        let mut is_moved = vec![false; from.groups.len()];
        match self.branch(random).filter(|_| below(random, 2) == 0) {
            Some(nodes) => {
                for &node in nodes {
                    is_moved[node] = true;
                }
            }
            None => is_moved[below(random, from.groups.len())] = true,
        }
        let (moved, mut order): (Vec<u32>, Vec<u32>) =
            from.order.iter().partition(|&&node| is_moved[node as usize]);
        let touches = |list: &[Vec<usize>], node: u32| {
            moved.iter().any(|&moved| list[moved as usize].contains(&(node as usize)))
        };
        let earliest = order
            .iter()
            .rposition(|&node| touches(&self.graph_parts.before, node))
            .map_or(0, |place| place + 1);
        let latest =
            order.iter().position(|&node| touches(&self.graph_parts.after, node)).unwrap_or(order.len());
        if earliest > latest {
            return None;
        }
        let place = match below(random, 3) {
            0 => earliest,
            1 => latest,
            _ => earliest + below(random, latest - earliest + 1),
        };
        order.splice(place..place, moved);
        Some(NumberedArrangement { order: order.into(), ..from.clone() })
    }
}

/// Moves a node from one rank to another, if it is on the former and not on the latter.
fn replace_rank(
    evaluator: &mut Evaluator<'_>,
    from: &NumberedArrangement,
    node: usize,
    left: usize,
    taken: usize,
) -> Option<NumberedArrangement> {
    let mut ranks = evaluator.ranks(from.groups[node]).to_vec();
    let place = ranks.iter().position(|&rank| rank == left)?;
    if ranks.contains(&taken) {
        return None;
    }
    ranks[place] = taken;
    ranks.sort_unstable();
    let group = evaluator.group(&ranks);
    assign(evaluator, from, &[node], group)
}

/// Moves the boundary between neighbours in the order that are on different groups.
fn shift_boundary(
    evaluator: &Evaluator<'_>,
    from: &NumberedArrangement,
    random: &mut ChaCha8Rng,
) -> Option<NumberedArrangement> {
    let nodes = from.order.len();
    let begin = below(random, nodes);
    let group = |place: usize| from.groups[from.order[place % nodes] as usize];
    let at = (begin..begin + nodes)
        .find(|&place| place % nodes + 1 < nodes && group(place) != group(place + 1))?;
    let at = at % nodes;
    let by = 1 + below(random, 8).min(below(random, 8));
    let (moved, taken) = if below(random, 2) == 0 {
        (at + 1..(at + 1 + by).min(nodes), group(at))
    } else {
        ((at + 1).saturating_sub(by)..at + 1, group(at + 1))
    };
    let moved: Vec<usize> = from.order[moved].iter().map(|&node| node as usize).collect();
    assign(evaluator, from, &moved, taken)
}

/// Returns the arrangement `from` with the branches of `parallel` side by side on the first `gpus`
/// ranks. These are divided into `ranges` ranges, each for some of the branches and with a width
/// proportional to their work. Returns `None` if a node cannot run on its range.
pub(super) fn on_rank_ranges(
    evaluator: &mut Evaluator<'_>,
    from: &NumberedArrangement,
    parallel: &ParallelRegion,
    gpus: usize,
    ranges: usize,
) -> Option<NumberedArrangement> {
    let ranges = ranges.min(gpus);
    let single = evaluator.group(&[0]);
    let work = |evaluator: &Evaluator<'_>, nodes: &[usize]| -> f64 {
        nodes.iter().map(|&node| evaluator.steps(node, single).total_us()).sum()
    };
    let mut branches: Vec<(f64, usize)> =
        parallel.branches.iter().enumerate().map(|(index, nodes)| (work(evaluator, nodes), index)).collect();
    branches.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut loads = vec![0.0; ranges];
    let mut range_of = vec![0; branches.len()];
    for (work, branch) in branches {
        let range = (0..ranges).min_by(|&a, &b| f64::total_cmp(&loads[a], &loads[b]))?;
        loads[range] += work;
        range_of[branch] = range;
    }
    let widths = shares(&loads, gpus);
    let mut to = from.clone();
    let mut start = 0;
    for (range, width) in widths.into_iter().enumerate() {
        for (nodes, _) in parallel.branches.iter().zip(&range_of).filter(|&(_, &of)| of == range) {
            for &node in nodes {
                let counts = &evaluator.problem().nodes[node].gpu_counts;
                let count = counts.iter().copied().take_while(|&count| count <= width).last()?;
                let group = evaluator.range(start, count);
                to = assign(evaluator, &to, &[node], group)?;
            }
        }
        start += width;
    }
    Some(to)
}

/// Exchanges the groups of two nodes.
fn swap(
    evaluator: &Evaluator<'_>,
    from: &NumberedArrangement,
    random: &mut ChaCha8Rng,
) -> Option<NumberedArrangement> {
    let (one, other) = (below(random, from.groups.len()), below(random, from.groups.len()));
    let moved = assign(evaluator, from, &[one], from.groups[other])?;
    assign(evaluator, &moved, &[other], from.groups[one])
}

/// Reverses the ranks of nodes. Gradients share a bucket only if their lists of ranks are equal, so
/// these leave the bucket of the other nodes on those ranks. The larger shards move to the other
/// ranks.
fn reverse(
    evaluator: &mut Evaluator<'_>,
    from: &NumberedArrangement,
    random: &mut ChaCha8Rng,
) -> NumberedArrangement {
    let nodes = match below(random, 4) {
        0 => window(from, random),
        1 => run(from, random),
        _ => vec![below(random, from.groups.len())],
    };
    let mut to = from.clone();
    for node in nodes {
        let reversed: Vec<usize> = evaluator.ranks(from.groups[node]).iter().rev().copied().collect();
        to.groups[node] = evaluator.group(&reversed);
    }
    to
}

/// Draws a node with its neighbours in the order on the same group, or with all nodes on that group
/// before it, after it, or anywhere.
fn run(from: &NumberedArrangement, random: &mut ChaCha8Rng) -> Vec<usize> {
    let at = below(random, from.order.len());
    let group = |place: usize| from.groups[from.order[place] as usize];
    let is_same = |&place: &usize| group(place) == group(at);
    let all = 0..from.order.len();
    let places: Vec<usize> = match below(random, 6) {
        0 => all.filter(is_same).collect(),
        1 => (at..all.end).filter(is_same).collect(),
        2 => (0..=at).filter(is_same).collect(),
        _ => {
            let start = (0..at).rev().take_while(is_same).last().unwrap_or(at);
            (start..all.end).take_while(is_same).collect()
        }
    };
    places.into_iter().map(|place| from.order[place] as usize).collect()
}

/// Draws consecutive nodes of the order, in every second case the last ones. Short stretches are
/// more likely.
fn window(from: &NumberedArrangement, random: &mut ChaCha8Rng) -> Vec<usize> {
    let nodes = from.order.len();
    let longest = 1 << below(random, nodes.ilog2() as usize + 1);
    let length = 1 + below(random, longest);
    let start = if below(random, 2) == 0 { nodes - length.min(nodes) } else { below(random, nodes) };
    from.order[start..(start + length).min(nodes)].iter().map(|&node| node as usize).collect()
}

/// Places nodes on a group, if they can run on its count.
fn assign(
    evaluator: &Evaluator<'_>,
    from: &NumberedArrangement,
    nodes: &[usize],
    group: GroupId,
) -> Option<NumberedArrangement> {
    if !nodes.iter().all(|&node| evaluator.is_option(node, group)) {
        return None;
    }
    let mut groups = from.groups.clone();
    for &node in nodes {
        groups[node] = group;
    }
    Some(NumberedArrangement { groups, splits: None, order: Rc::clone(&from.order) })
}

/// Divides `gpus` in proportion to loads, with at least one each.
fn shares(loads: &[f64], gpus: usize) -> Vec<usize> {
    let mut widths = vec![1; loads.len()];
    for _ in loads.len()..gpus {
        let busiest = (0..loads.len()).max_by(|&a, &b| {
            (loads[a] / widths[a] as f64).total_cmp(&(loads[b] / widths[b] as f64)).then(b.cmp(&a))
        });
        if let Some(busiest) = busiest {
            widths[busiest] += 1;
        }
    }
    widths
}
