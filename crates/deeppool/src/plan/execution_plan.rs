//! The plan of a job, as it is written to a plan file. Times are in microseconds and memory is in
//! bytes. All of them are predictions.

use layer_engine::{Precision, Sgd};
use layer_graph::{Division, LayerGraph, LayerId};
use layer_profile::{MeasurementConditions, ModelAccuracy, Origin};
use serde::{Deserialize, Serialize};

use super::{PlannedWorker, PlanningWork, PredictedRange};
use crate::Error;
use crate::document::not_null;
use crate::program::{LowerOptions, PartialBackpropagation, Placement, RankMemory, checkpoints};

/// A plan: the ranks of each layer, the order of the layers, and how an iteration is lowered; with
/// its origin and the predicted times.
///
/// A plan file is this value as JSON (`deeppool/plan/v3`).
/// [`find_plan`](crate::planning::find_plan) creates it, [`from_json`](Self::from_json) reads and
/// checks it, and [`Job::lower`](crate::job::Job::lower) lowers it to programs.
///
/// Times are those of the planner's evaluation, which agree with the simulation of the job alone. A
/// rank is *active* while it computes, and while a collective that it belongs to transfers data,
/// after all ranks of the collective have arrived. While it waits for other ranks it is idle. GPU
/// time is the active time of all ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ExecutionPlan {
    /// Name and version of the plan file's format.
    pub(crate) schema: String,
    /// Name of the network.
    pub model: String,
    /// Number of samples of the global batch.
    pub batch: usize,
    /// Number of GPUs, idle ones included. Ranks are `0..gpus`.
    pub gpus: usize,
    /// Kind of parallelism.
    pub mode: PlanMode,
    /// The workers of hybrid parallelism; `None` for one plan on all GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<PlannedWorker>,
    /// Limit on the amplification with which the plan was searched; `None` without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "not_null")]
    pub amplification_limit: Option<f64>,
    /// Limit on the iteration time with which the plan was searched; `None` without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "not_null")]
    pub deadline_us: Option<f64>,
    /// The profile that the layer times come from.
    pub profile: ProfileOrigin,
    /// Name of the link model that gave the times of collectives.
    pub link: String,
    /// Options with which an iteration is lowered to programs.
    pub lowering: PlannedLowering,
    /// Iteration time, microseconds.
    pub iteration_us: f64,
    /// Range of the iteration time; `None` if the accuracy of the device model is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<PredictedRange>,
    /// GPU time: active time of an iteration, summed over all ranks.
    pub gpu_time_us: f64,
    /// Iteration time on one GPU, with the whole batch.
    pub single_gpu_us: f64,
    /// GPU time divided by the iteration time on one GPU.
    pub amplification: f64,
    /// Lower bound on the iteration time of all plans within the amplification limit, or, without a
    /// limit, within this plan's amplification. `None` if no bound is known, as for data
    /// parallelism, micro-batches or partial backpropagation.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "not_null")]
    pub lower_bound_us: Option<f64>,
    /// Iteration time divided by its lower bound, minus one; `None` without a bound.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "not_null")]
    pub gap: Option<f64>,
    /// Work of the search and of the proof of the lower bound; `None` without a search and in older
    /// plan files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planning: Option<PlanningWork>,
    /// Time of an iteration in which a rank computes, summed over ranks.
    pub computing_us: f64,
    /// Time of an iteration in which a rank only communicates, summed over ranks.
    pub communicating_us: f64,
    /// Time of an iteration in which a rank does neither, summed over ranks.
    pub idle_us: f64,
    /// Memory of the rank that needs most; `None` in older plan files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_peak_bytes: Option<u64>,
    /// Memory of the rank that needs most, by kind; `None` in older plan files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<RankMemory>,
    /// Memory limit of each rank with which the plan was searched; `None` without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes: Option<u64>,
    /// Memory that one GPU needs for the whole job; `None` in older plan files. If it is above the
    /// limit, `single_gpu_us` is the sum of the layers' times, which one GPU could not reach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub single_gpu_memory_bytes: Option<u64>,
    /// Predictions for data parallelism of the same job on the same GPUs.
    pub dp: DataParallelTimes,
    /// The layers and their ranks, in topological order of the network, without the input layer.
    pub layers: Vec<PlannedLayer>,
    /// Names of the layers in the order in which ranks run them; `None` if it is that of `layers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Vec<String>>,
}

/// Kind of parallelism of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PlanMode {
    /// Data parallelism: every layer on the same ranks.
    #[serde(rename = "dp")]
    DataParallel,
    /// Burst parallelism: each layer has its own ranks.
    #[serde(rename = "bp")]
    Burst,
}

/// The profile that layer times come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ProfileOrigin {
    /// Name of the device of the profile.
    pub device: String,
    /// Kind of the times: measured, modelled or imported.
    pub origin: Origin,
    /// Error of the device model that gave modelled times; `None` if no time is modelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<ModelAccuracy>,
    /// Conditions of the measurement; `None` if they were not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measurement: Option<MeasurementConditions>,
}

