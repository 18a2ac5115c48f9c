//! Paths and work of each region as a two-player game: one player chooses weights, the other one
//! GPU counts.
//!
//! A *region* is the part of the graph between two articulation nodes, which all paths contain. A
//! *flow* has weights of the paths through a region and of its work. An *option* is a GPU count of
//! a node with its costs. *Early nodes* are articulation nodes with gradients before which little
//! time is spent.

use std::ops::Range;

use super::regions::{Flow, Region, Solution, Terms};
use super::through::Case;
use super::weights::Weights;
use super::{Bound, BoundOption};
use crate::proof::{ProofEnd, Work};

/// Mean of the choices so far; later ones have larger weights.
struct MeanChoice {
    /// By node: forward and backward steps.
    nodes: Vec<(f64, f64)>,
    /// By edge: transfers, forward and backward.
    edges: Vec<(f64, f64)>,
    /// Computing of all ranks, forward and backward.
    work: (f64, f64),
}

/// A region with the state of its game.
struct RegionState {
    /// The region.
    region: Region,
    /// Current weights of its paths and its work.
    flow: Flow,
    /// Mean of the other player's choices of GPU counts so far.
    mean_choice: MeanChoice,
    /// By option of its entry and exit: the maximum over all flows so far of their minimum.
    minimum: Vec<f64>,
    /// Minimum for the current flow.
    solution: Solution,
}

/// Weights, price and budget of the weighted sum whose minimum is a lower bound.
pub(super) struct PricedWeights<'s> {
    /// Weights of the terms of the sum.
    pub(super) weights: &'s Weights,
    /// Price of GPU time, microseconds per GPU-microsecond.
    pub(super) price: f64,
    /// Budget of GPU time, GPU-microseconds.
    pub(super) budget_us: f64,
}

/// States of the games of all regions. They are kept from one weighted sum to the next, as flows
/// that give a large bound for one sum often do so for others.
pub(super) struct RegionGame(Vec<RegionState>);

impl Bound {
    /// Returns the initial states of all regions.
    pub(super) fn game(&self) -> RegionGame {
        RegionGame(self.regions().into_iter().map(|region| self.initial_state(region)).collect())
    }

    /// Returns a lower bound of the iteration time, microseconds, of arrangements in which the
    /// largest GPU count of the early nodes is in `case`. The minimum of each region is computed
    /// separately for each pair of options at its ends. The result is the maximum over several
    /// flows, one per round of `rounds`; the number of a round determines its step size. The search
    /// ends at `stop_at_us` microseconds. Fails if the budget of `work` is spent.
    pub(super) fn region_bound_us(
        &self,
        game: &mut RegionGame,
        sum: &PricedWeights<'_>,
        case: Case,
        stop_at_us: f64,
        rounds: Range<usize>,
        work: &mut Work<'_>,
    ) -> Result<f64, ProofEnd> {
        let mut factors = self.factors(sum.weights, 0.0);
        factors.updates = case.anchor_weight * (1.0 - sum.weights.reduces.iter().sum::<f64>());
        let anchor = BoundOption { gpus: case.minimum, ranks: case.minimum, ..BoundOption::default() };
        let terms = Terms { factors: &factors, anchor, price: sum.price };
        let combinations = game.0.iter().map(|one| self.combinations(&one.region)).sum::<usize>() as u64;
        work.spend(combinations)?;
        for known in &mut game.0 {
            known.solution = self.solve_region(&known.region, &known.flow, &terms);
            known.minimum.clone_from(&known.solution.minimum);
        }
        let mut best: f64 = 0.0;
        let mut choice = vec![0; self.nodes.len()];
        let end = rounds.end;
        for round in rounds {
            let minima = game.0.iter().map(|one| (one.region.part, &one.minimum[..]));
            let value = self.through_regions(minima, &terms, case, &mut choice);
            best = best.max(value - sum.price * sum.budget_us);
            if best >= stop_at_us || game.0.is_empty() || round + 1 == end {
                break;
            }
            work.spend(combinations)?;
            let step_size = 2.0 / (round as f64 + 3.0);
            for one in &mut game.0 {
                self.trace_region(&one.region, &one.flow, &terms, &one.solution, &mut choice);
                self.add_choice(one, &choice, step_size);
                let part = one.region.part;
                self.best_response(one, (factors.forward[part], factors.backward[part]), step_size);
                one.solution = self.solve_region(&one.region, &one.flow, &terms);
                one.minimum
                    .iter_mut()
                    .zip(&one.solution.minimum)
                    .for_each(|(maximum, &now)| *maximum = maximum.max(now));
            }
        }
        Ok(best)
    }

