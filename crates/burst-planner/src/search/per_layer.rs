//! The limit as a rule for each layer: the search of the original DeepPool, to compare with.
//!
//! Along a chain, `T(l, c) = min over c' of T(l - 1, c') + transfer(c', c) + compute(l, c) + all-reduce(l, c)`, where the options
//! `c'` of the layer before are visited by rising GPU count. One that is faster than the best so far takes its place only if its own
//! layer's amplification there is below the limit, or below that of the best so far:
//!
//! ```text
//! amplification(l, c) = c * (incoming transfer + compute + all-reduce) / compute on one GPU
//!                       1 for a layer that takes at most 300 us on one GPU
//! ```
//!
//! That is not a limit for the plan, and it is not even kept by each layer: where every option breaks it, the first
//! one stays unless another breaks it less, and it is not applied to the last layer. Plans with more GPUs or a looser limit can be slower,
//! since one bad local decision cannot be taken back.

use crate::{Error, NodeOption, PlanProblem, Result};

/// Layers that take no longer than this on one GPU are exempt, microseconds.
const EXEMPT_US: f64 = 300.0;

/// One option of a layer, with the best way to get there.
#[derive(Clone, Copy)]
struct Reached {
    time_us: f64,
    amplification: f64,
    /// The option of the layer before.
    before: usize,
}

/// The choice that the rule leads to. Time `O(layers * options^2)`.
///
/// # Errors
/// [`Error::NotAChain`]; [`Error::MissingSingleGpuTime`] for a layer without an option on one GPU;
/// [`Error::MemoryLimitPerLayer`].
pub(crate) fn search(problem: &PlanProblem, limit: f64) -> Result<Vec<usize>> {
    if problem.memory_limit_bytes.is_some() {
        return Err(Error::MemoryLimitPerLayer);
    }
    let chain = chain(problem)?;
    // By position in the chain and option.
    let mut reached: Vec<Vec<Option<Reached>>> = Vec::with_capacity(chain.len());
    for (position, &(node, incoming)) in chain.iter().enumerate() {
        let options = &problem.nodes[node].options;
        let single_us = options.iter().filter(|option| option.gpus == 1).map(|option| option.time_us);
        let single_us = single_us
            .min_by(f64::total_cmp)
            .ok_or_else(|| Error::MissingSingleGpuTime { node: problem.nodes[node].name.clone() })?;
        let amplification = |option: &NodeOption, transfer_us: f64| {
            let layer_us = transfer_us + option.total_us();
            if single_us <= EXEMPT_US { 1.0 } else { option.gpus as f64 * layer_us / single_us }
        };
        let mut row = vec![None; options.len()];
        for (index, option) in options.iter().enumerate() {
            let Some(edge) = incoming else {
                let amplification = amplification(option, 0.0);
                row[index] = Some(Reached { time_us: option.total_us(), amplification, before: 0 });
                continue;
            };
            let transfers = &problem.edges[edge].transfer_us;
            let mut best: Option<(Reached, f64)> = None;
            for before in by_gpus(&problem.nodes[chain[position - 1].0].options) {
                let Some(earlier) = reached[position - 1][before] else { continue };
                let transfer_us = transfers[before][index];
                let time_us = earlier.time_us + transfer_us + option.total_us();
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
    let last = chain.last().map_or(0, |&(node, _)| node);
    let last_options = by_gpus(&problem.nodes[last].options).into_iter();
    let mut option = last_options.min_by(|a, b| time_us(a).total_cmp(&time_us(b))).unwrap_or(0);
    let mut choice = vec![0; problem.nodes.len()];
    for (&(node, _), row) in chain.iter().zip(&reached).rev() {
        choice[node] = option;
        option = row[option].map_or(0, |reached| reached.before);
    }
    Ok(choice)
}

/// The options by rising GPU count; as listed among equals.
fn by_gpus(options: &[NodeOption]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..options.len()).collect();
    order.sort_by_key(|&option| options[option].gpus);
    order
}

/// The nodes of a chain in order, each with the edge that leads to it.
fn chain(problem: &PlanProblem) -> Result<Vec<(usize, Option<usize>)>> {
    let mut incoming = vec![None; problem.nodes.len()];
    let mut outgoing = vec![None; problem.nodes.len()];
    let not_a_chain = |node: usize| Error::NotAChain { node: problem.nodes[node].name.clone() };
    for (index, edge) in problem.edges.iter().enumerate() {
        if incoming[edge.to.0].replace(index).is_some() {
            return Err(not_a_chain(edge.to.0));
        }
        if outgoing[edge.from.0].replace(index).is_some() {
            return Err(not_a_chain(edge.from.0));
        }
    }
    let mut starts = (0..problem.nodes.len()).filter(|&node| incoming[node].is_none());
    let first = starts.next();
    if let Some(second) = starts.next() {
        return Err(not_a_chain(second));
    }
    let next = |&node: &usize| outgoing[node].map(|edge: usize| problem.edges[edge].to.0);
    Ok(std::iter::successors(first, next).map(|node| (node, incoming[node])).collect())
}
