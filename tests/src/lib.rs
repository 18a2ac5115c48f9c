//! Shared code of the tests across crates: placements and short training runs.

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
use layer_graph::{Division, LayerGraph, LayerId, NetworkSplits, Split};
use layer_profile::DeviceModel;

/// Returns the placement planned for the modelled device `cpu-core`.
///
/// # Errors
/// Any error of planning.
pub fn planned(network: &LayerGraph, batch: usize, ranks: usize, mode: Mode) -> Result<Placement, Error> {
    let profile = DeviceModel::named("cpu-core")?.profile(network, &shard_sizes(batch, ranks))?;
    let link = LinkModel::threads_of_one_host();
    let job = Job::new(Costs::new(network, &profile, &link), batch, LowerOptions::default());
    find_plan(&job, &PlanRequest::new(ranks, mode))?.placement(network)
}

/// Returns a random placement: each layer on independently drawn ranks, in random order.
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

/// Returns a placement whose layers are split into parts of equal size, at random, about two
/// of three layers. A part has a multiple of `together` features or channels.
///
/// # Errors
/// Never for a valid placement.
pub fn divided(
    network: &LayerGraph,
    mut placement: Placement,
    together: usize,
    seed: u64,
) -> Result<Placement, Error> {
    let mut random = RandomStream::new(seed, Purpose::Synthetic, 0, "divisions", 0);
    let possible = NetworkSplits::new(network);
    for (id, _) in network.computing_layers() {
        let ranks = placement.ranks(id).len();
        let splits = possible.splits(id);
        if splits.is_empty() || random.below(3) == 0 {
            continue;
        }
        let split = splits[random.below(splits.len())];
        let max = possible.max_parts(id, split).min(ranks);
        let units = possible.max_parts(id, split);
        let is_even = |parts: usize| parts == 1 || split == Split::Copies || units % (together * parts) == 0;
        let parts: Vec<usize> = (1..=max).filter(|&parts| ranks % parts == 0 && is_even(parts)).collect();
        let division = Division { split, parts: parts[random.below(parts.len())] };
        // Layers that read the network's input or share parameters cannot have each division.
        placement = placement.clone().with_divisions(network, [(id, division)]).unwrap_or(placement);
    }
    Ok(placement)
}

/// Returns a placement with a random topological order of the layers. The owner of shared
/// parameters is before their other users.
///
/// # Errors
/// Never.
pub fn reordered(network: &LayerGraph, placement: Placement, seed: u64) -> Result<Placement, Error> {
    let mut random = RandomStream::new(seed, Purpose::Synthetic, 0, "order", 0);
    let mut order = Vec::new();
    let mut left: Vec<LayerId> = network.computing_layers().map(|(id, _)| id).collect();
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

/// Returns a random placement in which most layers have the ranks of the preceding layer.
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

/// Returns the names of randomly drawn activation checkpoints, each with probability 1 / `rarity`.
#[must_use]
pub fn some_checkpoints(network: &LayerGraph, rarity: usize, seed: u64) -> Vec<String> {
    let mut random = RandomStream::new(seed, Purpose::Synthetic, 0, "checkpoints", 0);
    let chosen = possible_checkpoints(network).into_iter().filter(|_| random.below(rarity) == 0);
    chosen.map(|id| network.layer(id).name().to_owned()).collect()
}

/// Settings of a short training run.
#[derive(Debug, Clone)]
pub struct Run<'a> {
    /// The network.
    pub network: &'a LayerGraph,
    /// Data of the network and of the background.
    pub dataset: &'a Dataset,
    /// Number of samples in the global batch.
    pub batch: usize,
    /// Number of epochs.
    pub epochs: u64,
    /// Options of lowering.
    pub lowering: LowerOptions,
    /// Batch size of a background job that trains a copy of the network on each rank; `None` for
    /// no background.
    pub background: Option<usize>,
}

impl Run<'_> {
    /// Trains by a placement, with the default learning rate and seed.
    ///
    /// # Errors
    /// Any error of [`train`].
    pub fn with(&self, placement: &Placement) -> Result<TrainReport, Error> {
        let Self { network, dataset, .. } = *self;
        // Cut the background's batch into single samples.
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
