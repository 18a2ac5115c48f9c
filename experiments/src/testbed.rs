use collectives::LinkModel;
use deeppool::gpu_mux::Policy;
use deeppool::plan::Mode;
use layer_profile::DeviceModel;

use crate::job::Workload;

/// The simulated machine, what is trained on it, and the limit of the burst plans.
#[derive(Debug, Clone)]
pub(crate) struct Testbed {
    pub(crate) device: DeviceModel,
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
    /// The mode of a burst plan under the limit.
    pub(crate) fn burst(&self) -> Mode {
        Mode::Burst { amplification: self.amplification_limit }
    }

    /// What the figures are from, in one line.
    pub(crate) fn origin(&self) -> String {
        format!(
            "simulated on {} GPUs: layer times of device model {} (modelled, {}), \
             link model {} ({:.0} GB/s a direction and GPU in a host)",
            self.gpus,
            self.device.name(),
            self.device.accuracy(),
            self.link.name(),
            self.link.bandwidth_bytes_per_s() / 1e9,
        )
    }
}
