//! The planner of the original DeepPool (Park et al., MLSys 2022), to compare with.
//!
//! It plans chains of layers greedily, with a limit on the amplification of each layer instead of
//! the whole plan. Along the chain,
//!
//! ```text
//! T(l, c) = min over c' of T(l - 1, c') + transfer(c', c) + time(l, c)
//! ```
//!
//! where the GPU counts `c'` of the layer before are visited in ascending order. A faster one
//! replaces the best one so far only if the layer's own amplification there is below the limit, or
//! below that of the best one so far:
//!
//! ```text
//! amplification(l, c) = c * (incoming transfer + time(l, c)) / time(l, 1)
//!                       1 for a layer that takes at most 300 us on one GPU
//! ```
//!
//! The result can exceed the limit: where every option does, the first one stays unless another one
//! exceeds it less, and the last layer has no limit. More GPUs or a looser limit can give a slower
//! plan.
//!
//! [`plan`] builds such a chain from a [`PlanProblem`]; [`LayerChain`] is for layer times from
//! elsewhere.

use crate::evaluator::{Evaluator, Plan};
use crate::problem::ProblemGraph;
use crate::search::check_limit;
use crate::{Arrangement, CostModel, Error, NodeId, PlanProblem, Result, ShardSize};

/// Layers that take at most this time on one GPU have amplification 1, microseconds.
const EXEMPT_US: f64 = 300.0;

/// A chain of layers with the times that the original's planner adds up.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LayerChain {
    /// The layers, first to last.
    pub layers: Vec<Layer>,
}

/// A layer of a [`LayerChain`].
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// The layer's name.
    pub name: String,
    /// The GPU counts that it can run on, one of which is 1, with their times.
    pub options: Vec<LayerOption>,
    /// `transfer_us[i][j]`: duration of moving the input there and its gradient back, microseconds,
    /// when the layer before uses its option `i` and this one its option `j`. Not used for the
    /// first layer.
    pub transfer_us: Vec<Vec<f64>>,
}

/// A GPU count of a [`Layer`], with the layer's time on it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerOption {
    /// The GPU count.
    pub gpus: usize,
    /// Duration of the forward and backward steps, the update and the all-reduce on this GPU count,
    /// microseconds.
    pub time_us: f64,
}

/// The best way to an option of a layer.
#[derive(Clone, Copy)]
struct Reached {
    time_us: f64,
    amplification: f64,
    /// The option of the layer before.
    before: usize,
}

/// Returns the plan that the original's rule leads to, each layer on the first ranks, with its time
/// by the [`Evaluator`]. `limit` is the amplification limit of each layer, at least 1; the
/// amplification of the plan can exceed it.
///
/// # Errors
/// Those of [`LayerChain::from_problem`], [`LayerChain::choose`] and [`Evaluator::evaluate`].
pub fn plan(problem: &PlanProblem, costs: &dyn CostModel, limit: f64) -> Result<Plan> {
    let chain = LayerChain::from_problem(problem, costs)?;
    let order = ProblemGraph::new(problem)?.order;
    let chosen = chain.choose(limit)?;
    let mut ranks = vec![Vec::new(); problem.nodes.len()];
    for ((&node, layer), option) in order.iter().zip(&chain.layers).zip(chosen) {
        ranks[node] = (0..layer.options[option].gpus).collect();
    }
    let arrangement = Arrangement::new(ranks, order);
    let time = Evaluator::new(problem, costs)?.evaluate(&arrangement)?;
    Ok(Plan { time, arrangement })
}

