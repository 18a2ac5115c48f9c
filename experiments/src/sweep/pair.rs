//! A point of the grid with its plan and simulation.

use deeppool::Error;
use deeppool::burst_planner::Error as PlannerError;
use deeppool::costs::Costs;
use deeppool::job::{Job, LoweredPlan};
use deeppool::plan::{ExecutionPlan, Mode, PlanRequest};
use deeppool::planning::find_frontier;
use deeppool::program::LowerOptions;
use deeppool::simulate::{SimulateOptions, simulate_plan};
use serde::{Deserialize, Serialize};

use super::grid::{Grid, SweepWorkload};

/// Relative difference up to which two times count as equal.
pub(super) const TOLERANCE: f64 = 1e-6;

/// A point of the grid with its plan and simulation: a record of the CSV file and an entry of the
/// report. Fields of the plan are `None` if no plan is within the limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct SweepPair {
    /// Name of the network.
    pub(super) model: String,
    /// Samples of the global batch.
    pub(super) batch: usize,
    /// Short name of the link model.
    pub(super) link: String,
    /// Number of GPUs.
    pub(super) gpus: usize,
    /// Mode of the plan: `bp`, a burst plan.
    pub(super) mode: String,
    /// Amplification limit of the plan.
    pub(super) amplification_limit: f64,
    /// Amplification of the plan.
    pub(super) amplification: Option<f64>,
    /// Simulated iteration time without background jobs in microseconds.
    pub(super) iteration_us: Option<f64>,
    /// Iteration time by the planner's evaluation in microseconds.
    pub(super) planned_iteration_us: Option<f64>,
    /// Lower bound on the iteration time within the limit in microseconds. `None` also if the
    /// planner has none.
    pub(super) lower_bound_us: Option<f64>,
    /// Simulated throughput in samples/s.
    pub(super) foreground_samples_per_s: Option<f64>,
    /// Throughput of background jobs: 0, since there are none.
    pub(super) background_samples_per_s: f64,
    /// Slow-down by background jobs: 1, since there are none.
    pub(super) foreground_slowdown: f64,
    /// Simulated iteration time of data parallelism in microseconds.
    pub(super) dp_iteration_us: f64,
    /// Iteration time of data parallelism by the planner's evaluation in microseconds.
    pub(super) dp_planned_iteration_us: f64,
    /// Amplification of data parallelism.
    pub(super) dp_amplification: f64,
    /// GPU counts of the layers in topological order, as runs such as `8x30 1x3`: 30 layers on 8
    /// GPUs, then 3 on 1.
    pub(super) gpu_counts: Option<String>,
}

impl SweepPair {
    /// Returns the simulated iteration time divided by the planned one. `None` without a plan.
    pub(super) fn ratio(&self) -> Option<f64> {
        Some(self.iteration_us? / self.planned_iteration_us?)
    }

    /// Returns the key of the search that found the plan: network, batch, link and number of GPUs.
    pub(super) fn search(&self) -> (&str, usize, &str, usize) {
        (&self.model, self.batch, &self.link, self.gpus)
    }

    /// Returns the point in words.
    pub(super) fn description(&self) -> String {
        let Self { model, batch, link, gpus, amplification_limit, .. } = self;
        format!("{model}, batch {batch}, {gpus} GPUs, {link}, limit {amplification_limit}")
    }
}

/// Searches for the plans within the limits of a point of the grid and simulates them. `point` has
/// the indices of its workload, link and GPU count. Pairs are in the order of the limits.
///
/// # Errors
/// If planning or simulation fails. A limit that no plan can keep is no error.
pub(super) fn pairs(grid: &Grid, point: [usize; 3]) -> Result<Vec<SweepPair>, Error> {
    let &SweepWorkload { model, batch, ref network, ref profile } = &grid.workloads[point[0]];
    let (link, gpus) = (&grid.links[point[1]], grid.gpus[point[2]]);
    let job = Job::new(Costs::new(network, profile, &link.model), batch, LowerOptions::default());
    let request = PlanRequest::new(gpus, Mode::Knee).with_effort(grid.effort).with_proof(grid.proof);
    let frontier = find_frontier(&job, &request)?;
    let dp = frontier.plan(Mode::DataParallel)?;
    let simulated_us = |plan: &LoweredPlan<'_>| -> Result<f64, Error> {
        let simulation = simulate_plan(&job, plan, &SimulateOptions::default())?;
        Ok(simulation.iteration.as_nanos() as f64 / 1e3)
    };
    let dp_us = simulated_us(&dp)?;

    let mut pairs: Vec<SweepPair> = Vec::new();
    // Neighbouring limits may have the same plan.
    let mut last: Option<(LoweredPlan<'_>, f64)> = None;
    for &limit in grid.limits_of(point) {
        let plan = match frontier.plan(Mode::Burst { amplification: limit }) {
            Ok(plan) => Some(plan),
            Err(Error::Planner(PlannerError::LimitUnreachable { .. })) => None,
            Err(error) => return Err(error),
        };
        let iteration_us = match (&plan, &last) {
            (None, _) => None,
            (Some(plan), Some((before, us)))
                if plan.layers == before.layers && plan.order == before.order =>
            {
                Some(*us)
            }
            (Some(plan), _) => Some(simulated_us(plan)?),
        };
        let of_plan = |figure: fn(&ExecutionPlan) -> f64| plan.as_ref().map(|plan| figure(plan.plan()));
        pairs.push(SweepPair {
            model: model.into(),
            batch,
            link: link.name.into(),
            gpus,
            mode: "bp".into(),
            amplification_limit: limit,
            amplification: of_plan(|plan| plan.amplification),
            iteration_us,
            planned_iteration_us: of_plan(|plan| plan.iteration_us),
            lower_bound_us: plan.as_ref().and_then(|plan| plan.lower_bound_us),
            foreground_samples_per_s: iteration_us.map(|us| batch as f64 / us * 1e6),
            background_samples_per_s: 0.0,
            foreground_slowdown: 1.0,
            dp_iteration_us: dp_us,
            dp_planned_iteration_us: dp.iteration_us,
            dp_amplification: dp.amplification,
            gpu_counts: plan.as_ref().map(|plan| gpu_counts(plan.layers.iter().map(|layer| layer.gpus))),
        });
        last = plan.zip(iteration_us);
    }
    Ok(pairs)
}

/// Returns the GPU counts of layers in topological order as runs of equal counts, such as
/// `8x30 1x3`: 30 layers on 8 GPUs, then 3 on 1.
pub(crate) fn gpu_counts(counts: impl Iterator<Item = usize>) -> String {
    let counts: Vec<usize> = counts.collect();
    let runs = counts.chunk_by(|a, b| a == b).map(|run| format!("{}x{}", run[0], run.len()));
    runs.collect::<Vec<_>>().join(" ")
}
