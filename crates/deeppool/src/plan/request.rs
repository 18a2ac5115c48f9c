//! The request for a plan: the GPUs, the plan to select and the limits.

use burst_planner::{ProofBudget, Stop};
use layer_graph::Split;

use super::{GpuCounts, PlanMode};
use crate::Error;

/// Maximum number of GPUs that a plan can be requested for.
pub const MAX_GPUS: usize = 16_384;

/// The plan to select: data parallelism, or one of the Pareto-optimal burst plans.
///
/// Amplification is the active time of all ranks divided by the iteration time on one GPU (see
/// [`ExecutionPlan`](super::ExecutionPlan)). The original DeepPool counts a layer's whole time,
/// including transfers and waiting, on each of its GPUs, so its values are larger.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mode {
    /// Data parallelism: every layer on `min(gpus, samples of a micro-batch)` GPUs.
    DataParallel,
    /// Burst parallelism: the fastest plan within a limit on amplification.
    Burst {
        /// Maximum amplification, at least 1. It may be infinite.
        amplification: f64,
    },
    /// Burst parallelism: the plan with the minimum GPU time within a limit on the iteration time.
    Deadline {
        /// Maximum iteration time, microseconds.
        iteration_us: f64,
    },
    /// Burst parallelism: the plan at the knee of the Pareto frontier of iteration time and GPU
    /// time. With logarithmic axes, it is the plan farthest below the line from the fastest to the
    /// cheapest plan.
    Knee,
}

impl Mode {
    /// Returns the kind of parallelism of the selected plan.
    #[must_use]
    pub fn plan_mode(self) -> PlanMode {
        match self {
            Self::DataParallel => PlanMode::DataParallel,
            Self::Burst { .. } | Self::Deadline { .. } | Self::Knee => PlanMode::Burst,
        }
    }
}

/// Request for a plan by [`find_plan`](crate::planning::find_plan): the GPUs, the plan to select,
/// and the options of the search.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PlanRequest {
    /// Number of GPUs that the plan may use, from 1 to [`MAX_GPUS`].
    pub gpus: usize,
    /// The plan to select, with its limit.
    pub mode: Mode,
    /// The GPU counts that each layer of a burst plan may run on.
    pub gpu_counts: GpuCounts,
    /// The ways in which a burst plan may split layers besides by samples; none by default. Workers
    /// and partial backpropagation use none.
    pub splits: Vec<Split>,
    /// Search effort as a multiple of the default: above 0, at most 1e6. Larger is slower and may
    /// find better plans.
    pub effort: f64,
    /// Maximum memory of each rank in bytes; `None` for no limit.
    pub memory_limit_bytes: Option<u64>,
    /// Number of GPUs of each worker for hybrid parallelism, a divisor of `gpus`; `None` for one
    /// plan on all GPUs.
    pub worker_gpus: Option<usize>,
    /// Budget for proving a lower bound of the iteration time. It does not change the plan.
    pub proof: ProofBudget,
    /// Signal that ends the search early, with an error, or the proof, with what is proved.
    pub stop: Stop,
}

impl PlanRequest {
    /// Creates a request for a plan on up to `gpus` GPUs with default options: automatic GPU
    /// counts, effort 1, no memory limit and no workers.
    #[must_use]
    pub fn new(gpus: usize, mode: Mode) -> Self {
        Self {
            gpus,
            mode,
            gpu_counts: GpuCounts::default(),
            splits: Vec::new(),
            effort: 1.0,
            memory_limit_bytes: None,
            worker_gpus: None,
            proof: ProofBudget::default(),
            stop: Stop::default(),
        }
    }

    /// Sets the GPU counts that each layer of a burst plan may run on.
    #[must_use]
    pub fn with_gpu_counts(self, gpu_counts: GpuCounts) -> Self {
        Self { gpu_counts, ..self }
    }

    /// Sets the ways in which a burst plan may split layers besides by samples.
    #[must_use]
    pub fn with_splits(self, splits: Vec<Split>) -> Self {
        Self { splits, ..self }
    }

    /// Sets the search effort as a multiple of the default.
    #[must_use]
    pub fn with_effort(self, effort: f64) -> Self {
        Self { effort, ..self }
    }

    /// Sets the maximum memory of each rank in bytes; `None` for no limit.
    #[must_use]
    pub fn with_memory_limit(self, memory_limit_bytes: Option<u64>) -> Self {
        Self { memory_limit_bytes, ..self }
    }

    /// Requests hybrid parallelism: equal workers of `worker_gpus` GPUs each. A worker runs a burst
    /// plan for its part of the batch. All workers run the same plan and reduce their gradients
    /// together. Workers of one GPU are data parallelism. `None` requests one plan on all GPUs.
    ///
    /// With several workers, layers run only on GPU counts that divide the samples of a worker, so
    /// that activations never move between workers. Other counts are ignored.
    #[must_use]
    pub fn with_worker_gpus(self, worker_gpus: Option<usize>) -> Self {
        Self { worker_gpus, ..self }
    }

    /// Sets the budget for proving a lower bound of the iteration time.
    #[must_use]
    pub fn with_proof(self, proof: ProofBudget) -> Self {
        Self { proof, ..self }
    }

    /// Sets the signal that ends the search early.
    #[must_use]
    pub fn with_stop(self, stop: Stop) -> Self {
        Self { stop, ..self }
    }

    /// Checks the numbers of GPUs, before memory is allocated in proportion to them.
    ///
    /// # Errors
    /// [`Error::Setting`] for no GPU, more than [`MAX_GPUS`], a number of GPUs per worker that does
    /// not divide them, or workers of several GPUs with data parallelism.
    pub fn check(&self) -> Result<(), Error> {
        if !(1..=MAX_GPUS).contains(&self.gpus) {
            let (setting, expected) = ("the number of GPUs of a plan", "from 1 to 16384");
            return Err(Error::Setting { setting, expected, got: self.gpus.to_string() });
        }
        match self.worker_gpus {
            Some(gpus) if gpus == 0 || self.gpus % gpus != 0 => Err(Error::Setting {
                setting: "the number of GPUs of a worker",
                expected: "a divisor of the number of GPUs",
                got: format!("{gpus} for {} GPUs", self.gpus),
            }),
            Some(gpus) if gpus > 1 && self.mode == Mode::DataParallel => Err(Error::Setting {
                setting: "the number of GPUs of a worker",
                expected: "1 with data parallelism",
                got: gpus.to_string(),
            }),
            _ => Ok(()),
        }
    }
}
