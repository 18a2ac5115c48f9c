use collectives::LinkModel;
use deeppool::gpu_mux::Policy;
use deeppool::plan::Mode;

use crate::layer_times::LayerTimes;
use crate::workload::{BACKGROUND_BATCH, Workload};

/// What ours is called.
pub(crate) const DEFAULT_POLICY: &str = "default";

/// The simulated machine, what is trained on it, and the limit of the burst plans.
#[derive(Debug, Clone)]
pub(crate) struct Testbed {
    pub(crate) times: LayerTimes,
    pub(crate) link: LinkModel,
    pub(crate) gpus: usize,
    /// The largest amplification of a burst plan, at least 1.
    pub(crate) amplification_limit: f64,
    /// How background jobs share the GPUs, by its name.
    pub(crate) policy_name: String,
    pub(crate) policy: Policy,
    /// The foreground jobs, each by itself.
    pub(crate) workloads: Vec<Workload>,
    /// Samples of each background job's batch, unless an experiment says otherwise.
    pub(crate) background_batch: usize,
}

impl Testbed {
    /// GPUs for experiments that have workloads and policies of their own.
    pub(crate) fn without_workloads(times: LayerTimes, link: LinkModel, gpus: usize, limit: f64) -> Self {
        Self {
            times,
            link,
            gpus,
            amplification_limit: limit,
            policy_name: DEFAULT_POLICY.into(),
            policy: Policy::default(),
            workloads: Vec::new(),
            background_batch: BACKGROUND_BATCH,
        }
    }

    /// The mode of a burst plan under the limit.
    pub(crate) fn burst(&self) -> Mode {
        Mode::Burst { amplification: self.amplification_limit }
    }

    /// What the figures are from, in one line.
    pub(crate) fn origin(&self) -> String {
        format!(
            "simulated on {} GPUs: {}, link model {} ({:.0} GB/s a direction and GPU in a host)",
            self.gpus,
            self.times.about(),
            self.link.name(),
            self.link.bandwidth_bytes_per_s() / 1e9,
        )
    }
}
