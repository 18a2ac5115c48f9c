use burst_planner::Stop;

use super::{GpuCounts, PlanMode};
use crate::Error;

/// Maximum number of GPUs of a plan.
pub const MAX_GPUS: usize = 16_384;

/// How the GPUs are used, and which of the Pareto-optimal plans to select.
///
/// Amplification is the active time of all ranks divided by the iteration time on one GPU (see
/// [`ExecutionPlan`](super::ExecutionPlan)). The original DeepPool counts a layer's whole time,
/// transfers and waiting included, on each of its GPUs, so its values are larger.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mode {
    /// Data parallelism: every layer on `min(gpus, batch)` GPUs.
    DataParallel,
    /// Burst parallelism: the fastest plan with at most this amplification.
    Burst {
        /// The limit, at least 1. It may be infinite.
        amplification: f64,
    },
    /// Burst parallelism: the plan with the least GPU time within this iteration time.
    Deadline {
        /// The limit.
        iteration_us: f64,
    },
    /// Burst parallelism: the plan at the knee of the Pareto frontier, beyond which a faster plan
    /// costs much and a cheaper one saves little.
    Knee,
}

impl Mode {
    /// Returns the mode of the resulting plan.
    #[must_use]
    pub fn plan_mode(self) -> PlanMode {
        match self {
            Self::DataParallel => PlanMode::DataParallel,
            Self::Burst { .. } | Self::Deadline { .. } | Self::Knee => PlanMode::Burst,
        }
    }
}

/// A request to [`find_plan`](crate::planning::find_plan).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PlanRequest {
    /// Number of GPUs, at most [`MAX_GPUS`].
    pub gpus: usize,
    /// The plan to select.
    pub mode: Mode,
    /// The GPU counts of a layer of a burst plan.
    pub gpu_counts: GpuCounts,
    /// Search effort as a multiple of the default.
    pub effort: f64,
    /// Memory limit of a rank in bytes; `None` is no limit.
    pub memory_limit_bytes: Option<u64>,
    /// Number of GPUs per worker for a plan of equal workers, each with its part of the batch;
    /// `None` is one plan for all GPUs.
    pub worker_gpus: Option<usize>,
    /// Ends the search early with an error.
    pub stop: Stop,
}

impl PlanRequest {
    /// Creates a request for a plan on up to `gpus` GPUs.
    #[must_use]
    pub fn new(gpus: usize, mode: Mode) -> Self {
        Self {
            gpus,
            mode,
            gpu_counts: GpuCounts::default(),
            effort: 1.0,
            memory_limit_bytes: None,
            worker_gpus: None,
            stop: Stop::default(),
        }
    }

    /// Sets the GPU counts of a layer.
    #[must_use]
    pub fn with_gpu_counts(self, gpu_counts: GpuCounts) -> Self {
        Self { gpu_counts, ..self }
    }

    /// Sets the search effort as a multiple of the default.
    #[must_use]
    pub fn with_effort(self, effort: f64) -> Self {
        Self { effort, ..self }
    }

    /// Sets the memory limit of a rank.
    #[must_use]
    pub fn with_memory_limit(self, memory_limit_bytes: Option<u64>) -> Self {
        Self { memory_limit_bytes, ..self }
    }

    /// Requests hybrid parallelism: equal workers of `worker_gpus` GPUs each. A worker runs a burst
    /// plan, or a placement of layers, for its part of the batch. All workers run the same plan and
    /// reduce their gradients together. Workers of one GPU are data parallelism.
    ///
    /// With several workers, layers run only on GPU counts that divide the samples of a worker, so
    /// that activations never move between workers. Other counts are ignored.
    #[must_use]
    pub fn with_worker_gpus(self, worker_gpus: Option<usize>) -> Self {
        Self { worker_gpus, ..self }
    }

    /// Sets the signal that ends the search early.
    #[must_use]
    pub fn with_stop(self, stop: Stop) -> Self {
        Self { stop, ..self }
    }

    /// Checks the number of GPUs, before anything is allocated whose size depends on it.
    ///
    /// # Errors
    /// [`Error::Setting`] for no GPU, more than [`MAX_GPUS`], or workers that do not share the GPUs
    /// evenly.
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
