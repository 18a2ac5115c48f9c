//! Rows of the results of the experiment `validate`: one plan on one machine each.

use crate::machine::Machine;
use serde::{Deserialize, Serialize};

/// Way to use the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum TrainingMode {
    /// Data parallelism, without background jobs.
    #[serde(rename = "dp")]
    DataParallel,
    /// A burst plan, without background jobs.
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

    /// Returns the name in tables, such as `BP+Col`.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::DataParallel => "DP",
            Self::Burst => "BP",
            Self::DataParallelCollocated => "DP+Col",
            Self::BurstCollocated => "BP+Col",
        }
    }

    /// Returns whether the foreground has a burst plan.
    pub(super) fn is_burst(self) -> bool {
        matches!(self, Self::Burst | Self::BurstCollocated)
    }

    /// Returns whether each rank has a background job.
    pub(super) fn has_background(self) -> bool {
        matches!(self, Self::DataParallelCollocated | Self::BurstCollocated)
    }
}

/// A plan on a machine: a line of the table, a record of the CSV file and an entry of the report.
/// The time of a run is the median of its iterations; measured values are medians over the runs
/// unless stated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ValidateRow {
    /// Number of the invocation of this experiment: 0 for the current one, and from 1 for the files
    /// of earlier ones. It is not the number of one of the `runs` of a plan.
    #[serde(skip)]
    pub(super) run: usize,
    /// Model name of the processor.
    pub(super) machine: String,
    /// Number of cores that the process could use.
    pub(super) cores: usize,
    /// Git commit of the sources, with `-dirty` if they were modified; `unknown` outside a clone.
    pub(super) commit: String,
    /// Name of the network.
    pub(super) model: String,
    /// Samples of the global batch.
    pub(super) batch: usize,
    /// Number of ranks, each a thread.
    pub(super) gpus: usize,
    /// Way to use the ranks.
    pub(super) mode: TrainingMode,
    /// Numbers of ranks of the layers in topological order, as runs such as `2x20 1x5`: 20 layers
    /// on 2 ranks, then 5 on 1.
    pub(super) gpu_counts: String,
    /// Amplification limit of the burst plan. `None` for data parallelism.
    pub(super) amplification_limit: Option<f64>,
    /// Amplification of the plan.
    pub(super) amplification: f64,
    /// Iteration time by the planner's evaluation in microseconds. `None` with background jobs,
    /// which it does not model.
    pub(super) planned_iteration_us: Option<f64>,
    /// Simulated iteration time in microseconds.
    pub(super) predicted_iteration_us: f64,
    /// Measured iteration time in microseconds.
    pub(super) measured_iteration_us: f64,
    /// Iteration time of the fastest run in microseconds.
    pub(super) measured_min_us: f64,
    /// Iteration time of the slowest run in microseconds.
    pub(super) measured_max_us: f64,
    /// Simulated divided by measured iteration time.
    pub(super) predicted_over_measured: f64,
    /// Simulated background throughput of all ranks together, in samples/s.
    pub(super) predicted_background_samples_per_s: f64,
    /// Measured background throughput of all ranks together, in samples/s.
    pub(super) background_samples_per_s: f64,
    /// Measured iteration time in microseconds, under the name that all experiments use.
    pub(super) iteration_us: f64,
    /// Measured foreground throughput in samples/s.
    pub(super) foreground_samples_per_s: f64,
    /// Measured iteration time divided by that of the same plan without background jobs.
    pub(super) foreground_slowdown: f64,
    /// Number of runs of the plan.
    pub(super) runs: usize,
    /// Number of iterations of a run.
    pub(super) iterations: usize,
}

impl ValidateRow {
    /// Returns the difference between the longest and the shortest run, in microseconds.
    pub(super) fn spread_us(&self) -> f64 {
        self.measured_max_us - self.measured_min_us
    }

    /// Returns the number of the invocation, and a description of the machine with the commit.
    pub(super) fn run_and_machine(&self) -> (usize, String) {
        let (processor, commit) = (self.machine.clone(), self.commit.clone());
        (self.run, Machine { processor, cores: self.cores, commit }.to_string())
    }

    /// Returns the key of the network: model, batch and number of ranks.
    pub(super) fn network(&self) -> (&str, usize, usize) {
        (&self.model, self.batch, self.gpus)
    }
}
