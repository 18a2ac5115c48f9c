//! What background jobs get done in the time that partial backpropagation leaves, simulated.

use collectives::LinkModel;
use deeppool::costs::Costs;
use deeppool::job::Job;
use deeppool::plan::{Mode, PlanRequest};
use deeppool::planning::find_plan;
use deeppool::program::LowerOptions;
use deeppool::simulate::{BackgroundCosts, SimulateOptions, simulate_plan};
use serde::{Deserialize, Serialize};

use super::{GPUS, Way};
use crate::layer_times::LayerTimes;
use crate::workload::Workload;

/// The limit on the amplification of burst plans.
pub(super) const LIMIT: f64 = 2.0;

/// A way to share GPUs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Shared {
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

#[derive(Debug, Clone, Serialize)]
pub(super) struct SharingRow {
    pub(super) model: String,
    #[serde(skip)]
    pub(super) title: String,
    pub(super) batch: usize,
    pub(super) way: String,
    /// With background jobs on the same GPUs.
    pub(super) mode: &'static str,
    /// Of the foreground by itself.
    pub(super) iteration_us: f64,
    pub(super) amplification: f64,
    /// What the ranks compute, over what they do by whole backpropagation and data parallelism.
    pub(super) computing_share: f64,
    pub(super) foreground_samples_per_s: f64,
    pub(super) background_samples_per_s: f64,
    /// The iteration with the background over that without.
    pub(super) foreground_slowdown: f64,
}

/// Data parallelism and burst plans, whole and partial, each with background jobs.
pub(super) fn compare(
    workload: &Workload,
    times: &LayerTimes,
    link: &LinkModel,
) -> anyhow::Result<Vec<Shared>> {
    let profile = times.profile(&workload.network, &workload.batches(GPUS))?;
    let costs = Costs::new(&workload.network, &profile, link);
    let background = BackgroundCosts::new(&costs, workload.background_batch)?;
    let alone = SimulateOptions::default();
    let beside = alone.clone().with_background(Some(background));
    let mut all: Vec<Shared> = Vec::new();
    for is_burst in [false, true] {
        for way in [Way::Whole, Way::Parts(2), Way::Parts(4), Way::Parts(8)] {
            let lowering = LowerOptions::default().with_partial(way.partial(&workload.network)?);
            let job = Job::new(costs.clone(), workload.batch, lowering);
            let mode = if is_burst { Mode::Burst { amplification: LIMIT } } else { Mode::DataParallel };
            let plan = find_plan(&job, &PlanRequest::new(GPUS, mode))?;
            let (by_itself, shared) =
                (simulate_plan(&job, &plan, &alone)?, simulate_plan(&job, &plan, &beside)?);
            let computing_us = by_itself.activity.computing.as_secs_f64() * 1e6;
            all.push(Shared {
                is_burst,
                parts: if let Way::Parts(parts) = way { parts } else { 1 },
                iteration_us: by_itself.iteration.as_secs_f64() * 1e6,
                amplification: plan.amplification,
                computing_us,
                whole_computing_us: all.first().map_or(computing_us, |whole| whole.computing_us),
                foreground_samples_per_s: shared.foreground_samples_per_s,
                background_samples_per_s: shared.background_samples_per_s,
                foreground_slowdown: shared.iteration.as_secs_f64() / by_itself.iteration.as_secs_f64(),
            });
        }
    }
    Ok(all)
}

impl Shared {
    pub(super) fn row(self, workload: &Workload) -> SharingRow {
        let way = if self.parts > 1 { Way::Parts(self.parts) } else { Way::Whole };
        SharingRow {
            model: workload.network.name().into(),
            title: workload.title.clone(),
            batch: workload.batch,
            way: way.label(),
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
