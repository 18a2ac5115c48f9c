//! A plan and its simulation.

use deeppool::Error;
use deeppool::burst_planner::Error as PlannerError;
use deeppool::costs::Costs;
use deeppool::job::{Job, LoweredPlan};
use deeppool::plan::{ExecutionPlan, Mode, PlanRequest};
use deeppool::planning::find_frontier;
use deeppool::program::LowerOptions;
use deeppool::simulate::{SimulateOptions, simulate_plan};
use serde::{Deserialize, Serialize};

use super::grid::{Grid, NamedLink, SweepWorkload};

/// Relative tolerance below which two times count as equal.
pub(super) const TOLERANCE: f64 = 1e-6;

/// A point of the grid with its plan and simulation: a record of the CSV file and an entry of the
/// report. Fields of the plan are `None` if no plan is within the limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct SweepPair {
    pub(super) model: String,
    /// Samples of the global batch.
    pub(super) batch: usize,
    pub(super) link: String,
    pub(super) gpus: usize,
    pub(super) mode: String,
    pub(super) amplification_limit: f64,
    /// Active time of all GPUs divided by the time on one GPU.
    pub(super) amplification: Option<f64>,
    /// Simulated iteration time without background jobs.
    pub(super) iteration_us: Option<f64>,
    /// Iteration time by the planner's evaluation.
    pub(super) planned_iteration_us: Option<f64>,
    /// Lower bound on the time of any plan within the limit.
    pub(super) lower_bound_us: Option<f64>,
    pub(super) foreground_samples_per_s: Option<f64>,
    pub(super) background_samples_per_s: f64,
    pub(super) foreground_slowdown: f64,
    /// Simulated iteration time of data parallelism.
    pub(super) dp_iteration_us: f64,
    pub(super) dp_planned_iteration_us: f64,
    pub(super) dp_amplification: f64,
    /// GPU counts of the layers, such as `8x30 1x3`.
    pub(super) gpu_counts: Option<String>,
}

impl SweepPair {
    /// Returns simulated over planned time.
    pub(super) fn ratio(&self) -> Option<f64> {
        Some(self.iteration_us? / self.planned_iteration_us?)
    }

    /// Returns the point without the limit.
    pub(super) fn search(&self) -> (&str, usize, &str, usize) {
        (&self.model, self.batch, &self.link, self.gpus)
    }

    /// Returns a description of the point.
    pub(super) fn description(&self) -> String {
        let Self { model, batch, link, gpus, amplification_limit, .. } = self;
        format!("{model}, batch {batch}, {gpus} GPUs, {link}, limit {amplification_limit}")
    }
}

/// Searches for plans within all limits and simulates them. Pairs are in the order of the limits.
pub(super) fn pairs(
    grid: &Grid,
    workload: &SweepWorkload,
    link: &NamedLink,
    gpus: usize,
) -> Result<Vec<SweepPair>, Error> {
    let &SweepWorkload { model, batch, ref network, ref profile } = workload;
    let job = Job::new(Costs::new(network, profile, &link.model), batch, LowerOptions::default());
    let frontier = find_frontier(&job, &PlanRequest::new(gpus, Mode::Knee))?;
    let dp = frontier.plan(Mode::DataParallel)?;
    let simulated_us = |plan: &LoweredPlan<'_>| -> Result<f64, Error> {
        let simulation = simulate_plan(&job, plan, &SimulateOptions::default())?;
        Ok(simulation.iteration.as_nanos() as f64 / 1e3)
    };
    let dp_us = simulated_us(&dp)?;

    let mut pairs: Vec<SweepPair> = Vec::new();
    // Neighbouring limits may have the same plan.
    let mut last: Option<(LoweredPlan<'_>, f64)> = None;
    for &limit in &grid.limits {
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
