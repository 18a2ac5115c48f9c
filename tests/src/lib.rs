//! What the tests that cross crates share: networks, placements and short training runs.

use collectives::LinkModel;
use deeppool::Error;
use deeppool::costs::{Costs, shard_sizes};
use deeppool::data::Dataset;
use deeppool::job::Job;
use deeppool::plan::{Mode, PlanRequest};
use deeppool::planning::find_plan;
use deeppool::program::{LowerOptions, LoweredTraining, Placement, possible_checkpoints};
use deeppool::train::{BackgroundConfig, Length, TrainConfig, TrainReport, train};
use layer_engine::random::{Purpose, RandomStream};
use layer_graph::{LayerGraph, LayerId};
use layer_profile::DeviceModel;

/// The placement that the planner finds on the modelled `cpu-core`.
///
/// # Errors
/// When there is no plan.
pub fn planned(network: &LayerGraph, batch: usize, ranks: usize, mode: Mode) -> Result<Placement, Error> {
    let profile = DeviceModel::named("cpu-core")?.profile(network, &shard_sizes(batch, ranks))?;
    let link = LinkModel::threads_of_one_host();
    let job = Job::new(Costs::new(network, &profile, &link), batch, LowerOptions::default());
    find_plan(&job, &PlanRequest::new(ranks, mode))?.placement(network)
}

/// A placement that no planner would find: each layer on ranks of its own, in any order.
///
/// # Errors
/// Never for at least one rank.
pub fn scattered(network: &LayerGraph, ranks: usize, seed: u64) -> Result<Placement, Error> {
    let mut random = RandomStream::new(seed, Purpose::Synthetic, 0, "placement", 0);
    let layers = (1..network.len()).map(|_| {
        let mut all: Vec<usize> = (0..ranks).collect();
        random.shuffle(&mut all);
        all.truncate(1 + random.below(ranks));
        all
    });
    Placement::new(network, ranks, layers.collect())
}

/// The same placement with the layers in any order that keeps producers before consumers, and the layer that parameters
/// belong to before the others that use them.
///
/// # Errors
/// Never.
pub fn reordered(network: &LayerGraph, placement: Placement, seed: u64) -> Result<Placement, Error> {
    let mut random = RandomStream::new(seed, Purpose::Synthetic, 0, "order", 0);
    let mut order = Vec::new();
    let mut left: Vec<LayerId> = network.layers().skip(1).map(|(id, _)| id).collect();
    while !left.is_empty() {
        let waits = |id: LayerId| left.contains(&id);
        let is_ready = |&&id: &&LayerId| {
            let owner = network.parameter_owner(id);
            !network.producers(id).into_iter().any(waits) && (owner == id || !waits(owner))
        };
        let ready: Vec<LayerId> = left.iter().filter(is_ready).copied().collect();
        let next = ready[random.below(ready.len())];
        left.retain(|&id| id != next);
        order.push(next);
    }
    placement.with_order(network, order)
}

/// A placement in which a layer is mostly where the one before it is.
///
/// # Errors
/// Never for at least one rank.
pub fn in_stretches(network: &LayerGraph, ranks: usize, seed: u64) -> Result<Placement, Error> {
    let mut random = RandomStream::new(seed, Purpose::Synthetic, 0, "stretches", 0);
    let mut here: Vec<usize> = (0..ranks).collect();
    let layers = (1..network.len()).map(|_| {
        if random.below(5) == 0 {
            here = (0..ranks).collect();
            random.shuffle(&mut here);
            here.truncate(1 + random.below(ranks));
        }
        here.clone()
    });
    Placement::new(network, ranks, layers.collect())
}

/// The names of some layers that can be checkpoints of activations: each with the chance of one in `rarity`.
#[must_use]
pub fn some_checkpoints(network: &LayerGraph, rarity: usize, seed: u64) -> Vec<String> {
    let mut random = RandomStream::new(seed, Purpose::Synthetic, 0, "checkpoints", 0);
    let chosen = possible_checkpoints(network).into_iter().filter(|_| random.below(rarity) == 0);
    chosen.map(|id| network.layer(id).name().to_owned()).collect()
}

/// A short training run.
#[derive(Debug, Clone)]
pub struct Run<'a> {
    /// The network.
    pub network: &'a LayerGraph,
    /// Its data, also the background's.
    pub dataset: &'a Dataset,
    /// The global batch.
    pub batch: usize,
    /// Epochs.
    pub epochs: u64,
    /// How iterations are lowered.
    pub lowering: LowerOptions,
    /// Whether every rank trains a copy of the network by itself in its gaps, with batches of this size.
    pub background: Option<usize>,
}

impl Run<'_> {
    /// Trains with learning rate 0.03 and seed 0.
    ///
    /// # Errors
    /// As [`train`].
    pub fn with(&self, placement: &Placement) -> Result<TrainReport, Error> {
        let Self { network, dataset, .. } = *self;
        // Cut as far as it goes.
        let job = |batch| BackgroundConfig::new(network, dataset, batch).with_micro_batches(batch);
        let background = self.background.map(job);
        let training = LoweredTraining::new(network, placement.clone(), self.batch, self.lowering.clone());
        let config = TrainConfig::new(dataset, &training)
            .with_length(Length::Epochs(self.epochs))
            .with_background(background);
        train(&config, &|_| {})
    }
}

/// The README's example.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
