use std::sync::Arc;

use deeppool::costs::shard_sizes;
use layer_graph::{LayerGraph, zoo};

/// A network and the batches that it is trained with.
#[derive(Debug, Clone)]
pub(crate) struct Workload {
    pub(crate) network: Arc<LayerGraph>,
    /// The network's name as people write it.
    pub(crate) title: String,
    /// Samples of the foreground's global batch.
    pub(crate) batch: usize,
    /// Samples of a background job's batch: it trains the same network as the foreground, on one GPU.
    pub(crate) background_batch: usize,
}

impl Workload {
    /// A network that is called by its name, or as the paper writes it.
    pub(crate) fn new(network: LayerGraph, batch: usize, background_batch: usize) -> Self {
        let built_in = WORKLOADS.iter().find(|built_in| built_in.model == network.name());
        let title = built_in.map_or(network.name(), |built_in| built_in.title).to_owned();
        Self { network: Arc::new(network), title, batch, background_batch }
    }

    /// The batches that a profile needs for the foreground on up to so many GPUs, and for the background.
    pub(crate) fn batches(&self, gpus: usize) -> Vec<usize> {
        let mut batches = shard_sizes(self.batch, gpus);
        batches.push(self.background_batch);
        batches.sort_unstable();
        batches.dedup();
        batches
    }
}

/// A workload of a built-in network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BuiltIn {
    pub(crate) model: &'static str,
    pub(crate) title: &'static str,
    pub(crate) batch: usize,
    pub(crate) background_batch: usize,
}

impl BuiltIn {
    pub(crate) fn load(&self) -> anyhow::Result<Workload> {
        let &Self { model, title, batch, background_batch } = self;
        let network = Arc::new(zoo::model(model)?);
        Ok(Workload { network, title: title.into(), batch, background_batch })
    }
}

/// The foreground jobs of the DeepPool paper (Park et al., `MLSys` 2022).
pub(crate) const WORKLOADS: [BuiltIn; 3] = [
    workload("vgg16", "VGG-16", 32),
    workload("wrn-101-2", "WRN-101-2", 16),
    workload("inception-v3", "Inception-V3", 32),
];

const fn workload(model: &'static str, title: &'static str, batch: usize) -> BuiltIn {
    BuiltIn { model, title, batch, background_batch: BACKGROUND_BATCH }
}

/// Samples of a background job's batch, where an experiment does not say otherwise.
pub(crate) const BACKGROUND_BATCH: usize = 8;
