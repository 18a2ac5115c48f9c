//! Why layers run on as many GPUs as they do.

use burst_planner::{Arrangement, Evaluator};
use serde::Serialize;

use crate::Error;
use crate::plan::ExecutionPlan;

/// What layers on the same ranks, one after another in a plan, could do instead, all others as they are.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RunExplanation {
    /// The first layer.
    pub first: String,
    /// The last one.
    pub last: String,
    /// How many there are.
    pub layers: usize,
    /// On how many GPUs they run.
    pub gpus: usize,
    /// On the next larger GPU count, where there is one.
    pub more: Option<RunAlternative>,
    /// On the next smaller GPU count, where there is one.
    pub fewer: Option<RunAlternative>,
}

/// What a plan would take with one run of layers on another number of GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RunAlternative {
    /// On how many.
    pub gpus: usize,
    /// How much longer the iteration would be; negative is shorter.
    pub iteration_delta_us: f64,
    /// How much more GPU time it would take; negative is less.
    pub gpu_time_delta_us: f64,
    /// The amplification that the plan would have.
    pub amplification: f64,
}

/// Explains the runs of a plan, whose arrangement this is.
pub(super) fn explain(
    evaluator: &mut Evaluator<'_>,
    arrangement: &Arrangement,
    plan: &ExecutionPlan,
    counts: &[usize],
) -> Result<Vec<RunExplanation>, Error> {
    let mut explanations = Vec::new();
    for run in arrangement.order.chunk_by(|&a, &b| arrangement.ranks[a] == arrangement.ranks[b]) {
        let gpus = arrangement.ranks[run[0]].len();
        let mut instead = |count: Option<&usize>| {
            let Some(&count) = count else { return Ok(None) };
            let mut other = arrangement.clone();
            for &node in run {
                other.ranks[node] = (0..count).collect();
            }
            compare(evaluator, &other, plan, count).map(Some)
        };
        explanations.push(RunExplanation {
            first: plan.layers[run[0]].name.clone(),
            last: plan.layers[run[run.len() - 1]].name.clone(),
            layers: run.len(),
            gpus,
            more: instead(counts.iter().find(|&&count| count > gpus))?,
            fewer: instead(counts.iter().rev().find(|&&count| count < gpus))?,
        });
    }
    Ok(explanations)
}

fn compare(
    evaluator: &mut Evaluator<'_>,
    other: &Arrangement,
    plan: &ExecutionPlan,
    gpus: usize,
) -> Result<RunAlternative, Error> {
    let time = evaluator.evaluate(other)?;
    Ok(RunAlternative {
        gpus,
        iteration_delta_us: time.iteration_us - plan.iteration_us,
        gpu_time_delta_us: time.gpu_time_us - plan.gpu_time_us,
        amplification: time.gpu_time_us / plan.single_gpu_us,
    })
}