impl LayerChain {
    /// Builds the chain of a problem. An all-reduce smaller than a bucket takes its share of the
    /// bucket's duration; a transfer is between the first ranks.
    ///
    /// # Errors
    /// [`Error::NotAChain`] if a node has several producers or consumers,
    /// [`Error::MemoryLimitPerLayer`] if the problem limits memory, [`Error::NoTimes`], and those
    /// of [`PlanProblem::validate`].
    pub fn from_problem(problem: &PlanProblem, costs: &dyn CostModel) -> Result<Self> {
        problem.validate()?;
        if problem.memory_limit_bytes.is_some() {
            return Err(Error::MemoryLimitPerLayer);
        }
        let structure = ProblemGraph::new(problem)?;
        check_chain(problem, &structure)?;
        let mut layers: Vec<Layer> = Vec::with_capacity(problem.nodes.len());
        let mut before: Option<usize> = None;
        for &index in &structure.order {
            let node = &problem.nodes[index];
            let options = node.gpu_counts.iter().filter(|&&gpus| gpus <= problem.gpus);
            let options = options.map(|&gpus| {
                let steps = costs.compute(NodeId(index), gpus, ShardSize::Larger);
                let steps = steps.ok_or_else(|| Error::NoTimes { node: node.name.clone(), gpus })?;
                let backward_us = if structure.needs_gradient[index] { steps.backward_us } else { 0.0 };
                let all_reduce_us = all_reduce_us(problem, costs, node.gradient_bytes, gpus);
                let time_us = steps.forward_us + backward_us + steps.update_us + all_reduce_us;
                Ok(LayerOption { gpus, time_us })
            });
            let options: Vec<LayerOption> = options.collect::<Result<_>>()?;
            let transfer_us = match (before, layers.last()) {
                (Some(producer), Some(layer)) => {
                    let has_gradient = structure.needs_gradient[producer];
                    let both_ways_us = |from: usize, to: usize| {
                        both_ways_us(costs, NodeId(producer), has_gradient, from, to)
                    };
                    let row = |from: &LayerOption| {
                        options.iter().map(|to| both_ways_us(from.gpus, to.gpus)).collect()
                    };
                    layer.options.iter().map(row).collect()
                }
                _ => Vec::new(),
            };
            layers.push(Layer { name: node.name.clone(), options, transfer_us });
            before = Some(index);
        }
        Ok(Self { layers })
    }

    /// Returns by layer the index of the option that the original's rule leads to. `limit` is the
    /// amplification limit of each layer, at least 1. O(layers x options^2).
    ///
    /// # Errors
    /// [`Error::BadLimit`] if `limit` is below 1 or not a number, and [`Error::NoTimes`] for a
    /// layer without an option on one GPU.
    pub fn choose(&self, limit: f64) -> Result<Vec<usize>> {
        check_limit(limit)?;
        // By layer and option.
        let mut reached: Vec<Vec<Option<Reached>>> = Vec::with_capacity(self.layers.len());
        for (position, layer) in self.layers.iter().enumerate() {
            let single_us =
                layer.options.iter().filter(|option| option.gpus == 1).map(|option| option.time_us);
            let single_us = single_us
                .min_by(f64::total_cmp)
                .ok_or_else(|| Error::NoTimes { node: layer.name.clone(), gpus: 1 })?;
            let amplification = |option: &LayerOption, transfer_us: f64| {
                let layer_us = transfer_us + option.time_us;
                if single_us <= EXEMPT_US { 1.0 } else { option.gpus as f64 * layer_us / single_us }
            };
            let mut row = vec![None; layer.options.len()];
            for (index, option) in layer.options.iter().enumerate() {
                let Some(earlier_row) = reached.last() else {
                    let amplification = amplification(option, 0.0);
                    row[index] = Some(Reached { time_us: option.time_us, amplification, before: 0 });
                    continue;
                };
                let mut best: Option<(Reached, f64)> = None;
                for before in ascending_gpus(&self.layers[position - 1].options) {
                    let Some(earlier) = earlier_row[before] else { continue };
                    let transfer_us = layer.transfer_us[before][index];
                    let time_us = earlier.time_us + transfer_us + option.time_us;
                    let wins = best.is_none_or(|(best, its_amplification)| {
                        time_us < best.time_us
                            && (earlier.amplification < limit || earlier.amplification < its_amplification)
                    });
                    if wins {
                        let amplification = amplification(option, transfer_us);
                        best = Some((Reached { time_us, amplification, before }, earlier.amplification));
                    }
                }
                row[index] = best.map(|(reached, _)| reached);
            }
            reached.push(row);
        }

        let time_us = |option: &usize| {
            reached.last().and_then(|row| row[*option]).map_or(f64::INFINITY, |reached| reached.time_us)
        };
        let last = self.layers.last().map_or(Vec::new(), |layer| ascending_gpus(&layer.options));
        let mut option = last.into_iter().min_by(|a, b| time_us(a).total_cmp(&time_us(b))).unwrap_or(0);
        let mut chosen = Vec::with_capacity(reached.len());
        for row in reached.iter().rev() {
            chosen.push(option);
            option = row[option].map_or(0, |reached| reached.before);
        }
        chosen.reverse();
        Ok(chosen)
    }

