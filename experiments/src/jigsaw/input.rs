//! Input of the experiment.

use cluster_scheduler::trace::{GavelJob, GavelPair, GavelSpeed, PolluxStep, TraceJob};
use collectives::LinkModel;

use crate::layer_times::LayerTimes;

/// Input of the experiment.
pub(super) struct JigsawInput {
    pub(super) times: LayerTimes,
    pub(super) link: LinkModel,
    pub(super) gpus: usize,
    pub(super) jobs: usize,
    pub(super) seeds: usize,
    pub(super) loads: Vec<f64>,
    pub(super) philly: Vec<TraceJob>,
    pub(super) gavel: Vec<GavelJob>,
    pub(super) gavel_reference: Vec<GavelJob>,
    pub(super) gavel_speeds: Vec<GavelSpeed>,
    pub(super) gavel_pairs: Vec<GavelPair>,
    pub(super) pollux: Vec<PolluxStep>,
    /// Messages on missing files.
    pub(super) missing: Vec<String>,
}
