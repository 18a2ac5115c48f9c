//! Repeated searches for a plan, and their run times.

use std::time::Instant;

use anyhow::bail;
use deeppool::costs::{Costs, default_link, shard_sizes};
use deeppool::job::Job;
use deeppool::plan::{ExecutionPlan, Mode, PlanRequest};
use deeppool::planning::find_plan;
use deeppool::program::LowerOptions;
use layer_graph::zoo;
use layer_profile::{DataSheet, DeviceModel};
use serde::{Deserialize, Serialize};

use super::original::Original;
use crate::machine::Machine;
use crate::statistics::median;

/// Amplification limit of all plans.
pub(super) const LIMIT: f64 = 2.0;
/// Name of the device model of the layer times.
pub(super) const DEVICE: &str = "a100";
const MODELS: [&str; 4] = ["vgg16", "wrn-101-2", "inception-v3", "resnet-50"];
/// GPU counts and their global batches: one sample a GPU, but at least the usual 32.
const SIZES: [(usize, usize); 3] = [(8, 32), (64, 64), (1024, 1024)];

/// A network, its global batch and a number of GPUs.
#[derive(Debug, Clone, Copy)]
pub(super) struct SearchCase {
    /// Name of the network.
    pub(super) model: &'static str,
    /// Number of GPUs.
    pub(super) gpus: usize,
    batch: usize,
}

/// Measured run time of a search, and the plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct SearchTimeRow {
    machine: String,
    cores: usize,
    commit: String,
    /// Name of the network.
    pub(super) model: String,
    /// Samples of the global batch.
    pub(super) batch: usize,
    /// Number of GPUs.
    pub(super) gpus: usize,
    mode: String,
    amplification_limit: f64,
    /// Number of searches.
    pub(super) runs: usize,
    /// Median wall time of a search in seconds.
    pub(super) seconds: f64,
    /// Minimum wall time of a search in seconds.
    pub(super) min_seconds: f64,
    /// Maximum wall time of a search in seconds.
    pub(super) max_seconds: f64,
    /// Iteration time of the plan by the planner's evaluation, in microseconds.
    pub(super) planned_iteration_us: f64,
    /// Amplification of the plan.
    pub(super) amplification: f64,
    /// Lower bound on the iteration time within the amplification limit, in microseconds. `None` if
    /// the planner has none.
    lower_bound_us: Option<f64>,
    /// Gap to the lower bound: planned time / bound - 1. `None` without a bound.
    pub(super) gap: Option<f64>,
    /// Run time in seconds of the original system's planner for the same network and GPUs. `None`
    /// if it was not measured.
    pub(super) original_seconds: Option<f64>,
    /// Samples of the global batch in that run of the original planner. `None` if not recorded.
    pub(super) original_batch: Option<usize>,
    /// `seconds` divided by `original_seconds`. `None` if that was not measured.
    pub(super) over_original: Option<f64>,
}

/// Returns all cases, or with `quick` those on 8 GPUs, which take seconds.
pub(super) fn cases(quick: bool) -> Vec<SearchCase> {
    let sizes = if quick { &SIZES[..1] } else { &SIZES[..] };
    let of_model =
        |model: &'static str| sizes.iter().map(move |&(gpus, batch)| SearchCase { model, gpus, batch });
    MODELS.into_iter().flat_map(of_model).collect()
}

impl SearchCase {
    /// Measures `runs` searches. Layer times and links are prepared before the clock starts. `done`
    /// is called after each search.
    ///
    /// # Errors
    /// If a search fails, or if `runs` is 0.
    pub(super) fn measure(
        &self,
        runs: usize,
        machine: &Machine,
        done: &dyn Fn(),
    ) -> anyhow::Result<SearchTimeRow> {
        let &Self { model, gpus, batch } = self;
        let network = zoo::model(model)?;
        let profile = DeviceModel::named(DEVICE)?.profile(&network, &shard_sizes(batch, gpus))?;
        let link = default_link(DEVICE, gpus)?;
        let job = Job::new(Costs::new(&network, &profile, &link), batch, LowerOptions::default());
        let memory = DataSheet::of_device(profile.device()).map(|sheet| sheet.usable_bytes());
        let request = PlanRequest::new(gpus, Mode::Burst { amplification: LIMIT }).with_memory_limit(memory);
        let mut seconds = Vec::new();
        let mut found: Option<ExecutionPlan> = None;
        for _ in 0..runs {
            let begin = Instant::now();
            let plan = find_plan(&job, &request)?;
            seconds.push(begin.elapsed().as_secs_f64());
            found = Some(plan.into_plan());
            done();
        }
        let Some(plan) = found else { bail!("at least one run is needed") };
        let original = Original::find(model, gpus);
        let typical = median(seconds.iter().copied());
        Ok(SearchTimeRow {
            machine: machine.processor.clone(),
            cores: machine.cores,
            commit: machine.commit.clone(),
            model: model.into(),
            batch,
            gpus,
            mode: "bp".into(),
            amplification_limit: LIMIT,
            runs,
            seconds: typical,
            min_seconds: seconds.iter().copied().fold(f64::INFINITY, f64::min),
            max_seconds: seconds.iter().copied().fold(0.0, f64::max),
            planned_iteration_us: plan.iteration_us,
            amplification: plan.amplification,
            lower_bound_us: plan.lower_bound_us,
            gap: plan.gap,
            original_seconds: original.map(|original| original.seconds),
            original_batch: original.and_then(|original| original.batch),
            over_original: original.map(|original| typical / original.seconds),
        })
    }
}