    /// Returns the iteration time as the original adds it up: all layers and all transfers,
    /// microseconds. `chosen` has by layer the index of its option.
    ///
    /// # Panics
    /// If there are fewer options in `chosen` than layers, or an option does not exist.
    #[must_use]
    pub fn iteration_us(&self, chosen: &[usize]) -> f64 {
        self.sum(chosen, |_| 1.0)
    }

    /// Returns the GPU time as the original adds it up: a layer and its incoming transfer take all
    /// GPUs of the layer, GPU-microseconds. `chosen` has by layer the index of its option.
    ///
    /// # Panics
    /// If there are fewer options in `chosen` than layers, or an option does not exist.
    #[must_use]
    pub fn gpu_time_us(&self, chosen: &[usize]) -> f64 {
        self.sum(chosen, |option| option.gpus as f64)
    }

    fn sum(&self, chosen: &[usize], weight: impl Fn(&LayerOption) -> f64) -> f64 {
        let terms = self.layers.iter().enumerate().map(|(position, layer)| {
            let option = &layer.options[chosen[position]];
            let incoming =
                position.checked_sub(1).map(|before| layer.transfer_us[chosen[before]][chosen[position]]);
            weight(option) * (option.time_us + incoming.unwrap_or(0.0))
        });
        terms.sum()
    }
}

/// Returns the options in ascending order of GPU counts; equal ones as listed.
fn ascending_gpus(options: &[LayerOption]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..options.len()).collect();
    order.sort_by_key(|&option| options[option].gpus);
    order
}

fn check_chain(problem: &PlanProblem, structure: &ProblemGraph) -> Result<()> {
    let not_a_chain = |node: usize| Err(Error::NotAChain { node: problem.nodes[node].name.clone() });
    let mut starts = 0;
    for &node in &structure.order {
        starts += usize::from(structure.producers[node].is_empty());
        if structure.producers[node].len() > 1 || structure.consumers[node].len() > 1 || starts > 1 {
            return not_a_chain(node);
        }
    }
    Ok(())
}

fn all_reduce_us(problem: &PlanProblem, costs: &dyn CostModel, bytes: u64, gpus: usize) -> f64 {
    let bucket = problem.gradients.bucket_bytes.max(1);
    let ranks: Vec<usize> = (0..gpus).collect();
    match bytes {
        0 => 0.0,
        _ if gpus < 2 => 0.0,
        _ if bytes >= bucket => costs.all_reduce(bytes, &ranks),
        _ => costs.all_reduce(bucket, &ranks) * bytes as f64 / bucket as f64,
    }
}

fn both_ways_us(costs: &dyn CostModel, producer: NodeId, has_gradient: bool, from: usize, to: usize) -> f64 {
    if from == to {
        return 0.0;
    }
    let (own, other): (Vec<usize>, Vec<usize>) = ((0..from).collect(), (0..to).collect());
    let backward_us = if has_gradient { costs.transfer(producer, &other, &own) } else { 0.0 };
    costs.transfer(producer, &own, &other) + backward_us
}