/// Options with which an iteration is lowered, as far as a plan fixes them: all of [`LowerOptions`]
/// except the optimiser.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PlannedLowering {
    /// Whether gradients are all-reduced during the backward pass instead of after it.
    pub overlap_all_reduce: bool,
    /// Minimum size of a full bucket of gradients on each rank, bytes. A bucket has gradients of
    /// layers with the same ranks.
    pub bucket_bytes: u64,
    /// Number of micro-batches of the global batch.
    pub micro_batches: usize,
    /// Whether batch normalisation uses the statistics of a whole micro-batch instead of each
    /// rank's shard of it.
    pub sync_batch_norm: bool,
    /// Names of the activation checkpoints. Activations between them are recomputed in the backward
    /// pass. Empty if all activations are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checkpoints: Vec<String>,
    /// Partial backpropagation; `None` if all samples are backpropagated through the whole network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<PartialBackpropagation>,
    /// Whether outputs of layers, their gradients and the parameters that layers read have 16 bits:
    /// see [`Precision::Bf16`].
    #[serde(default, skip_serializing_if = "is_false")]
    pub bf16: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// Predictions for data parallelism of the same job on `min(gpus, micro-batch samples)` GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct DataParallelTimes {
    /// Iteration time, microseconds.
    pub iteration_us: f64,
    /// GPU time divided by the iteration time on one GPU.
    pub amplification: f64,
    /// Memory of the rank that needs most, bytes; `None` in older plan files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_peak_bytes: Option<u64>,
}

/// A layer and its ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PlannedLayer {
    /// Name of the layer.
    pub name: String,
    /// Number of GPUs of the layer: the length of `ranks`.
    pub gpus: usize,
    /// The ranks, in the order of their shards of the batch: the first rank has the first samples.
    /// If the layer is split, the ranks with the same samples follow each other, in the order of
    /// their parts.
    pub ranks: Vec<usize>,
    /// How the work on each sample is divided; `None` if the ranks divide the samples only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub division: Option<Division>,
}

impl PlannedLayer {
    /// Returns whether both layers have the same ranks and the same division.
    #[must_use]
    pub fn is_placed_as(&self, other: &Self) -> bool {
        self.ranks == other.ranks && self.division == other.division
    }

    /// Returns the text of the division, such as `4 by features`; `None` if the ranks divide the
    /// samples only.
    #[must_use]
    pub fn split(&self) -> Option<String> {
        self.division.map(|division| division.to_string())
    }
}

impl PlanMode {
    /// Returns the label in files and reports: `dp` or `bp`.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::DataParallel => "dp",
            Self::Burst => "bp",
        }
    }
}

impl PlannedLowering {
    /// Returns the precisions of layers that the plan is for: `bf16`, or `f32 or tf32`.
    #[must_use]
    pub fn precisions(&self) -> &'static str {
        if self.bf16 { "bf16" } else { "f32 or tf32" }
    }

    /// Returns all lowering options: those of the plan and the given optimiser.
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
            precision: if self.bf16 { Precision::Bf16 } else { Precision::F32 },
        }
    }
}

impl From<&LowerOptions> for PlannedLowering {
    fn from(options: &LowerOptions) -> Self {
        let &LowerOptions { overlap_all_reduce, bucket_bytes, sync_batch_norm, micro_batches, .. } = options;
        let (checkpoints, partial) = (options.checkpoints.clone(), options.partial.clone());
        let bf16 = options.precision == Precision::Bf16;
        Self { overlap_all_reduce, bucket_bytes, micro_batches, sync_batch_norm, checkpoints, partial, bf16 }
    }
}

impl ExecutionPlan {
    /// Returns the number of ranks that run at least one layer. The others have no foreground work.
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

    /// Returns the ranks and the order of the layers, for lowering, after checking them against the
    /// network.
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
        let mut placement = Placement::new(network, self.gpus, ranks)?;
        let ids = network.computing_layers().map(|(id, _)| id);
        let divided: Vec<(LayerId, Division)> =
            ids.zip(&self.layers).filter_map(|(id, layer)| Some((id, layer.division?))).collect();
        if !divided.is_empty() {
            placement = placement.with_divisions(network, divided)?;
        }
        let Some(order) = &self.order else { return Ok(placement) };
        let by_name = |name: &String| {
            let found = network.computing_layers().find(|(_, layer)| layer.name() == name);
            let missing =
                || Error::Plan(format!("its order has `{name}`, which is no layer of `{}`", network.name()));
            found.map(|(id, _)| id).ok_or_else(missing)
        };
        let order: Result<Vec<LayerId>, Error> = order.iter().map(by_name).collect();
        placement.with_order(network, order?)
    }

    /// Returns whether data parallelism on the same GPUs is within the memory limit; `true` if its
    /// memory was not recorded or there is no limit.
    #[must_use]
    pub fn data_parallelism_fits(&self) -> bool {
        self.fits(self.dp.memory_peak_bytes)
    }

    /// Returns whether the whole job is within the memory limit on one GPU; `true` if its memory
    /// was not recorded or there is no limit.
    #[must_use]
    pub fn single_gpu_fits(&self) -> bool {
        self.fits(self.single_gpu_memory_bytes)
    }

    fn fits(&self, bytes: Option<u64>) -> bool {
        self.memory_limit_bytes.zip(bytes).is_none_or(|(limit, bytes)| bytes <= limit)
    }

    fn check_layers(&self, network: &LayerGraph) -> Result<(), Error> {
        let mut layers = network.computing_layers().map(|(_, layer)| layer.name());
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
                    network.computing_layers().len()
                ),
            };
            return Err(Error::Plan(problem + ": it was made for another network"));
        }
    }
}
