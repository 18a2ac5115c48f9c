//! Cases of the comparison, and their plans. The *ways* of a case are those in which its layers may
//! be divided besides by samples.

use std::sync::Arc;

use burst_planner::Error as Unplanned;
use collectives::LinkModel;
use deeppool::Error;
use deeppool::costs::{Costs, shard_sizes};
use deeppool::job::Job;
use deeppool::plan::{ExecutionPlan, Mode, PlanRequest};
use deeppool::planning::find_frontier;
use deeppool::program::LowerOptions;
use layer_graph::{LayerGraph, Split};
use layer_profile::DataSheet;
use serde::{Deserialize, Serialize};

use crate::layer_times::LayerTimes;

/// Name of the ways of plans whose layers are divided by samples only.
pub(super) const SAMPLES: &str = "samples";
/// Name of the ways of plans whose layers may be divided in all ways.
pub(super) const ALL: &str = "all";

/// Set of ways in which layers may be divided besides by samples.
#[derive(Debug, Clone)]
pub(super) struct Ways {
    /// Name in reports: `samples`, `all`, or the label of the only split.
    pub(super) name: String,
    pub(super) splits: Vec<Split>,
}

impl Ways {
    /// Returns the compared ways: none, each split alone, and all.
    pub(super) fn all() -> Vec<Self> {
        let alone = Split::ALL.map(|split| Self { name: split.label().into(), splits: vec![split] });
        let samples = Self { name: SAMPLES.into(), splits: Vec::new() };
        let all = Self { name: ALL.into(), splits: Split::ALL.into() };
        std::iter::once(samples).chain(alone).chain([all]).collect()
    }
}

/// A network on a number of GPUs, with the ways in which its layers may be divided.
#[derive(Debug, Clone)]
pub(super) struct SplitsCase {
    pub(super) network: Arc<LayerGraph>,
    pub(super) gpus: usize,
    /// Samples of the global batch.
    pub(super) batch: usize,
    pub(super) ways: Ways,
}

/// Plans of a case, from one search.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct FoundPlans {
    dp_iteration_us: f64,
    dp_amplification: f64,
    /// The fastest plan.
    fastest: FoundPlan,
    /// The fastest plan within the amplification limit. `None` if no plan that fits in memory is.
    limited: Option<FoundPlan>,
    /// The limit.
    limit: f64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct FoundPlan {
    iteration_us: f64,
    amplification: f64,
    layers: usize,
    split_layers: String,
}

/// A plan of a network on a number of GPUs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct SplitsRow {
    /// Name of the network.
    pub(super) model: String,
    /// Number of GPUs.
    pub(super) gpus: usize,
    /// Samples of the global batch.
    pub(super) batch: usize,
    /// Kind of plan: `dp` or `bp`.
    pub(super) mode: &'static str,
    /// Name of the ways in which layers may be divided: `samples`, the label of a split, or `all`.
    pub(super) splits: String,
    /// Amplification limit of the plan. `None` without a limit.
    pub(super) amplification_limit: Option<f64>,
    /// Planned iteration time in microseconds.
    pub(super) iteration_us: f64,
    /// Active time of all GPUs divided by the iteration time on one GPU.
    pub(super) amplification: f64,
    /// Iteration time of data parallelism divided by this plan's.
    pub(super) times_as_fast_as_dp: f64,
    /// Iteration time of the burst plan under the same limit with layers divided by samples only,
    /// divided by this plan's. `None` for data parallelism, or if there is no such plan.
    pub(super) times_as_fast_as_samples: Option<f64>,
    /// Number of layers without the input.
    pub(super) layers: usize,
    /// Numbers of split layers by split, such as `3 features, 2 copies`. Empty if no layer is
    /// split.
    pub(super) split_layers: String,
}

/// Returns the cases of the given networks, sorted by network, GPUs and ways.
pub(super) fn cases(networks: Vec<LayerGraph>, gpus: &[usize], batch: usize) -> Vec<SplitsCase> {
    let of_network = |network: LayerGraph| {
        let network = Arc::new(network);
        let case = |&gpus: &usize| {
            let network = Arc::clone(&network);
            let with = move |ways| SplitsCase { network: Arc::clone(&network), gpus, batch, ways };
            Ways::all().into_iter().map(with)
        };
        gpus.iter().flat_map(case).collect::<Vec<_>>()
    };
    networks.into_iter().flat_map(of_network).collect()
}

