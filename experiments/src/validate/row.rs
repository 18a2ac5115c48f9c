//! Rows of the results.

use crate::machine::Machine;
use serde::{Deserialize, Serialize};

/// Mode of training.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum TrainingMode {
    /// Data parallelism.
    #[serde(rename = "dp")]
    DataParallel,
    /// A burst plan.
    #[serde(rename = "bp")]
    Burst,
    /// Data parallelism, with a background job on each rank.
    #[serde(rename = "dp+col")]
    DataParallelCollocated,
    /// A burst plan, with a background job on each rank.
    #[serde(rename = "bp+col")]
    BurstCollocated,
}

impl TrainingMode {
    /// All modes, in the order in which they take turns.
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

/// A plan on a machine: a line of the table, a record of the CSV file and an entry of the report.
/// The time of a run is the median of its iterations; measured figures are medians over the runs
/// unless stated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ValidateRow {
    /// Number of the run: 0 for this one, and from 1 for the files of earlier ones.
    #[serde(skip)]
    pub(super) run: usize,
    /// Model of the processor, number of its cores and version of this program.
    pub(super) machine: String,
    pub(super) cores: usize,
    pub(super) commit: String,
    pub(super) model: String,
    /// Samples of the global batch.
    pub(super) batch: usize,
    /// Number of ranks, each a thread.
    pub(super) gpus: usize,
    pub(super) mode: TrainingMode,
    /// Layers by number of ranks, such as `2x20 1x5`.
    pub(super) gpu_counts: String,
    /// Amplification limit of the burst plan.
    pub(super) amplification_limit: Option<f64>,
    /// Planned active time of all ranks divided by the iteration time on one.
    pub(super) amplification: f64,
    /// Iteration time by the planner's evaluation, which does not model background work.
    pub(super) planned_iteration_us: Option<f64>,
    /// Simulated iteration time.
    pub(super) predicted_iteration_us: f64,
    pub(super) measured_iteration_us: f64,
    /// Shortest and longest run.
    pub(super) measured_min_us: f64,
    pub(super) measured_max_us: f64,
    /// Simulated divided by measured time.
    pub(super) predicted_over_measured: f64,
    /// Background throughput of all ranks together, simulated and measured.
    pub(super) predicted_background_samples_per_s: f64,
    pub(super) background_samples_per_s: f64,
    /// Measured: equal to `measured_iteration_us`, the batch divided by it, and it divided by that
    /// without background.
    pub(super) iteration_us: f64,
    pub(super) foreground_samples_per_s: f64,
    pub(super) foreground_slowdown: f64,
    pub(super) runs: usize,
    /// Number of iterations of a run.
    pub(super) iterations: usize,
}

impl ValidateRow {
    /// Returns the difference between the longest and the shortest run, in microseconds.
    pub(super) fn spread_us(&self) -> f64 {
        self.measured_max_us - self.measured_min_us
    }

    /// Returns the run, and a description of the machine with the version of this program.
    pub(super) fn place(&self) -> (usize, String) {
        let (processor, commit) = (self.machine.clone(), self.commit.clone());
        (self.run, Machine { processor, cores: self.cores, commit }.to_string())
    }

    /// Returns the key of the network: model, batch and number of ranks.
    pub(super) fn network(&self) -> (&str, usize, usize) {
        (&self.model, self.batch, self.gpus)
    }
}
