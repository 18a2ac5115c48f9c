//! The networks of the comparison, and what is published about them.

use std::sync::Arc;

use layer_graph::{LayerGraph, zoo};
use time_to_accuracy::EpochCurve;

/// GPU counts of a worker.
pub(super) const WORKER_GPUS: [usize; 2] = [2, MAX_WORKER_GPUS];
/// Maximum number of GPUs of a worker.
pub(super) const MAX_WORKER_GPUS: usize = 4;

/// A network and the source of its epochs to the target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Case {
    pub(super) model: &'static str,
    pub(super) title: &'static str,
    /// Samples of a worker, whatever its number of GPUs.
    pub(super) samples: usize,
    /// Name of the built-in curve of epochs.
    pub(super) curve: Option<&'static str>,
    /// Time to the target of data parallelism over that of hybrid workers, by the paper.
    pub(super) paper_gain: Option<f64>,
    /// SU^2 in the paper, as remembered: not verified.
    pub(super) paper_speedup: Option<f64>,
}

/// The networks. Gains are the lower bounds in the abstract of Pal et al.
pub(super) const CASES: [Case; 4] = [
    Case {
        model: "inception-v3",
        title: "Inception-V3",
        samples: 64,
        curve: Some("resnet-50"),
        paper_gain: Some(1.265),
        paper_speedup: Some(1.32),
    },
    Case {
        model: "gnmt",
        title: "GNMT",
        samples: 64,
        curve: Some("gnmt"),
        paper_gain: Some(1.08),
        paper_speedup: Some(1.15),
    },
    Case {
        model: "big-lstm",
        title: "BigLSTM",
        samples: 128,
        curve: None,
        paper_gain: Some(1.22),
        paper_speedup: Some(1.22),
    },
    Case {
        model: "resnet-50",
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
    pub(super) case: Case,
    pub(super) title: String,
    pub(super) network: Arc<LayerGraph>,
    pub(super) curve: Option<EpochCurve>,
}

impl Case {
    pub(super) fn load(&self) -> anyhow::Result<LoadedCase> {
        let network = Arc::new(zoo::model(self.model)?);
        let curve = self.curve.map(EpochCurve::named).transpose()?;
        Ok(LoadedCase { case: *self, title: self.title.into(), network, curve })
    }

    /// Returns whether the curve is that of another network.
    pub(super) fn has_substitute_curve(&self) -> bool {
        self.curve.is_some_and(|curve| curve != self.model)
    }
}

impl LoadedCase {
    /// Returns the batches that a profile needs: the shards of a worker's GPUs and the global
    /// batches of data parallelism on up to `gpus` GPUs.
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
