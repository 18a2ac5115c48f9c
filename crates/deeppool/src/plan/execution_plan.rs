use layer_engine::Sgd;
use layer_graph::{LayerGraph, LayerId};
use layer_profile::{MeasurementConditions, ModelAccuracy, Origin};
use serde::{Deserialize, Serialize};

use super::PlannedWorker;
use crate::Error;
use crate::program::{LowerOptions, PartialBackpropagation, Placement, RankMemory, checkpoints};

/// Everything that is decided about how a network is trained: where each layer runs, in which order, and how an iteration is
/// lowered; what it was decided from, and what it should take.
///
/// A plan file is this value as JSON (`deeppool/plan/v2`), and [`Job::lower`](crate::job::Job::lower) is the one way from it
/// to a program. It is made by [`find_plan`](crate::planning::find_plan), and [checked](Self::from_json) when it is read.
///
/// Times are by the planner's evaluation, which is what the simulator takes for the job alone. A rank is *active* while it
/// computes, and while a collective that it belongs to transfers, all of whose ranks have arrived; while it waits for others it
/// is idle. GPU time is the active time of all ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ExecutionPlan {
    pub(crate) schema: String,
    /// The network.
    pub model: String,
    /// Samples of the global batch.
    pub batch: usize,
    /// How many GPUs there are, idle ones included: ranks are `0..gpus`.
    pub gpus: usize,
    /// How they are used.
    pub mode: PlanMode,
    /// The workers, where it is a plan of equal workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<PlannedWorker>,
    /// The limit on the amplification, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amplification_limit: Option<f64>,
    /// The limit on the iteration time, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_us: Option<f64>,
    /// What the layers' times are from.
    pub profile: ProfileOrigin,
    /// The link model that the times of collectives are from.
    pub link: String,
    /// How an iteration is lowered.
    pub lowering: PlannedLowering,
    /// The time of an iteration.
    pub iteration_us: f64,
    /// The active time of all ranks in an iteration.
    pub gpu_time_us: f64,
    /// The time of an iteration on one GPU.
    pub single_gpu_us: f64,
    /// GPU time over the time on one GPU.
    pub amplification: f64,
    /// No plan with this amplification limit, or where there is none with this plan's amplification, takes less time. Not known
    /// for data parallelism, which is not searched for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower_bound_us: Option<f64>,
    /// How far the iteration is above that: iteration / bound - 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<f64>,
    /// The time in which ranks compute, of all together.
    pub computing_us: f64,
    /// The time in which ranks only communicate, of all together.
    pub communicating_us: f64,
    /// The time in which ranks do neither, of all together.
    pub idle_us: f64,
    /// What the rank holds that holds most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_peak_bytes: Option<u64>,
    /// The same by kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<RankMemory>,
    /// What a rank may hold, where there was a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes: Option<u64>,
    /// What one GPU alone would have to hold. Where that is more than it may, `single_gpu_us` is no time that it could take, but
    /// the sum of its layers' times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub single_gpu_memory_bytes: Option<u64>,
    /// What data parallelism takes on the same GPUs.
    pub dp: DataParallelTimes,
    /// Where each layer runs: all but the input, in topological order.
    pub layers: Vec<PlannedLayer>,
    /// The names of the layers in the order in which ranks run them, where it is not that of `layers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Vec<String>>,
}

/// How GPUs are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PlanMode {
    /// Every layer on all GPUs.
    #[serde(rename = "dp")]
    DataParallel,
    /// Each layer on ranks of its own.
    #[serde(rename = "bp")]
    Burst,
}

/// Where layer times are from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ProfileOrigin {
    /// The device.
    pub device: String,
    /// Measured, modelled or imported.
    pub origin: Origin,
    /// How far modelled times are from measured ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<ModelAccuracy>,
    /// How measured times were measured, where that was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measurement: Option<MeasurementConditions>,
}

/// How an iteration is lowered: the part of [`LowerOptions`] that a plan decides. The optimiser is no part of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PlannedLowering {
    /// Whether gradients are all-reduced while the backward pass goes on, or after it.
    pub overlap_all_reduce: bool,
    /// Gradients of layers with the same ranks travel together until they are this many bytes.
    pub bucket_bytes: u64,
    /// Into how many micro-batches the batch is cut.
    pub micro_batches: usize,
    /// Whether batch normalisation normalises over the global batch instead of each rank's shard.
    pub sync_batch_norm: bool,
    /// The layers whose outputs are kept, where those before them are computed again in the backward pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checkpoints: Vec<String>,
    /// Which part of the batch backpropagates how far, if not all of it goes all the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<PartialBackpropagation>,
}

