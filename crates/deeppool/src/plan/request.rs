use burst_planner::Stop;

use super::{GpuCounts, PlanMode};
use crate::Error;

/// With how many GPUs plans are made at most.
pub const MAX_GPUS: usize = 16_384;

/// How the GPUs are used, and which of the Pareto-optimal plans is asked for.
///
/// Amplification is the active time of all ranks over the iteration time on one GPU (see
/// [`ExecutionPlan`](super::ExecutionPlan)). The original DeepPool charges a layer's whole time, transfers and waiting included, on
/// each of its GPUs, so its figures are larger.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mode {
    /// Every layer on as many GPUs as there are, or as the batch has samples.
    DataParallel,
    /// Each layer on ranks of its own: the fastest plan whose amplification is at most this.
    Burst {
        /// The limit, at least 1. It may be infinite.
        amplification: f64,
    },
    /// Each layer on ranks of its own: the plan with the least GPU time whose iteration takes no longer.
    Deadline {
        /// The limit.
        iteration_us: f64,
    },
    /// Each layer on ranks of its own: the plan beyond which being faster costs much and being cheaper saves little.
    Knee,
}

impl Mode {
    /// What a plan says of it.
    #[must_use]
    pub fn plan_mode(self) -> PlanMode {
        match self {
            Self::DataParallel => PlanMode::DataParallel,
            Self::Burst { .. } | Self::Deadline { .. } | Self::Knee => PlanMode::Burst,
        }
    }
}

/// A question to [`find_plan`](crate::planning::find_plan).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PlanRequest {
    /// How many GPUs there are, at most [`MAX_GPUS`].
    pub gpus: usize,
    /// Which plan is asked for.
    pub mode: Mode,
    /// On how many GPUs a layer of a burst plan may run.
    pub gpu_counts: GpuCounts,
    /// How long to search, as a multiple of the usual effort.
    pub effort: f64,
    /// What each rank may hold, bytes; `None` is as much as there is. Plans that need more are not found.
    pub memory_limit_bytes: Option<u64>,
    /// How many GPUs a worker has, where the plan is to be of equal workers, each with its part of the batch; `None` is one plan for all
    /// GPUs.
    pub worker_gpus: Option<usize>,
    /// Ends the search early, without an answer.
    pub stop: Stop,
}

impl PlanRequest {
    /// Asks for a plan on up to so many GPUs.
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

    /// Sets on how many GPUs a layer may run.
    #[must_use]
    pub fn with_gpu_counts(self, gpu_counts: GpuCounts) -> Self {
        Self { gpu_counts, ..self }
    }

    /// Sets how long to search, as a multiple of the usual effort.
    #[must_use]
    pub fn with_effort(self, effort: f64) -> Self {
        Self { effort, ..self }
    }

    /// Sets what each rank may hold.
    #[must_use]
    pub fn with_memory_limit(self, memory_limit_bytes: Option<u64>) -> Self {
        Self { memory_limit_bytes, ..self }
    }

    /// Asks for hybrid parallelism: as many equal workers of so many GPUs as there are GPUs for. A worker runs a burst plan, or a placement of
    /// layers, for its part of the batch; all of them run the same one, and reduce their gradients together. Workers of one GPU are
    /// data parallelism.
    ///
    /// Layers run on GPU counts of a worker that divide its samples, unless it is the only one: then activations never move from one
    /// worker to another. Other counts are left out.
    #[must_use]
    pub fn with_worker_gpus(self, worker_gpus: Option<usize>) -> Self {
        Self { worker_gpus, ..self }
    }

    /// Sets what ends the search early.
    #[must_use]
    pub fn with_stop(self, stop: Stop) -> Self {
        Self { stop, ..self }
    }

    /// Checks that it is in proportion, before anything is made that grows with the number of GPUs.
    ///
    /// # Errors
    /// [`Error::Setting`] for no GPU, more than [`MAX_GPUS`], or workers that do not share the GPUs evenly.
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
