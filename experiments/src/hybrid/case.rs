//! Networks of the comparison, and the published numbers of each.
//!
//! A *curve* gives the epochs to the target accuracy by global batch. The paper is Pal et al., IEEE
//! Micro 39(5), 2019.

use std::sync::Arc;

use layer_graph::{LayerGraph, zoo};
use time_to_accuracy::EpochCurve;

/// Numbers of GPUs of a worker with which hybrid parallelism is evaluated.
pub(super) const WORKER_GPUS: [usize; 2] = [2, MAX_WORKER_GPUS];
/// Maximum number of GPUs of a worker.
pub(super) const MAX_WORKER_GPUS: usize = 4;

/// A network of the comparison, with its published numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Case {
    /// Name of the network.
    pub(super) model: &'static str,
    /// Name of the graph in the zoo. Recurrent networks are cut into chunks of time steps, so that
    /// layers on different GPUs work on different chunks at the same time.
    graph: &'static str,
    /// Display name of the network.
    pub(super) title: &'static str,
    /// Number of samples of an iteration that each worker processes. It does not depend on the
    /// worker's number of GPUs.
    pub(super) samples: usize,
    /// Name of the built-in curve, possibly of another network. `None` if none is public.
    pub(super) curve: Option<&'static str>,
    /// Gain that the paper projects: time to the target accuracy of data parallelism, divided by
    /// that of workers of two GPUs. `None` if the paper has no such network.
    pub(super) paper_gain: Option<f64>,
    /// Speed-up of a worker of two GPUs over one GPU in the paper, from memory and not verified.
    /// `None` if the paper has no such network.
    pub(super) paper_speedup: Option<f64>,
}

/// Networks of the comparison. Their gains are the lower bounds in the paper's abstract.
pub(super) const CASES: [Case; 4] = [
    Case {
        model: "inception-v3",
        graph: "inception-v3",
        title: "Inception-V3",
        samples: 64,
        curve: Some("resnet-50"),
        paper_gain: Some(1.265),
        paper_speedup: Some(1.32),
    },
    Case {
        model: "gnmt",
        graph: "gnmt-in-chunks",
        title: "GNMT",
        samples: 64,
        curve: Some("gnmt"),
        paper_gain: Some(1.08),
        paper_speedup: Some(1.15),
    },
    Case {
        model: "big-lstm",
        graph: "big-lstm",
        title: "BigLSTM",
        samples: 128,
        curve: None,
        paper_gain: Some(1.22),
        paper_speedup: Some(1.22),
    },
    Case {
        model: "resnet-50",
        graph: "resnet-50",
        title: "ResNet-50",
        samples: 64,
        curve: Some("resnet-50"),
        paper_gain: None,
        paper_speedup: None,
    },
];

/// A case with its network and curve.
#[derive(Debug, Clone)]
pub(super) struct LoadedCase {
    /// Names and published numbers.
    pub(super) case: Case,
    /// Display name of the network.
    pub(super) title: String,
    /// The network.
    pub(super) network: Arc<LayerGraph>,
    /// Epochs to the target by global batch. `None` if no curve is public.
    pub(super) curve: Option<EpochCurve>,
}

impl Case {
    /// Builds the network and reads the curve.
    ///
    /// # Errors
    /// If either is not built in.
    pub(super) fn load(&self) -> anyhow::Result<LoadedCase> {
        let network = Arc::new(zoo::model(self.graph)?);
        let curve = self.curve.map(EpochCurve::named).transpose()?;
        Ok(LoadedCase { case: *self, title: self.title.into(), network, curve })
    }

    /// Returns whether the curve is of another network.
    pub(super) fn has_substitute_curve(&self) -> bool {
        self.curve.is_some_and(|curve| curve != self.model)
    }
}

impl LoadedCase {
    /// Returns the batches, in samples, at which layer times are needed: the shards of a worker's
    /// GPUs, and the global batches of 1, 2, 4, ... and at most `gpus` workers. Sorted, without
    /// duplicates.
    pub(super) fn batches(&self, gpus: usize) -> Vec<usize> {
        let samples = self.case.samples;
        let shards = (1..=MAX_WORKER_GPUS).flat_map(|gpus| [samples / gpus, samples.div_ceil(gpus)]);
        let workers = std::iter::successors(Some(1), |workers| Some(2 * workers))
            .take_while(|&workers| workers <= gpus);
        let mut batches: Vec<usize> = shards.chain(workers.map(|workers| workers * samples)).collect();
        batches.sort_unstable();
        batches.dedup();
        batches
    }
}
