//! The background job of `deeppool train`: how it is cut, and what came of that.

use std::time::Duration;

use anyhow::Context;
use collectives::LinkModel;
use deeppool::costs::{Costs, shard_sizes};
use deeppool::data::Dataset;
use deeppool::program::{LowerOptions, Placement, lower_training};
use deeppool::simulate::BackgroundCosts;
use deeppool::train::{BackgroundConfig, MicroBatches, TrainReport};
use gpu_mux::Policy;
use layer_graph::LayerGraph;
use layer_profile::{DeviceModel, ProfileTable};
use serde_json::{Value, json};

use super::costs::{BackgroundSpec, CostArgs, CostTables};
use super::output::{rate, say, time};

/// A background job with its batch cut for the foreground's sake.
pub(crate) struct Background {
    network: LayerGraph,
    batch: usize,
    cut: MicroBatches,
    /// How long a background tasklet should take at most.
    bound: Option<Duration>,
    costs: Option<BackgroundCosts>,
    profile: ProfileTable,
    link: LinkModel,
}

impl Background {
    /// Cuts the job's batch so that the foreground waits no longer than the policy says, by the costs that the plan was
    /// made with, or, where they are of another network, by those of a core.
    pub(crate) fn new(
        spec: &BackgroundSpec,
        dataset: &Dataset,
        args: &CostArgs,
        foreground: &CostTables,
        policy: &Policy,
    ) -> anyhow::Result<Self> {
        let network = spec.network()?;
        dataset.fits(&network).context("the background job trains on the same data")?;
        let bound = policy.background_piece;
        let profile = Self::profile(spec, &network, args, &foreground.profile)?;
        let costs = Costs::new(&network, &profile, &foreground.link);
        let cut = MicroBatches::within(bound.unwrap_or(Duration::MAX), &costs, spec.batch)
            .context("the batch of the background job cannot be cut")?;
        let costs = BackgroundCosts::new(&costs, spec.batch).ok();
        let link = foreground.link.clone();
        Ok(Self { network, batch: spec.batch, cut, bound, costs, profile, link })
    }

    /// What the simulator needs to know of it; nothing where a profile has no times of its whole batch.
    pub(crate) fn costs(&self) -> Option<&BackgroundCosts> {
        self.costs.as_ref()
    }

    /// How long the steps of its program take.
    pub(crate) fn step_times(&self, lowering: &LowerOptions) -> anyhow::Result<Vec<Duration>> {
        let lowering = lowering.clone().with_micro_batches(self.cut.count);
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
        if args.profile.is_some() && network.name() != foreground.model() {
            let core = DeviceModel::named("cpu-core")?;
            return Ok(core.profile(network, &shard_sizes(spec.batch, spec.batch))?);
        }
        args.background(spec, network, foreground)
    }

    /// The job as it is trained.
    pub(crate) fn job<'a>(&'a self, dataset: &'a Dataset) -> BackgroundConfig<'a> {
        BackgroundConfig::new(&self.network, dataset, self.batch).with_micro_batches(self.cut.count)
    }

    pub(crate) fn show(&self, report: &TrainReport) {
        let pieces = Pieces::of(report);
        say!("background                          {}", rate(report.background_samples_per_s));
        let over = self.bound.map_or_else(String::new, |bound| {
            format!(", {} of them longer than {}", pieces.over_long, time(bound))
        });
        say!(
            "background pieces                   {}, {} micro-batches an iteration, longest {}{over}",
            pieces.count,
            self.cut.count,
            time(pieces.longest),
        );
    }

    pub(crate) fn report(&self, report: &TrainReport) -> Value {
        let pieces = Pieces::of(report);
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        json!({
            "model": self.network.name(), "batch": self.batch, "micro_batches": self.cut.count,
            "pieces": pieces.count, "longest_piece_us": us(pieces.longest),
            "piece_limit_us": self.bound.map(us), "over_long_pieces": pieces.over_long,
        })
    }
}

/// The background tasklets of all ranks.
struct Pieces {
    count: u64,
    longest: Duration,
    over_long: u64,
}

impl Pieces {
    fn of(report: &TrainReport) -> Self {
        let usage = &report.usage;
        Self {
            count: usage.iter().map(|usage| usage.background_tasklets).sum(),
            longest: usage.iter().map(|usage| usage.longest_background).max().unwrap_or_default(),
            over_long: usage.iter().map(|usage| usage.over_long).sum(),
        }
    }
}
