//! Background jobs of `deeppool train`. A piece is a background tasklet: one step of one
//! micro-batch, or an optimiser step.

use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::Context;
use collectives::LinkModel;
use deeppool::costs::{Costs, shard_sizes};
use deeppool::data::Dataset;
use deeppool::program::{LowerOptions, Placement, lower_training};
use deeppool::simulate::BackgroundCosts;
use deeppool::train::{BackgroundConfig, BackgroundReport, MicroBatches, TrainReport};
use gpu_mux::Policy;
use layer_graph::LayerGraph;
use layer_profile::{DeviceModel, ProfileTable};
use serde_json::{Value, json};

use super::background_spec::BackgroundSpec;
use super::costs::{CostArgs, CostTables};
use super::output::{print_message, rate, time};

/// Background job of every rank, whose batch is cut into micro-batches.
pub(crate) struct Background {
    network: LayerGraph,
    /// Number of samples of an iteration.
    batch: usize,
    /// Share of background time relative to the other jobs.
    weight: NonZeroU32,
    cut: MicroBatches,
    /// Costs for the simulator; `None` if the profile does not cover the whole batch.
    costs: Option<BackgroundCosts>,
    profile: ProfileTable,
    link: LinkModel,
}

impl Background {
    /// Creates a job whose batch is cut so that each piece takes at most the limit of the policy.
    /// Layer times are those of `--background-profile`. Without it they are for the device of the
    /// foreground's times, or for one core if those are read from a file (`--profile`) and are of
    /// another network.
    ///
    /// # Errors
    /// If the network cannot be loaded, the data set does not fit it, or layer times are missing.
    pub(crate) fn new(
        (spec, weight): (&BackgroundSpec, NonZeroU32),
        dataset: &Dataset,
        args: &CostArgs,
        foreground: &CostTables,
        policy: &Policy,
    ) -> anyhow::Result<Self> {
        spec.check_on_each_gpu("train")?;
        let network = spec.network()?;
        dataset.fits(&network).context("the background job trains on the same data")?;
        let profile = Self::profile(spec, &network, args, &foreground.profile)?;
        let costs = Costs::new(&network, &profile, &foreground.link);
        let cut = MicroBatches::within(policy.background_piece.unwrap_or(Duration::MAX), &costs, spec.batch)
            .context("the batch of the background job cannot be cut")?;
        let costs = BackgroundCosts::new(&costs, spec.batch).ok();
        let link = foreground.link.clone();
        Ok(Self { network, batch: spec.batch, weight, cut, costs, profile, link })
    }

    /// Returns the costs for the simulator, or `None` if the profile does not cover the whole
    /// batch.
    pub(crate) fn costs(&self) -> Option<&BackgroundCosts> {
        self.costs.as_ref()
    }

    /// Returns the modelled durations of the steps of the job's program, in the program's order.
    /// `lowering` are the options of the foreground.
    ///
    /// # Errors
    /// If layer times are missing for the size of a micro-batch.
    pub(crate) fn step_times(&self, lowering: &LowerOptions) -> anyhow::Result<Vec<Duration>> {
        let lowering = lowering.clone().with_micro_batches(self.cut.count).with_partial(None);
        let placement = Placement::single(&self.network)?;
        let program = lower_training(&self.network, &placement, self.batch, &lowering)?;
        let times = Costs::new(&self.network, &self.profile, &self.link).step_times(&program)?;
        Ok(times.into_iter().next().unwrap_or_default())
    }

    fn profile(
        spec: &BackgroundSpec,
        network: &LayerGraph,
        args: &CostArgs,
        foreground: &ProfileTable,
    ) -> anyhow::Result<ProfileTable> {
        let is_given = args.background_profile.is_some();
        if !is_given && args.profile.is_some() && network.name() != foreground.model() {
            let core = DeviceModel::named("cpu-core")?;
            return Ok(core.profile(network, &shard_sizes(spec.batch, spec.batch))?);
        }
        args.background(spec, network, foreground)
    }

    /// Returns the configuration of the job for training on `dataset`.
    pub(crate) fn job<'a>(&'a self, dataset: &'a Dataset) -> BackgroundConfig<'a> {
        BackgroundConfig::new(&self.network, dataset, self.batch)
            .with_micro_batches(self.cut.count)
            .with_weight(self.weight)
    }

    fn show(&self, report: &BackgroundReport) {
        let losses: Vec<f64> = report.losses.iter().copied().flatten().collect();
        let loss = if losses.is_empty() {
            "no batch done".to_owned()
        } else {
            format!("loss of the last batches {:.4}", losses.iter().sum::<f64>() / losses.len() as f64)
        };
        print_message!(
            "background {:<24} {}, {loss}, {} micro-batches an iteration",
            format!("{}:{}", self.network.name(), self.batch),
            rate(report.samples_per_s),
            self.cut.count,
        );
    }

    fn report(&self, report: &BackgroundReport) -> Value {
        json!({
            "model": self.network.name(), "batch": self.batch, "micro_batches": self.cut.count,
            "weight": self.weight, "samples_per_s": report.samples_per_s, "iterations": report.iterations,
            "losses": report.losses,
        })
    }
}

/// Prints the results of each background job, then the number of pieces of all ranks and the
/// duration of the longest one.
pub(crate) fn show(jobs: &[Background], policy: &Policy, report: &TrainReport) {
    for (job, report) in jobs.iter().zip(&report.background) {
        job.show(report);
    }
    let pieces = Pieces::of(report);
    let over = policy.background_piece.map_or_else(String::new, |bound| {
        format!(", {} of them longer than {}", pieces.over_limit, time(bound))
    });
    print_message!(
        "background pieces                   {}, longest {}{over}",
        pieces.count,
        time(pieces.longest)
    );
}

/// Returns the results of the background jobs, in the order of `jobs`, and the statistics of their
/// pieces as JSON; times are in microseconds.
pub(crate) fn report(jobs: &[Background], policy: &Policy, report: &TrainReport) -> Value {
    let pieces = Pieces::of(report);
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let of_jobs = jobs.iter().zip(&report.background).map(|(job, report)| job.report(report));
    json!({
        "jobs": of_jobs.collect::<Vec<_>>(), "pieces": pieces.count, "longest_piece_us": us(pieces.longest),
        "piece_limit_us": policy.background_piece.map(us), "over_long_pieces": pieces.over_limit,
    })
}

/// Statistics of the background tasklets of all ranks.
struct Pieces {
    count: u64,
    /// Maximum duration.
    longest: Duration,
    /// Number of tasklets that exceeded the limit of the policy.
    over_limit: u64,
}

impl Pieces {
    fn of(report: &TrainReport) -> Self {
        let usage = &report.usage;
        Self {
            count: usage.iter().map(|usage| usage.background_tasklets).sum(),
            longest: usage.iter().map(|usage| usage.longest_background).max().unwrap_or_default(),
            over_limit: usage.iter().map(|usage| usage.over_limit).sum(),
        }
    }
}
