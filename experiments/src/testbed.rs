use collectives::LinkModel;
use deeppool::gpu_mux::Policy;
use deeppool::plan::Mode;
use deeppool::simulate::policy_named;
use layer_profile::DeviceModel;

/// The simulated machine, and the limit of the burst plans on it.
pub(crate) struct Testbed {
    pub(crate) device: DeviceModel,
    pub(crate) link: LinkModel,
    pub(crate) gpus: usize,
    /// The largest amplification of a burst plan, at least 1.
    pub(crate) amplification_limit: f64,
    /// How background jobs share the GPUs, by its name.
    pub(crate) policy_name: String,
    pub(crate) policy: Policy,
}

impl Testbed {
    /// A DGX A100, or as many of them in a pod as so many GPUs take.
    pub(crate) fn dgx_a100(gpus: usize, amplification_limit: f64, policy_name: &str) -> anyhow::Result<Self> {
        let device = DeviceModel::named("a100")?;
        let host = LinkModel::dgx_a100();
        let link = if host.check_ranks(gpus).is_ok() { host } else { LinkModel::dgx_a100_pod() };
        link.check_ranks(gpus)?;
        let policy = policy_named(policy_name)?;
        Ok(Self { device, link, gpus, amplification_limit, policy_name: policy_name.into(), policy })
    }

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
