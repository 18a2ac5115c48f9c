//! The networks that are compared, and what is known of them.

use std::sync::Arc;

use layer_graph::{LayerGraph, zoo};
use time_to_accuracy::EpochCurve;

use super::question::MOST_WORKER_GPUS;

/// A network, and where its epochs to the target are from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Case {
    pub(super) model: &'static str,
    pub(super) title: &'static str,
    /// Samples of a worker, whether it has one GPU or several.
    pub(super) samples: usize,
    /// Whose curve of epochs is taken, by the name of a built-in one.
    pub(super) curve: Option<&'static str>,
    /// How much sooner hybrid workers are by the paper, as a ratio.
    pub(super) paper_gain: Option<f64>,
    /// SU^2 in the paper, as it is remembered: not verified.
    pub(super) paper_speedup: Option<f64>,
}

/// Gains are those of the abstract of Pal et al.: "at least".
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
pub(super) struct Loaded {
    pub(super) case: Case,
    pub(super) title: String,
    pub(super) network: Arc<LayerGraph>,
    pub(super) curve: Option<EpochCurve>,
}

impl Case {
    pub(super) fn load(&self) -> anyhow::Result<Loaded> {
        let network = Arc::new(zoo::model(self.model)?);
        let curve = self.curve.map(EpochCurve::named).transpose()?;
        Ok(Loaded { case: *self, title: self.title.into(), network, curve })
    }

    /// Whether the curve is that of another network.
    pub(super) fn has_a_stand_in(&self) -> bool {
        self.curve.is_some_and(|curve| curve != self.model)
    }
}

impl Loaded {
    /// The numbers of samples that a GPU of a worker may have of a layer, and the global batches on up to so many GPUs, which amplification is
    /// relative to.
    pub(super) fn batches(&self, gpus: usize) -> Vec<usize> {
        let samples = self.case.samples;
        let shards = (1..=MOST_WORKER_GPUS).flat_map(|gpus| [samples / gpus, samples.div_ceil(gpus)]);
        let workers = std::iter::successors(Some(1), |workers| Some(2 * workers))
            .take_while(|&workers| workers <= gpus);
        let mut batches: Vec<usize> = shards.chain(workers.map(|workers| workers * samples)).collect();
        batches.sort_unstable();
        batches.dedup();
        batches
    }
}
