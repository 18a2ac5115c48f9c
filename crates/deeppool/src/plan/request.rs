use burst_planner::Stop;

use super::{GpuCounts, PlanMode};
use crate::Error;

/// With how many GPUs plans are made at most.
pub const MOST_GPUS: usize = 16_384;

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

/// A question to [`Job::plan`](crate::job::Job::plan).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PlanRequest {
    /// How many GPUs there are, at most [`MOST_GPUS`].
    pub gpus: usize,
    /// Which plan is asked for.
    pub mode: Mode,
    /// On how many GPUs a layer of a burst plan may run.
    pub gpu_counts: GpuCounts,
    /// How long to search, as a multiple of the usual effort.
    pub effort: f64,
    /// What each rank may hold, bytes; `None` is as much as there is. Plans that need more are not found.
    pub memory_limit_bytes: Option<u64>,
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

    /// Sets what ends the search early.
    #[must_use]
    pub fn with_stop(self, stop: Stop) -> Self {
        Self { stop, ..self }
    }

    /// Checks that it is in proportion, before anything is made that grows with the number of GPUs.
    ///
    /// # Errors
    /// [`Error::Setting`] for no GPU, or more than [`MOST_GPUS`].
    pub fn check(&self) -> Result<(), Error> {
        if (1..=MOST_GPUS).contains(&self.gpus) {
            return Ok(());
        }
        let (setting, expected) = ("the number of GPUs of a plan", "from 1 to 16384");
        Err(Error::Setting { setting, expected, got: self.gpus.to_string() })
    }
}