    /// Starts with the longest path by the fastest steps of all nodes.
    fn initial_state(&self, region: Region) -> RegionState {
        let fastest = |place: usize| {
            let options = self.nodes[place].options.iter();
            options.fold((f64::INFINITY, f64::INFINITY), |minimum, option| {
                (minimum.0.min(option.forward_us), minimum.1.min(option.backward_us))
            })
        };
        let nodes: Vec<(f64, f64)> = (region.begin..region.end).map(fastest).collect();
        let edges = vec![(0.0, 0.0); region.edges.len()];
        let flow = Flow { nodes: vec![(0.0, 0.0); nodes.len()], edges: edges.clone(), work: (0.0, 0.0) };
        let mean_choice = MeanChoice { nodes, edges, work: (0.0, 0.0) };
        let mut known =
            RegionState { region, flow, mean_choice, minimum: Vec::new(), solution: Solution::default() };
        self.best_response(&mut known, (1.0, 1.0), 1.0);
        known
    }

    /// Adds a choice of counts to the mean.
    fn add_choice(&self, known: &mut RegionState, choice: &[usize], step_size: f64) {
        let RegionState { region, mean_choice, .. } = known;
        let mut work = (0.0, 0.0);
        for (place, mean) in (region.begin..region.end).zip(&mut mean_choice.nodes) {
            let option = &self.nodes[place].options[choice[place]];
            mix(mean, (option.forward_us, option.backward_us), step_size);
            work.0 += option.gpus * option.forward_us;
            work.1 += option.gpus * option.backward_us;
        }
        for (edge, mean) in region.edges.iter().zip(&mut mean_choice.edges) {
            mix(mean, self.moved_along(edge, choice), step_size);
        }
        mix(&mut mean_choice.work, work, step_size);
    }

    /// Moves the flow to the longest path or the work, forward and backward, for the mean of
    /// choices.
    fn best_response(&self, known: &mut RegionState, factors: (f64, f64), step_size: f64) {
        let RegionState { region, flow, mean_choice, .. } = known;
        let (forward, backward) = factors;
        let contains_all_work = self.contains_all_work(region.part);
        for (weight, factor) in [(first as fn(&mut (f64, f64)) -> &mut f64, forward), (second, backward)] {
            let of = |pair: (f64, f64)| {
                let mut pair = pair;
                *weight(&mut pair)
            };
            let path = region.longest(|node| of(mean_choice.nodes[node]), |edge| of(mean_choice.edges[edge]));
            for pair in flow.nodes.iter_mut().chain(&mut flow.edges).chain([&mut flow.work]) {
                *weight(pair) *= 1.0 - step_size;
            }
            if contains_all_work && of(mean_choice.work) / self.gpus * backward > path.length * factor {
                *weight(&mut flow.work) += step_size;
                continue;
            }
            for edge in path.edges {
                *weight(&mut flow.edges[edge]) += step_size;
            }
            for node in path.nodes {
                *weight(&mut flow.nodes[node]) += step_size;
            }
        }
    }
}

/// A path through a region.
struct Path {
    /// Indices of its nodes in the region, in reverse order.
    nodes: Vec<usize>,
    /// Indices of its edges in [`Region::edges`], in reverse order.
    edges: Vec<usize>,
    /// Its length, microseconds.
    length: f64,
}

impl Region {
    /// Returns the longest path for these durations of nodes and edges.
    fn longest(&self, node: impl Fn(usize) -> f64, edge: impl Fn(usize) -> f64) -> Path {
        let count = self.end - self.begin;
        // By node, and for the exit: the longest path to its start, and the last edge of it.
        let mut ways: Vec<(f64, Option<usize>)> = vec![(0.0, None); count + 1];
        for (index, one) in self.edges.iter().enumerate() {
            let before = one.from.checked_sub(self.begin).map_or(0.0, |from| ways[from].0 + node(from));
            let way = before + edge(index);
            let to = &mut ways[one.to - self.begin];
            if to.1.is_none() || way > to.0 {
                *to = (way, Some(index));
            }
        }
        let length = |at: usize| ways[at].0 + if at < count { node(at) } else { 0.0 };
        let last = (0..=count).max_by(|&a, &b| length(a).total_cmp(&length(b))).unwrap_or(count);
        let mut path = Path { nodes: Vec::new(), edges: Vec::new(), length: length(last) };
        let mut at = Some(last);
        while let Some(now) = at {
            path.nodes.extend((now < count).then_some(now));
            path.edges.extend(ways[now].1);
            at = ways[now].1.and_then(|edge| self.edges[edge].from.checked_sub(self.begin));
        }
        path
    }
}

fn first(pair: &mut (f64, f64)) -> &mut f64 {
    &mut pair.0
}

fn second(pair: &mut (f64, f64)) -> &mut f64 {
    &mut pair.1
}

fn mix(mean: &mut (f64, f64), now: (f64, f64), step_size: f64) {
    mean.0 += step_size * (now.0 - mean.0);
    mean.1 += step_size * (now.1 - mean.1);
}
