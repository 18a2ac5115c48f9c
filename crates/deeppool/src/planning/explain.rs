//! The effect of other GPU counts for each run of layers of a plan. A *run* is a series of
//! consecutive layers, in the plan's order, on the same ranks and with the same split. Differences
//! are relative to the plan.

use std::collections::HashSet;

use burst_planner::{Arrangement, Evaluator, PlanProblem};
use layer_graph::Division;
use serde::Serialize;

use crate::Error;
use crate::plan::ExecutionPlan;

/// The effect of other GPU counts for a run of layers, which keeps its split. All other layers keep
/// their ranks.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RunExplanation {
    /// Name of the first layer of the run.
    pub first: String,
    /// Name of the last layer of the run.
    pub last: String,
    /// Number of layers of the run.
    pub layers: usize,
    /// Number of GPUs of the run.
    pub gpus: usize,
    /// How the work on each sample is divided; `None` if the ranks divide the samples only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub division: Option<Division>,
    /// Predictions for the next larger GPU count; `None` if there is none.
    pub more: Option<RunAlternative>,
    /// Predictions for the next smaller GPU count; `None` if there is none.
    pub fewer: Option<RunAlternative>,
}

/// Predictions for a plan with one run of layers on another number of GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RunAlternative {
    /// The other number of GPUs of the run.
    pub gpus: usize,
    /// Change of the iteration time, microseconds; negative is shorter.
    pub iteration_delta_us: f64,
    /// Change of the GPU time, microseconds; negative is less.
    pub gpu_time_delta_us: f64,
    /// Amplification of the changed plan: its GPU time divided by the iteration time on one GPU.
    pub amplification: f64,
}

/// Computes the explanation of each run of layers, in the order of `arrangement`, which must be
/// that of `plan`. Layers that share parameters with a split layer of a run move with it. `counts`
/// are the possible numbers of sample ranges, ascending: the GPU counts of layers without a split.
pub(super) fn explain(
    evaluator: &mut Evaluator<'_>,
    problem: &PlanProblem,
    arrangement: &Arrangement,
    plan: &ExecutionPlan,
    counts: &[usize],
) -> Result<Vec<RunExplanation>, Error> {
    let owner = |node: usize| problem.nodes[node].parameters_of.map_or(node, |owner| owner.0);
    let mut explanations = Vec::new();
    for run in arrangement.order.chunk_by(|&a, &b| plan.layers[a].is_placed_as(&plan.layers[b])) {
        let division = plan.layers[run[0]].division;
        let parts = division.map_or(1, |division| division.parts);
        let of_run = counts.iter().map(|&ranges| ranges * parts).filter(|&count| count <= plan.gpus);
        let of_run: Vec<usize> = of_run.collect();
        let gpus = arrangement.ranks[run[0]].len();
        let owners: HashSet<usize> = run.iter().map(|&node| owner(node)).collect();
        let mut instead = |count: Option<&usize>| {
            let Some(&count) = count else { return Ok(None) };
            let mut other = arrangement.clone();
            let shares = |node: usize| division.is_some() && owners.contains(&owner(node));
            for node in (0..problem.nodes.len()).filter(|&node| run.contains(&node) || shares(node)) {
                other.ranks[node] = (0..count).collect();
            }
            compare(evaluator, &other, plan, count).map(Some)
        };
        explanations.push(RunExplanation {
            first: plan.layers[run[0]].name.clone(),
            last: plan.layers[run[run.len() - 1]].name.clone(),
            layers: run.len(),
            gpus,
            division,
            more: instead(of_run.iter().find(|&&count| count > gpus))?,
            fewer: instead(of_run.iter().rev().find(|&&count| count < gpus))?,
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
