//! What stands side by side.

use crate::machine::Machine;
use serde::{Deserialize, Serialize};

/// How a network was trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Mode {
    /// Data parallelism.
    #[serde(rename = "dp")]
    DataParallel,
    /// A burst plan.
    #[serde(rename = "bp")]
    Burst,
    /// Data parallelism, and a background job on each rank.
    #[serde(rename = "dp+col")]
    DataParallelCollocated,
    /// A burst plan, and a background job on each rank.
    #[serde(rename = "bp+col")]
    BurstCollocated,
}

impl Mode {
    /// In the order in which they take turns.
    pub(super) const ALL: [Self; 4] =
        [Self::DataParallel, Self::Burst, Self::DataParallelCollocated, Self::BurstCollocated];

    pub(super) fn label(self) -> &'static str {
        match self {
            Self::DataParallel => "DP",
            Self::Burst => "BP",
            Self::DataParallelCollocated => "DP+Col",
            Self::BurstCollocated => "BP+Col",
        }
    }

    pub(super) fn is_burst(self) -> bool {
        matches!(self, Self::Burst | Self::BurstCollocated)
    }

    pub(super) fn has_background(self) -> bool {
        matches!(self, Self::DataParallelCollocated | Self::BurstCollocated)
    }
}

/// A plan on a machine: a line of the table, a record of the CSV, an entry of the report. A run's time is the median of its iterations;
/// what is measured is the median of several runs, unless it says otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    /// The run that it is of: 0 for this one, and from 1 the files of earlier ones.
    #[serde(skip)]
    pub(super) run: usize,
    /// The processor's model, how many of its cores there were, and the version of this program.
    pub(super) machine: String,
    pub(super) cores: usize,
    pub(super) commit: String,
    pub(super) model: String,
    /// Samples of the global batch.
    pub(super) batch: usize,
    /// Ranks, each a thread.
    pub(super) gpus: usize,
    pub(super) mode: Mode,
    /// Runs of layers by the number of their ranks, `2x20 1x5`.
    pub(super) gpu_counts: String,
    /// What the burst plan may have.
    pub(super) amplification_limit: Option<f64>,
    /// Active time of all ranks over the iteration time on one, as planned.
    pub(super) amplification: f64,
    /// By the planner's evaluation, which knows of no background.
    pub(super) planned_iteration_us: Option<f64>,
    /// Simulated.
    pub(super) predicted_iteration_us: f64,
    pub(super) measured_iteration_us: f64,
    /// The shortest and the longest run.
    pub(super) measured_min_us: f64,
    pub(super) measured_max_us: f64,
    /// Simulated over measured.
    pub(super) predicted_over_measured: f64,
    /// Of all ranks together: simulated, and measured.
    pub(super) predicted_background_samples_per_s: f64,
    pub(super) background_samples_per_s: f64,
    /// Measured: the same as `measured_iteration_us`, the batch over it, and it over that without background.
    pub(super) iteration_us: f64,
    pub(super) foreground_samples_per_s: f64,
    pub(super) foreground_slowdown: f64,
    pub(super) runs: usize,
    /// Iterations of a run.
    pub(super) iterations: usize,
}

impl Row {
    /// How far the runs are apart, microseconds.
    pub(super) fn spread_us(&self) -> f64 {
        self.measured_max_us - self.measured_min_us
    }

    /// The run that it is of, and the machine with the version of this program in words.
    pub(super) fn place(&self) -> (usize, String) {
        let (processor, commit) = (self.machine.clone(), self.commit.clone());
        (self.run, Machine { processor, cores: self.cores, commit }.to_string())
    }

    /// What tells the rows of one network from those of others.
    pub(super) fn network(&self) -> (&str, usize, usize) {
        (&self.model, self.batch, self.gpus)
    }
}
