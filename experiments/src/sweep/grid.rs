//! What is asked: networks, links, limits and GPU counts.

use anyhow::bail;
use collectives::LinkModel;
use deeppool::costs::shard_sizes;
use layer_graph::{LayerGraph, zoo};
use layer_profile::{DeviceModel, ProfileTable};

/// Networks with their global batches.
const WORKLOADS: [(&str, usize); 8] = [
    ("vgg16", 32),
    ("vgg16", 64),
    ("wrn-101-2", 16),
    ("wrn-101-2", 32),
    ("inception-v3", 32),
    ("inception-v3", 64),
    ("resnet-50", 64),
    ("vit-b-16", 32),
];
/// Amplification limits, ascending.
const LIMITS: [f64; 8] = [1.05, 1.1, 1.25, 1.5, 2.0, 2.5, 4.0, 8.0];
/// GPU counts, ascending.
const GPUS: [usize; 3] = [4, 8, 16];
/// GPUs of a host, where hosts are joined by a network.
const RANKS_PER_HOST: usize = 4;

/// The questions of a sweep: all combinations of these.
pub(super) struct Grid {
    pub(super) workloads: Vec<Workload>,
    pub(super) links: Vec<Link>,
    pub(super) limits: Vec<f64>,
    pub(super) gpus: Vec<usize>,
}

/// A network, its batch, and its layers' times.
pub(super) struct Workload {
    pub(super) model: &'static str,
    pub(super) batch: usize,
    pub(super) network: LayerGraph,
    pub(super) profile: ProfileTable,
}

/// Links, by a name that is short enough for a table.
pub(super) struct Link {
    pub(super) name: &'static str,
    pub(super) model: LinkModel,
}

impl Grid {
    /// All that there is to ask, or a part that takes seconds; of one model where one is named.
    pub(super) fn new(quick: bool, only: Option<&str>) -> anyhow::Result<Self> {
        let is_asked = |&&(model, _): &&(&str, usize)| only.is_none_or(|only| only == model);
        if let Some(only) = only.filter(|_| !WORKLOADS.iter().any(|workload| is_asked(&workload))) {
            let mut models = WORKLOADS.map(|(model, _)| model).to_vec();
            models.dedup();
            bail!("`{only}` is not in the sweep: expected one of {}", models.join(", "));
        }
        let device = DeviceModel::named("a100")?;
        let workload = |&(model, batch): &(&'static str, usize)| {
            let network = zoo::model(model)?;
            let most = GPUS.into_iter().max().unwrap_or(1);
            let profile = device.profile(&network, &shard_sizes(batch, most))?;
            anyhow::Ok(Workload { model, batch, network, profile })
        };
        let hosts = LinkModel::dgx_a100().between_hosts(RANKS_PER_HOST, LinkModel::ethernet_100g())?;
        let mut links = vec![
            Link { name: "one NVSwitch", model: LinkModel::dgx_a100().with_max_members(None) },
            Link { name: "ethernet-25g", model: LinkModel::ethernet_25g() },
            Link { name: "ethernet-100g", model: LinkModel::ethernet_100g() },
            Link { name: "hosts of 4", model: hosts },
        ];
        if !quick {
            let workloads = WORKLOADS.iter().filter(is_asked).map(workload).collect::<anyhow::Result<_>>()?;
            return Ok(Self { workloads, links, limits: LIMITS.into(), gpus: GPUS.into() });
        }
        // A chain and a network with branches, on the fastest and the most uneven links.
        let workloads = [WORKLOADS[0], WORKLOADS[4]];
        let workloads = workloads.iter().filter(is_asked).map(workload);
        links.retain(|link| ["one NVSwitch", "hosts of 4"].contains(&link.name));
        let workloads = workloads.collect::<anyhow::Result<_>>()?;
        Ok(Self { workloads, links, limits: vec![1.25, 2.0, 4.0], gpus: vec![4, 8] })
    }

    /// How many plans are asked for.
    pub(super) fn pairs(&self) -> usize {
        self.searches() * self.limits.len()
    }

    /// How many searches that takes.
    pub(super) fn searches(&self) -> usize {
        self.workloads.len() * self.links.len() * self.gpus.len()
    }
}
