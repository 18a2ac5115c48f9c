use std::time::Duration;

use gpu_mux::Usage;
use serde::{Deserialize, Serialize};

use crate::program::RankMemory;
use crate::timeline::Timeline;

/// Results of a training run. All times are measured on this machine.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct TrainReport {
    /// First iteration of the run: 0, or that of the checkpoint.
    pub first_iteration: u64,
    /// Whether the run was stopped before its end.
    pub is_stopped: bool,
    /// Mean loss of the global batch of each iteration.
    pub losses: Vec<f64>,
    /// The epochs that ended in this run.
    pub epochs: Vec<EpochReport>,
    /// Iteration times of this rank, or, with threads, of rank 0. With partial backpropagation,
    /// means over rotations.
    pub iteration_times: IterationTimes,
    /// Foreground samples per second of training, without evaluation and checkpoints.
    pub foreground_samples_per_s: f64,
    /// Background samples per second of training, of all jobs and ranks.
    pub background_samples_per_s: f64,
    /// The background jobs, in the order of the configuration.
    pub background: Vec<BackgroundReport>,
    /// Usage of each rank's time during training.
    pub usage: Vec<Usage>,
    /// Timeline of the last iterations, if it was requested.
    pub timeline: Option<Timeline>,
    /// Memory of each rank.
    pub memory: Vec<HeldMemory>,
}

impl TrainReport {
    /// Returns the memory of the fullest rank.
    #[must_use]
    pub fn fullest(&self) -> Option<&HeldMemory> {
        self.memory.iter().max_by_key(|held| held.allocated_bytes)
    }
}

/// Results of a background job, of which each rank trained its own copy.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct BackgroundReport {
    /// Name of its network.
    pub network: String,
    /// Samples per second of training, of all ranks.
    pub samples_per_s: f64,
    /// Number of completed iterations of each rank's copy, including those before a checkpoint.
    pub iterations: Vec<u64>,
    /// Mean loss of the last batch of each rank's copy in this run, if one has ended.
    pub losses: Vec<Option<f64>>,
    /// The ranks whose copy failed, with the error. The foreground continues.
    pub errors: Vec<(usize, String)>,
}

/// Memory of a rank during a training run, which is allocated for the whole run. Workspaces of
/// kernels are not included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HeldMemory {
    /// Memory for training, by its program, which is also predicted by a plan.
    pub training: RankMemory,
    /// Memory for evaluation, by its programs, besides the state shared with training.
    pub evaluation_bytes: u64,
    /// Memory for background jobs, by their programs.
    pub background_bytes: u64,
    /// Size of all allocated buffers.
    pub allocated_bytes: u64,
}

/// Events of a training run, for progress displays.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Progress {
    /// The configuration is valid, and training begins.
    Started,
    /// A checkpoint is damaged, with the error. The previous one is used.
    DamagedCheckpoint(String),
    /// Training resumes from a checkpoint after the given number of iterations.
    Resumed(u64),
    /// An iteration has ended.
    Iteration {
        /// Number of the iteration, from 1.
        iteration: u64,
        /// Mean loss of its batch.
        loss: f64,
    },
    /// Recent speed, about every half second.
    Speed {
        /// Number of the last iteration, from 1.
        iteration: u64,
        /// Foreground samples per second.
        foreground_samples_per_s: f64,
        /// Background samples per second, of all ranks.
        background_samples_per_s: f64,
    },
    /// An epoch has ended.
    Epoch(EpochReport),
}

/// Results of an epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct EpochReport {
    /// Number of the epoch, from 1.
    pub epoch: u64,
    /// Mean loss over the epoch's iterations in this run.
    pub train_loss: f64,
    /// Fraction of held-out samples that are classified correctly at its end.
    pub test_accuracy: f64,
    /// Foreground samples per second.
    pub foreground_samples_per_s: f64,
    /// Background samples per second, of all ranks.
    pub background_samples_per_s: f64,
}

/// Iteration times, sorted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct IterationTimes(Vec<Duration>);

impl IterationTimes {
    /// Sorts iteration times.
    #[must_use]
    pub fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// Returns the median; zero without iterations.
    #[must_use]
    pub fn median(&self) -> Duration {
        self.quantile(0.5)
    }

    /// Returns the 99th percentile; zero without iterations.
    #[must_use]
    pub fn p99(&self) -> Duration {
        self.quantile(0.99)
    }

    /// Returns a quantile by the nearest-rank method.
    fn quantile(&self, fraction: f64) -> Duration {
        let rank = (fraction * self.0.len() as f64).ceil() as usize;
        self.0.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }
}