/// What data parallelism takes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct DataParallelTimes {
    /// The time of an iteration.
    pub iteration_us: f64,
    /// GPU time over the time on one GPU.
    pub amplification: f64,
    /// What the rank holds that holds most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_peak_bytes: Option<u64>,
}

/// Where a layer runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PlannedLayer {
    /// The layer's name.
    pub name: String,
    /// On how many GPUs: as many as it has ranks.
    pub gpus: usize,
    /// Which, in the order of their samples.
    pub ranks: Vec<usize>,
    /// How its work is split between them; by samples where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
}

impl PlanMode {
    /// `dp` or `bp`, as in files and reports.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::DataParallel => "dp",
            Self::Burst => "bp",
        }
    }
}

impl PlannedLowering {
    /// With this optimiser, what lowering needs.
    #[must_use]
    pub fn options(&self, optimizer: Sgd) -> LowerOptions {
        let &Self { overlap_all_reduce, bucket_bytes, micro_batches, sync_batch_norm, .. } = self;
        let (checkpoints, partial) = (self.checkpoints.clone(), self.partial.clone());
        LowerOptions {
            optimizer,
            overlap_all_reduce,
            bucket_bytes,
            sync_batch_norm,
            micro_batches,
            checkpoints,
            partial,
        }
    }
}

impl From<&LowerOptions> for PlannedLowering {
    fn from(options: &LowerOptions) -> Self {
        let &LowerOptions { overlap_all_reduce, bucket_bytes, sync_batch_norm, micro_batches, .. } = options;
        let (checkpoints, partial) = (options.checkpoints.clone(), options.partial.clone());
        Self { overlap_all_reduce, bucket_bytes, micro_batches, sync_batch_norm, checkpoints, partial }
    }
}

impl ExecutionPlan {
    /// On how many ranks any layer runs: the others are free of the foreground.
    #[must_use]
    pub fn ranks_used(&self) -> usize {
        let mut used = vec![false; self.gpus];
        for &rank in self.layers.iter().flat_map(|layer| &layer.ranks) {
            // A plan that was made by hand may name one that there is not.
            if let Some(used) = used.get_mut(rank) {
                *used = true;
            }
        }
        used.into_iter().filter(|&used| used).count()
    }

    /// On which ranks each layer of the network runs, and in which order.
    ///
    /// # Errors
    /// [`Error::Plan`] when the plan is of another network or its order is none of this one's,
    /// [`Error::Placement`] when its ranks cannot be, [`Error::Setting`] when its checkpoints cannot, or the roles of partial backpropagation.
    pub fn placement(&self, network: &LayerGraph) -> Result<Placement, Error> {
        self.check_layers(network)?;
        checkpoints(network, &self.lowering.checkpoints)?;
        self.lowering.partial.iter().try_for_each(|partial| partial.check(network))?;
        let ranks = self.layers.iter().map(|layer| layer.ranks.clone()).collect();
        let placement = Placement::new(network, self.gpus, ranks)?;
        let Some(order) = &self.order else { return Ok(placement) };
        let by_name = |name: &String| {
            let found = network.layers().skip(1).find(|(_, layer)| layer.name() == name);
            let missing =
                || Error::Plan(format!("its order has `{name}`, which `{}` has not", network.name()));
            found.map(|(id, _)| id).ok_or_else(missing)
        };
        let order: Result<Vec<LayerId>, Error> = order.iter().map(by_name).collect();
        placement.with_order(network, order?)
    }

    /// Whether data parallelism has room on the same GPUs; not known of plans from before it was recorded.
    #[must_use]
    pub fn data_parallelism_fits(&self) -> bool {
        self.fits(self.dp.memory_peak_bytes)
    }

    /// Whether one GPU has room for everything; not known of plans from before it was recorded.
    #[must_use]
    pub fn single_gpu_fits(&self) -> bool {
        self.fits(self.single_gpu_memory_bytes)
    }

    fn fits(&self, bytes: Option<u64>) -> bool {
        self.memory_limit_bytes.zip(bytes).is_none_or(|(limit, bytes)| bytes <= limit)
    }

    fn check_layers(&self, network: &LayerGraph) -> Result<(), Error> {
        let mut layers = network.layers().skip(1).map(|(_, layer)| layer.name());
        let mut planned = self.layers.iter().map(|layer| layer.name.as_str());
        loop {
            let problem = match (planned.next(), layers.next()) {
                (None, None) => return Ok(()),
                (Some(planned), Some(layer)) if planned == layer => continue,
                (Some(planned), Some(layer)) => {
                    format!("it has layer `{planned}` where `{}` has `{layer}`", network.name())
                }
                _ => format!(
                    "it has {} layers, `{}` has {}",
                    self.layers.len(),
                    network.name(),
                    network.len() - 1
                ),
            };
            return Err(Error::Plan(problem + ": it was made for another network"));
        }
    }
}