impl SplitsCase {
    /// Searches for plans, and selects the fastest and the fastest within the amplification limit
    /// `limit`. Returns `None` if no plan fits in memory.
    ///
    /// # Errors
    /// If layer times are missing, or if planning fails.
    pub(super) fn plans(
        &self,
        times: &LayerTimes,
        link: &LinkModel,
        limit: f64,
    ) -> anyhow::Result<Option<FoundPlans>> {
        let Self { network, gpus, batch, ways } = self;
        let profile = times.profile(network, &shard_sizes(*batch, *gpus))?;
        let job = Job::new(Costs::new(network, &profile, link), *batch, LowerOptions::default());
        let mode = |amplification| Mode::Burst { amplification };
        let memory = DataSheet::of_device(profile.device()).map(|sheet| sheet.usable_bytes());
        let request = PlanRequest::new(*gpus, mode(f64::INFINITY))
            .with_memory_limit(memory)
            .with_splits(ways.splits.clone())
            .with_proof(burst_planner::ProofBudget::Off);
        let frontier = match find_frontier(&job, &request) {
            Err(Error::Planner(Unplanned::MemoryExceeded { .. })) => return Ok(None),
            frontier => frontier?,
        };
        let fastest = frontier.plan(mode(f64::INFINITY))?.into_plan();
        let limited = match frontier.plan(mode(limit)) {
            Err(Error::Planner(Unplanned::LimitUnreachable { .. })) => None,
            plan => Some(FoundPlan::new(&plan?.into_plan())),
        };
        let (dp_iteration_us, dp_amplification) = (fastest.dp.iteration_us, fastest.dp.amplification);
        let fastest = FoundPlan::new(&fastest);
        Ok(Some(FoundPlans { dp_iteration_us, dp_amplification, fastest, limited, limit }))
    }
}

impl FoundPlan {
    fn new(plan: &ExecutionPlan) -> Self {
        let number = |split: Split| {
            let is_split = |layer: &&deeppool::plan::PlannedLayer| {
                layer.division.is_some_and(|division| division.split == split)
            };
            (plan.layers.iter().filter(is_split).count(), split.label())
        };
        let numbers = Split::ALL.map(number).into_iter().filter(|(count, _)| *count > 0);
        let split_layers = numbers.map(|(count, label)| format!("{count} {label}"));
        Self {
            iteration_us: plan.iteration_us,
            amplification: plan.amplification,
            layers: plan.layers.len(),
            split_layers: split_layers.collect::<Vec<_>>().join(", "),
        }
    }
}

/// Returns the rows of all cases: for each network and number of GPUs data parallelism, then the
/// fastest plan of each of the ways, then those within the limit.
pub(super) fn rows(cases: &[SplitsCase], found: &[Option<FoundPlans>]) -> Vec<SplitsRow> {
    let pairs = cases.iter().zip(found).filter_map(|(case, found)| Some((case, found.as_ref()?)));
    let pairs: Vec<(&SplitsCase, &FoundPlans)> = pairs.collect();
    let is_same = |(a, _): &(&SplitsCase, _), (b, _): &(&SplitsCase, _)| {
        (a.network.name(), a.gpus) == (b.network.name(), b.gpus)
    };
    pairs.chunk_by(is_same).flat_map(rows_of_case).collect()
}

/// Function that selects a plan of a case.
type Select = fn(&FoundPlans) -> Option<&FoundPlan>;

/// Returns the rows of a network on a number of GPUs.
fn rows_of_case(pairs: &[(&SplitsCase, &FoundPlans)]) -> Vec<SplitsRow> {
    let Some((case, first)) = pairs.first() else { return Vec::new() };
    let row =
        |mode, (splits, limit): (&str, Option<f64>), plan: &FoundPlan, samples_us: Option<f64>| SplitsRow {
            model: case.network.name().into(),
            gpus: case.gpus,
            batch: case.batch,
            mode,
            splits: splits.into(),
            amplification_limit: limit,
            iteration_us: plan.iteration_us,
            amplification: plan.amplification,
            times_as_fast_as_dp: first.dp_iteration_us / plan.iteration_us,
            times_as_fast_as_samples: samples_us.map(|us| us / plan.iteration_us),
            layers: plan.layers,
            split_layers: plan.split_layers.clone(),
        };
    let dp = FoundPlan {
        iteration_us: first.dp_iteration_us,
        amplification: first.dp_amplification,
        split_layers: String::new(),
        ..first.fastest.clone()
    };
    let mut rows = vec![row("dp", (SAMPLES, None), &dp, None)];
    let selections: [(Option<f64>, Select); 2] =
        [(None, |found| Some(&found.fastest)), (Some(first.limit), |found| found.limited.as_ref())];
    for (limit, select) in selections {
        let by_samples = pairs.iter().find(|(case, _)| case.ways.splits.is_empty());
        let samples_us = by_samples.and_then(|(_, found)| select(found)).map(|plan| plan.iteration_us);
        for (case, found) in pairs {
            rows.extend(select(found).map(|plan| row("bp", (&case.ways.name, limit), plan, samples_us)));
        }
    }
    rows
}
