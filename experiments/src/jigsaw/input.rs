//! Input of the experiment `jigsaw`, which simulates scheduling policies of a cluster. A *trace* is
//! a file of jobs with their arrival times.

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
    /// Maximum number of jobs of a run, which simulates one policy on one draw of jobs.
    pub(super) jobs: usize,
    /// Number of seeds, which are `0..seeds`. A seed selects a draw of jobs or a part of a trace.
    pub(super) seeds: usize,
    /// Loads to simulate. A load is the GPU time that the jobs need alone with data parallelism,
    /// divided by the GPU time of the cluster until the last arrival.
    pub(super) loads: Vec<f64>,
    /// Number of Philly's first jobs that are not drawn.
    pub(super) skip: usize,
    /// Jobs of Microsoft's cluster Philly.
    pub(super) philly: Vec<TraceJob>,
    /// Jobs of a trace published with Gavel.
    pub(super) gavel: Vec<GavelJob>,
    /// Gavel's 500 jobs of the comparison with its scheduling rounds.
    pub(super) gavel_reference: Vec<GavelJob>,
    /// Published throughputs of Gavel's jobs without a second job on the GPU.
    pub(super) gavel_speeds: Vec<GavelSpeed>,
    /// Published throughputs of pairs of Gavel's jobs on the same GPU.
    pub(super) gavel_pairs: Vec<GavelPair>,
    /// Published iteration times of Pollux' models by placement.
    pub(super) pollux: Vec<PolluxStep>,
    /// Paths of the files that do not exist.
    pub(super) missing: Vec<String>,
}
