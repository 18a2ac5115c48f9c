//! Testbed: the machine that an experiment simulates, and its jobs.

use collectives::LinkModel;
use deeppool::gpu_mux::Policy;
use deeppool::plan::Mode;

use crate::layer_times::LayerTimes;
use crate::workload::{BACKGROUND_BATCH, Workload};

/// Name of the default GPU-sharing policy.
pub(crate) const DEFAULT_POLICY: &str = "default";

/// A simulated machine, its workloads, and the amplification limit of burst plans.
#[derive(Debug, Clone)]
pub(crate) struct Testbed {
    /// Layer times of its GPUs.
    pub(crate) times: LayerTimes,
    /// Links between its GPUs.
    pub(crate) link: LinkModel,
    /// Number of GPUs.
    pub(crate) gpus: usize,
    /// Maximum amplification of a burst plan, at least 1.
    pub(crate) amplification_limit: f64,
    /// Name of the GPU-sharing policy.
    pub(crate) policy_name: String,
    /// Rules of that policy.
    pub(crate) policy: Policy,
    /// Foreground jobs. Each is simulated without the others. Empty if the experiment defines other
    /// ones.
    pub(crate) workloads: Vec<Workload>,
    /// Samples of each background job's batch, unless an experiment defines another number.
    pub(crate) background_batch: usize,
}

impl Testbed {
    /// Returns a testbed for experiments that define their workloads and policies. `limit` is the
    /// amplification limit of burst plans.
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

    /// Returns the planning mode of burst plans under the amplification limit.
    pub(crate) fn burst(&self) -> Mode {
        Mode::Burst { amplification: self.amplification_limit }
    }

    /// Returns a line on the origin of the simulated numbers: the GPUs, their layer times and their
    /// links.
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
