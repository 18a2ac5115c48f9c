//! The additive model: what a choice of options costs.

use crate::{Error, NodeOption, PlanProblem, Result};

/// What one iteration costs under a choice of options.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Totals {
    /// One iteration, microseconds. Without a schedule: the sum of `time_us + all_reduce_us` of all chosen options and of `transfer_us` of
    /// all edges. With a schedule, a wave takes as long as its slowest branch.
    pub iteration_us: f64,
    /// The time of every node times its GPU count, and of every transfer times the larger count of its two ends, summed over all nodes
    /// and edges, GPU-microseconds.
    pub gpu_time_us: f64,
    /// GPU time / [`PlanProblem::single_gpu_time_us`]: 1 is no overhead, 2 is twice the GPU time of an iteration on one GPU. GPUs that are
    /// idle while a node runs on others do not count.
    pub amplification: f64,
}

impl PlanProblem {
    /// Time of an iteration on one GPU, microseconds: `single_gpu_us` where it is given, else the sum over the
    /// nodes of the smallest `time_us` among options with one GPU. Infinite where a node has none, which
    /// [`validate`](Self::validate) rejects.
    #[must_use]
    pub fn single_gpu_time_us(&self) -> f64 {
        self.single_gpu_us.unwrap_or_else(|| {
            let fastest = |options: &[NodeOption]| {
                options
                    .iter()
                    .filter(|option| option.gpus == 1)
                    .map(|option| option.time_us)
                    .fold(f64::INFINITY, f64::min)
            };
            self.nodes.iter().map(|node| fastest(&node.options)).sum()
        })
    }
}

/// Adds up what `choice` costs, where `choice[n]` is the index of the option that node `n` takes.
///
/// All nodes run one after another; [`evaluate_schedule`](crate::evaluate_schedule) is for branches that run at the same time. It
/// does not call [`PlanProblem::validate`]: on an invalid problem the result is meaningless, or it panics. O(nodes + edges).
///
/// # Errors
/// [`Error::ChoiceLength`] and [`Error::ChoiceOption`] for a choice that does not belong to the problem.
pub fn evaluate(problem: &PlanProblem, choice: &[usize]) -> Result<Totals> {
    let chosen = chosen_options(problem, choice)?;
    let mut iteration_us = 0.0;
    let mut gpu_time_us = 0.0;
    for option in &chosen {
        iteration_us += option.total_us();
        gpu_time_us += option.gpus as f64 * option.total_us();
    }
    for edge in &problem.edges {
        let transfer_us = edge.transfer_us[choice[edge.from.0]][choice[edge.to.0]];
        let gpus = chosen[edge.from.0].gpus.max(chosen[edge.to.0].gpus);
        iteration_us += transfer_us;
        gpu_time_us += gpus as f64 * transfer_us;
    }
    Ok(Totals { iteration_us, gpu_time_us, amplification: gpu_time_us / problem.single_gpu_time_us() })
}

/// The options that `choice` names, in node order.
pub(crate) fn chosen_options<'p>(problem: &'p PlanProblem, choice: &[usize]) -> Result<Vec<&'p NodeOption>> {
    if choice.len() != problem.nodes.len() {
        return Err(Error::ChoiceLength { found: choice.len(), nodes: problem.nodes.len() });
    }
    let pairs = problem.nodes.iter().zip(choice);
    pairs
        .map(|(node, &option)| {
            node.options.get(option).ok_or_else(|| Error::ChoiceOption {
                node: node.name.clone(),
                option,
                options: node.options.len(),
            })
        })
        .collect()
}
