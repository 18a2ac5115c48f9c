use layer_engine::Sgd;
use layer_graph::{LayerGraph, LayerId};
use layer_profile::{MeasurementConditions, ModelAccuracy, Origin};
use serde::{Deserialize, Serialize};

use super::PlannedWorker;
use crate::Error;
use crate::program::{LowerOptions, PartialBackpropagation, Placement, RankMemory, checkpoints};

/// The whole decision about how a network is trained: the ranks of each layer, their order, and how
/// an iteration is lowered; with what it was made from and the predicted times.
///
/// A plan file is this value as JSON (`deeppool/plan/v2`).
/// [`find_plan`](crate::planning::find_plan) makes it, [`from_json`](Self::from_json) reads and
/// checks it, and [`Job::lower`](crate::job::Job::lower) lowers it to programs.
///
/// Times are those of the planner's evaluation, which agree with the simulation of the job alone. A
/// rank is *active* while it computes, and while a collective that it belongs to transfers, after
/// all of its ranks have arrived. While it waits for other ranks it is idle. GPU time is the active
/// time of all ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ExecutionPlan {
    /// Name of the format of the plan file.
    pub(crate) schema: String,
    /// Name of the network.
    pub model: String,
    /// Number of samples of the global batch.
    pub batch: usize,
    /// Number of GPUs, idle ones included. Ranks are `0..gpus`.
    pub gpus: usize,
    /// How the GPUs are used.
    pub mode: PlanMode,
    /// The workers, if it is a plan of equal workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<PlannedWorker>,
    /// The limit on the amplification, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amplification_limit: Option<f64>,
    /// The limit on the iteration time, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_us: Option<f64>,
    /// Origin of the layer times.
    pub profile: ProfileOrigin,
    /// Name of the link model for the times of collectives.
    pub link: String,
    /// How an iteration is lowered.
    pub lowering: PlannedLowering,
    /// Iteration time.
    pub iteration_us: f64,
    /// Active time of all ranks in an iteration.
    pub gpu_time_us: f64,
    /// Iteration time on one GPU.
    pub single_gpu_us: f64,
    /// GPU time divided by the iteration time on one GPU.
    pub amplification: f64,
    /// Lower bound on the iteration time of all plans within the amplification limit, or, without a
    /// limit, within this plan's amplification. `None` for data parallelism, which needs no search.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower_bound_us: Option<f64>,
    /// Relative distance to the lower bound: iteration / bound - 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<f64>,
    /// Time in which ranks compute, summed over ranks.
    pub computing_us: f64,
    /// Time in which ranks only communicate, summed over ranks.
    pub communicating_us: f64,
    /// Time in which ranks do neither, summed over ranks.
    pub idle_us: f64,
    /// Memory of the fullest rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_peak_bytes: Option<u64>,
    /// Memory of the fullest rank, by kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<RankMemory>,
    /// Memory limit of a rank, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes: Option<u64>,
    /// Memory that one GPU alone would need. If that is above the limit, `single_gpu_us` is the sum
    /// of the layers' times, which one GPU could not reach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub single_gpu_memory_bytes: Option<u64>,
    /// Predictions for data parallelism on the same GPUs.
    pub dp: DataParallelTimes,
    /// The ranks of each layer except the input, in topological order.
    pub layers: Vec<PlannedLayer>,
    /// Names of the layers in the order in which ranks run them, if it differs from `layers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Vec<String>>,
}

/// How GPUs are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PlanMode {
    /// Every layer on all GPUs.
    #[serde(rename = "dp")]
    DataParallel,
    /// Each layer on its own ranks.
    #[serde(rename = "bp")]
    Burst,
}

/// Origin of layer times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ProfileOrigin {
    /// Name of the device.
    pub device: String,
    /// Measured, modelled or imported.
    pub origin: Origin,
    /// Error of modelled times against measured ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<ModelAccuracy>,
    /// Conditions of the measurement, if they were recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measurement: Option<MeasurementConditions>,
}

/// How an iteration is lowered: the options of [`LowerOptions`] that a plan decides, which are all
/// except the optimiser.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PlannedLowering {
    /// Whether gradients are all-reduced during the backward pass, or after it.
    pub overlap_all_reduce: bool,
    /// Minimum size of a bucket of gradients of layers with the same ranks.
    pub bucket_bytes: u64,
    /// Number of micro-batches of the batch.
    pub micro_batches: usize,
    /// Whether batch normalisation uses the statistics of the global batch instead of each rank's
    /// shard.
    pub sync_batch_norm: bool,
    /// Names of the activation checkpoints. Activations between them are recomputed in the backward
    /// pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checkpoints: Vec<String>,
    /// Partial backpropagation, if it is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<PartialBackpropagation>,
}

/// Predictions for data parallelism.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct DataParallelTimes {
    /// Iteration time.
    pub iteration_us: f64,
    /// GPU time divided by the iteration time on one GPU.
    pub amplification: f64,
    /// Memory of the fullest rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_peak_bytes: Option<u64>,
}

/// The ranks of a layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PlannedLayer {
    /// Name of the layer.
    pub name: String,
    /// Number of GPUs, equal to the number of ranks.
    pub gpus: usize,
    /// The ranks, in the order of their samples.
    pub ranks: Vec<usize>,
    /// How the layer is split between its ranks; `None` is by samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
}

impl PlanMode {
    /// The label in files and reports: `dp` or `bp`.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::DataParallel => "dp",
            Self::Burst => "bp",
        }
    }
}

impl PlannedLowering {
    /// Returns the lowering options with the given optimiser.
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
    /// Returns the number of ranks that run any layer. The others have no foreground work.
    #[must_use]
    pub fn ranks_used(&self) -> usize {
        let mut used = vec![false; self.gpus];
        for &rank in self.layers.iter().flat_map(|layer| &layer.ranks) {
            // A plan that was edited may name a rank that does not exist.
            if let Some(used) = used.get_mut(rank) {
                *used = true;
            }
        }
        used.into_iter().filter(|&used| used).count()
    }

    /// Returns the ranks and the order of the network's layers.
    ///
    /// # Errors
    /// [`Error::Plan`] if the plan is for another network or its order names an unknown layer.
    /// [`Error::Placement`] if its ranks or its order are invalid. [`Error::Setting`] if its
    /// checkpoints or the roles of partial backpropagation do not fit the network.
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
                || Error::Plan(format!("its order has `{name}`, which is no layer of `{}`", network.name()));
            found.map(|(id, _)| id).ok_or_else(missing)
        };
        let order: Result<Vec<LayerId>, Error> = order.iter().map(by_name).collect();
        placement.with_order(network, order?)
    }

    /// Returns whether data parallelism fits the memory limit on the same GPUs; `true` for older
    /// plans that did not record it.
    #[must_use]
    pub fn data_parallelism_fits(&self) -> bool {
        self.fits(self.dp.memory_peak_bytes)
    }

    /// Returns whether the whole network fits the memory limit on one GPU; `true` for older plans
    /// that did not record it.
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
