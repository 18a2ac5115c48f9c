//! Input of the experiment.

use cluster_scheduler::trace::{GavelJob, GavelPair, GavelSpeed, PolluxStep, TraceJob};
use collectives::LinkModel;

use crate::layer_times::LayerTimes;

/// Input of the experiment. Traces whose files do not exist are empty.
pub(super) struct JigsawInput {
    /// Layer times of the GPUs.
    pub(super) times: LayerTimes,
    /// Links between the GPUs.
    pub(super) link: LinkModel,
    /// Number of GPUs of the cluster, in hosts of 8.
    pub(super) gpus: usize,
    /// Maximum number of jobs of a run.
    pub(super) jobs: usize,
    /// Number of seeds, from 0: draws of jobs, or parts of a trace.
    pub(super) seeds: usize,
    /// Loads: the jobs' work divided by the GPU time until the last arrival.
    pub(super) loads: Vec<f64>,
    /// Jobs of Microsoft's cluster Philly.
    pub(super) philly: Vec<TraceJob>,
    /// Jobs of a trace published with Gavel.
    pub(super) gavel: Vec<GavelJob>,
    /// Gavel's 500 jobs of the comparison with its scheduling rounds.
    pub(super) gavel_reference: Vec<GavelJob>,
    /// Throughputs of Gavel's jobs alone.
    pub(super) gavel_speeds: Vec<GavelSpeed>,
    /// Throughputs of pairs of Gavel's jobs on the same GPU.
    pub(super) gavel_pairs: Vec<GavelPair>,
    /// Step times of Pollux' models by placement.
    pub(super) pollux: Vec<PolluxStep>,
    /// Messages on files that do not exist, one for each.
    pub(super) missing: Vec<String>,
}
