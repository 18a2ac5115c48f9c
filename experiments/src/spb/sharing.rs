//! Simulated throughput of background jobs beside partial backpropagation.

use collectives::LinkModel;
use deeppool::costs::Costs;
use deeppool::job::Job;
use deeppool::plan::{Mode, PlanRequest};
use deeppool::planning::find_plan;
use deeppool::program::LowerOptions;
use deeppool::simulate::{BackgroundCosts, SimulateOptions, simulate_plan};
use serde::{Deserialize, Serialize};

use super::{GPUS, Method};
use crate::layer_times::LayerTimes;
use crate::workload::Workload;

/// Amplification limit of burst plans.
pub(super) const LIMIT: f64 = 2.0;

/// Result of one simulation, as stored in the journal.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct SharingResult {
    is_burst: bool,
    parts: usize,
    iteration_us: f64,
    amplification: f64,
    computing_us: f64,
    whole_computing_us: f64,
    foreground_samples_per_s: f64,
    background_samples_per_s: f64,
    foreground_slowdown: f64,
}

/// Throughput of a network with one backpropagation method and background jobs on the same GPUs.
#[derive(Debug, Clone, Serialize)]
pub(super) struct SharingRow {
    /// Name of the network.
    pub(super) model: String,
    /// Display name of the network.
    #[serde(skip)]
    pub(super) title: String,
    /// Samples of the foreground's global batch.
    pub(super) batch: usize,
    /// Label of the backpropagation method.
    #[serde(rename = "way")]
    pub(super) method: String,
    /// Way to share the GPUs: `dp+col` or `bp+col`.
    pub(super) mode: &'static str,
    /// Simulated iteration time of the foreground without background jobs, in microseconds.
    pub(super) iteration_us: f64,
    /// Amplification of the plan.
    pub(super) amplification: f64,
    /// Computing time of all ranks relative to full backpropagation with data parallelism.
    pub(super) computing_share: f64,
    /// Throughput of the foreground beside background jobs, in samples/s.
    pub(super) foreground_samples_per_s: f64,
    /// Throughput of all background jobs together, in samples/s.
    pub(super) background_samples_per_s: f64,
    /// Iteration time with background jobs divided by that without.
    pub(super) foreground_slowdown: f64,
}

/// Simulates data parallelism and burst plans on 8 GPUs, each with full backpropagation and with 2,
/// 4 and 8 parts, with background jobs and without.
///
/// # Errors
/// If layer times are missing, or if planning or simulation fails.
pub(super) fn compare(
    workload: &Workload,
    times: &LayerTimes,
    link: &LinkModel,
) -> anyhow::Result<Vec<SharingResult>> {
    let profile = times.profile(&workload.network, &workload.batches(GPUS))?;
    let costs = Costs::new(&workload.network, &profile, link);
    let background = BackgroundCosts::new(&costs, workload.background_batch)?;
    let alone = SimulateOptions::default();
    let beside = alone.clone().with_background(Some(background));
    let mut all: Vec<SharingResult> = Vec::new();
    for is_burst in [false, true] {
        for method in [Method::Whole, Method::Parts(2), Method::Parts(4), Method::Parts(8)] {
            let lowering = LowerOptions::default().with_partial(method.partial(&workload.network)?);
            let job = Job::new(costs.clone(), workload.batch, lowering);
            let mode = if is_burst { Mode::Burst { amplification: LIMIT } } else { Mode::DataParallel };
            let plan = find_plan(&job, &PlanRequest::new(GPUS, mode))?;
            let (without, shared) =
                (simulate_plan(&job, &plan, &alone)?, simulate_plan(&job, &plan, &beside)?);
            let computing_us = without.activity.computing.as_secs_f64() * 1e6;
            all.push(SharingResult {
                is_burst,
                parts: if let Method::Parts(parts) = method { parts } else { 1 },
                iteration_us: without.iteration.as_secs_f64() * 1e6,
                amplification: plan.amplification,
                computing_us,
                whole_computing_us: all.first().map_or(computing_us, |whole| whole.computing_us),
                foreground_samples_per_s: shared.foreground_samples_per_s,
                background_samples_per_s: shared.background_samples_per_s,
                foreground_slowdown: shared.iteration.as_secs_f64() / without.iteration.as_secs_f64(),
            });
        }
    }
    Ok(all)
}

impl SharingResult {
    /// Returns the row of the result for a workload.
    pub(super) fn row(self, workload: &Workload) -> SharingRow {
        let method = if self.parts > 1 { Method::Parts(self.parts) } else { Method::Whole };
        SharingRow {
            model: workload.network.name().into(),
            title: workload.title.clone(),
            batch: workload.batch,
            method: method.label(),
            mode: if self.is_burst { "bp+col" } else { "dp+col" },
            iteration_us: self.iteration_us,
            amplification: self.amplification,
            computing_share: self.computing_us / self.whole_computing_us,
            foreground_samples_per_s: self.foreground_samples_per_s,
            background_samples_per_s: self.background_samples_per_s,
            foreground_slowdown: self.foreground_slowdown,
        }
    }
}
