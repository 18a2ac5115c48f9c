//! The baseline: every node on the same number of GPUs.

use std::collections::BTreeSet;

use crate::{Error, Plan, PlanProblem, Result, SearchOptions, TimeModel, fastest};

/// The data-parallel plan: all nodes on one GPU count, the largest that is an option of every node.
///
/// Where a node has several options with that count (kinds of split, for instance), the fastest combination is
/// taken. There is no limit on amplification: data parallelism has nothing to choose from.
///
/// # Errors
/// [`Error::NoDataParallelPlan`] where no count is an option of every node; what
/// [`PlanProblem::validate`] reports; [`Error::DoesNotFit`] when that count breaks the memory limit.
///
/// # Example
/// ```
/// use burst_planner::{NodeOption, PlanProblem, data_parallel};
///
/// let mut problem = PlanProblem::new(8);
/// problem.add_node("a", [1, 2, 4, 8].map(|gpus| NodeOption::new(gpus, 100.0 / gpus as f64)));
/// problem.add_node("b", [1, 2, 4].map(|gpus| NodeOption::new(gpus, 50.0)));
/// assert_eq!(data_parallel(&problem)?.gpus, 4);
/// # Ok::<(), burst_planner::Error>(())
/// ```
pub fn data_parallel(problem: &PlanProblem) -> Result<Plan> {
    problem.validate()?;
    let counts =
        problem.nodes.iter().map(|node| node.options.iter().map(|o| o.gpus).collect::<BTreeSet<_>>());
    let common = counts.reduce(|all, counts| &all & &counts).unwrap_or_default();
    let gpus = *common.last().ok_or(Error::NoDataParallelPlan)?;

    let kept: Vec<Vec<usize>> = problem
        .nodes
        .iter()
        .map(|node| (0..node.options.len()).filter(|&option| node.options[option].gpus == gpus).collect())
        .collect();
    let restricted = restrict(problem, &kept);
    let options = SearchOptions::default().with_time_model(TimeModel::Additive);
    let plan = fastest(&restricted, f64::INFINITY, &options)?;
    let choice = plan.choice.iter().zip(&kept).map(|(&option, kept)| kept[option]).collect();
    Ok(Plan {
        search_time: plan.search_time,
        optimality_gap: Some(0.0),
        ..Plan::from_choice(problem, choice)?
    })
}

/// The problem with only the kept options of each node.
fn restrict(problem: &PlanProblem, kept: &[Vec<usize>]) -> PlanProblem {
    let mut restricted = problem.clone();
    // The one-GPU options, from which this is derived, may be among those left out.
    restricted.single_gpu_us = Some(problem.single_gpu_time_us());
    for (node, kept) in restricted.nodes.iter_mut().zip(kept) {
        node.options = kept.iter().map(|&option| node.options[option].clone()).collect();
    }
    for edge in &mut restricted.edges {
        let (rows, columns) = (&kept[edge.from.0], &kept[edge.to.0]);
        for matrix in std::iter::once(&mut edge.transfer_us).chain(&mut edge.transfer_disjoint_us) {
            *matrix = rows.iter().map(|&i| columns.iter().map(|&j| matrix[i][j]).collect()).collect();
        }
    }
    restricted
}
