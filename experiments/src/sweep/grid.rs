//! Grid of the sweep: all combinations of networks, links, amplification limits and GPU counts.

use anyhow::bail;
use collectives::LinkModel;
use deeppool::burst_planner::ProofBudget;
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
/// Amplification limits in increasing order.
const LIMITS: [f64; 8] = [1.05, 1.1, 1.25, 1.5, 2.0, 2.5, 4.0, 8.0];
/// GPU counts in increasing order.
const GPUS: [usize; 3] = [4, 8, 16];
/// GPUs of a host, on links with several hosts.
const RANKS_PER_HOST: usize = 4;

/// Values whose combinations are the points of a sweep.
pub(super) struct Grid {
    /// Networks with their batches.
    pub(super) workloads: Vec<SweepWorkload>,
    /// Links between the GPUs.
    pub(super) links: Vec<NamedLink>,
    /// Amplification limits in increasing order.
    pub(super) limits: Vec<f64>,
    /// GPU counts in increasing order.
    pub(super) gpus: Vec<usize>,
    /// Whether each search has one limit instead of all.
    pub(super) is_sample: bool,
    /// Effort of the searches as a multiple of the default.
    pub(super) effort: f64,
    /// Effort of the lower bounds.
    pub(super) proof: ProofBudget,
}

/// A network, its batch and its layer times.
pub(super) struct SweepWorkload {
    /// Name of the network.
    pub(super) model: &'static str,
    /// Samples of the global batch.
    pub(super) batch: usize,
    /// The network.
    pub(super) network: LayerGraph,
    /// Layer times for every shard size on the GPU counts of the grid.
    pub(super) profile: ProfileTable,
}

/// A link model with a short name.
pub(super) struct NamedLink {
    /// Name in rows.
    pub(super) name: &'static str,
    /// The link model.
    pub(super) model: LinkModel,
}

impl Grid {
    /// Creates the whole grid, or with `quick` a part that is evaluated in seconds. `only`
    /// restricts it to the network of that name.
    ///
    /// # Errors
    /// If no network of the sweep has that name.
    pub(super) fn new(quick: bool, only: Option<&str>) -> anyhow::Result<Self> {
        let is_selected = |&&(model, _): &&(&str, usize)| only.is_none_or(|only| only == model);
        if let Some(only) = only.filter(|_| !WORKLOADS.iter().any(|workload| is_selected(&workload))) {
            let mut models = WORKLOADS.map(|(model, _)| model).to_vec();
            models.dedup();
            bail!("`{only}` is not in the sweep: expected one of {}", models.join(", "));
        }
        let device = DeviceModel::named("a100")?;
        let workload = |&(model, batch): &(&'static str, usize)| {
            let network = zoo::model(model)?;
            let max_gpus = GPUS.into_iter().max().unwrap_or(1);
            let profile = device.profile(&network, &shard_sizes(batch, max_gpus))?;
            anyhow::Ok(SweepWorkload { model, batch, network, profile })
        };
        let hosts = LinkModel::dgx_a100().between_hosts(RANKS_PER_HOST, LinkModel::ethernet_100g())?;
        let mut links = vec![
            NamedLink { name: "one NVSwitch", model: LinkModel::dgx_a100().with_max_members(None) },
            NamedLink { name: "ethernet-25g", model: LinkModel::ethernet_25g() },
            NamedLink { name: "ethernet-100g", model: LinkModel::ethernet_100g() },
            NamedLink { name: "hosts of 4", model: hosts },
        ];
        if !quick {
            let workloads =
                WORKLOADS.iter().filter(is_selected).map(workload).collect::<anyhow::Result<_>>()?;
            return Ok(Self::of(workloads, links, LIMITS.into(), GPUS.into()));
        }
        // A chain and a network with branches, on the fastest and the most uneven links.
        let workloads = [WORKLOADS[0], WORKLOADS[4]];
        let workloads = workloads.iter().filter(is_selected).map(workload);
        links.retain(|link| ["one NVSwitch", "hosts of 4"].contains(&link.name));
        let workloads = workloads.collect::<anyhow::Result<_>>()?;
        Ok(Self::of(workloads, links, vec![1.25, 2.0, 4.0], vec![4, 8]))
    }

    fn of(workloads: Vec<SweepWorkload>, links: Vec<NamedLink>, limits: Vec<f64>, gpus: Vec<usize>) -> Self {
        Self { workloads, links, limits, gpus, is_sample: false, effort: 1.0, proof: ProofBudget::default() }
    }

    /// Returns the limits of a search, which has the indices of its workload, link and GPU count.
    /// In a sample, each limit is as frequent as any other for every link and GPU count.
    pub(super) fn limits_of(&self, [workload, link, gpus]: [usize; 3]) -> &[f64] {
        let limit = (workload + 2 * link + 3 * gpus) % self.limits.len();
        if self.is_sample { &self.limits[limit..=limit] } else { &self.limits }
    }

    /// Returns the number of points, each of which has one plan.
    pub(super) fn pairs(&self) -> usize {
        self.searches() * if self.is_sample { 1 } else { self.limits.len() }
    }

    /// Returns the number of searches, each of which finds the plans for all limits.
    pub(super) fn searches(&self) -> usize {
        self.workloads.len() * self.links.len() * self.gpus.len()
    }
}
