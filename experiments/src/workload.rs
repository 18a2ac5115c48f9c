//! Workloads: a network with the batches of a foreground and a background job that both train it.

use std::sync::Arc;

use deeppool::costs::shard_sizes;
use layer_graph::{LayerGraph, zoo};

/// A network with the batches of its foreground and background jobs.
#[derive(Debug, Clone)]
pub(crate) struct Workload {
    /// Network that both jobs train.
    pub(crate) network: Arc<LayerGraph>,
    /// Display name of the network.
    pub(crate) title: String,
    /// Samples of the foreground's global batch.
    pub(crate) batch: usize,
    /// Samples of each background job's batch. A background job runs on one GPU.
    pub(crate) background_batch: usize,
}

impl Workload {
    /// Creates a workload. The display name of a network of the DeepPool paper is that of the
    /// paper, and the display name of any other network is its name.
    pub(crate) fn new(network: LayerGraph, batch: usize, background_batch: usize) -> Self {
        let built_in = WORKLOADS.iter().find(|built_in| built_in.model == network.name());
        let title = built_in.map_or(network.name(), |built_in| built_in.title).to_owned();
        Self { network: Arc::new(network), title, batch, background_batch }
    }

    /// Returns the batches of one GPU, in samples, at which layer times are needed for the
    /// foreground on up to `gpus` GPUs and for the background; sorted, without duplicates.
    pub(crate) fn batches(&self, gpus: usize) -> Vec<usize> {
        let mut batches = shard_sizes(self.batch, gpus);
        batches.push(self.background_batch);
        batches.sort_unstable();
        batches.dedup();
        batches
    }
}

/// A workload with a built-in network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BuiltIn {
    /// Name of the network.
    pub(crate) model: &'static str,
    /// Display name of the network.
    pub(crate) title: &'static str,
    /// Samples of the foreground's global batch.
    pub(crate) batch: usize,
    /// Samples of each background job's batch.
    pub(crate) background_batch: usize,
}

impl BuiltIn {
    /// Builds the network.
    ///
    /// # Errors
    /// If there is no built-in network of the name.
    pub(crate) fn load(&self) -> anyhow::Result<Workload> {
        let &Self { model, title, batch, background_batch } = self;
        let network = Arc::new(zoo::model(model)?);
        Ok(Workload { network, title: title.into(), batch, background_batch })
    }
}

/// Foreground jobs of the DeepPool paper (Park et al., `MLSys` 2022).
pub(crate) const WORKLOADS: [BuiltIn; 3] = [
    workload("vgg16", "VGG-16", 32),
    workload("wrn-101-2", "WRN-101-2", 16),
    workload("inception-v3", "Inception-V3", 32),
];

const fn workload(model: &'static str, title: &'static str, batch: usize) -> BuiltIn {
    BuiltIn { model, title, batch, background_batch: BACKGROUND_BATCH }
}

/// Default number of samples of a background job's batch.
pub(crate) const BACKGROUND_BATCH: usize = 8;
