use std::time::Duration;

use gpu_mux::Usage;
use serde::{Deserialize, Serialize};

use crate::program::RankMemory;
use crate::timeline::Timeline;

/// How a training run went. All times are measured on this machine.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct TrainReport {
    /// The iteration that the run began with: 0, or where a checkpoint left off.
    pub first_iteration: u64,
    /// Whether it was stopped before its end.
    pub is_stopped: bool,
    /// The mean loss of each iteration's global batch.
    pub losses: Vec<f64>,
    /// Each epoch that ended in this run.
    pub epochs: Vec<EpochReport>,
    /// How long iterations took on this rank; on threads, on rank 0. With partial backpropagation, the means of as many as differ.
    pub iteration_times: IterationTimes,
    /// Foreground samples by second of training; evaluation and checkpoints are not counted.
    pub foreground_samples_per_s: f64,
    /// Background samples by second of training, of all jobs and ranks together.
    pub background_samples_per_s: f64,
    /// The background jobs, as they were configured.
    pub background: Vec<BackgroundReport>,
    /// By rank: where its time went while training.
    pub usage: Vec<Usage>,
    /// When the steps of the last iterations ran, if that was asked for.
    pub timeline: Option<Timeline>,
    /// By rank: what it held.
    pub memory: Vec<HeldMemory>,
}

impl TrainReport {
    /// What the rank held that held most.
    #[must_use]
    pub fn fullest(&self) -> Option<&HeldMemory> {
        self.memory.iter().max_by_key(|held| held.allocated_bytes)
    }
}

/// How a background job went: each rank trained a copy of its own.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct BackgroundReport {
    /// Its network's name.
    pub network: String,
    /// Its samples by second of training, of all ranks together.
    pub samples_per_s: f64,
    /// By rank: iterations that its copy has done, those before a checkpoint included.
    pub iterations: Vec<u64>,
    /// By rank: the mean loss of its copy's last batch in this run, if one has ended.
    pub losses: Vec<Option<f64>>,
    /// The ranks whose copy failed, and why. The foreground does not feel it.
    pub errors: Vec<(usize, String)>,
}

/// What a rank held in a training run: all of it for the whole run. What kernels allocate for themselves is not in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HeldMemory {
    /// For training, as its program says: what a plan predicts.
    pub training: RankMemory,
    /// For evaluation, as its programs say, beside the state that they share with training.
    pub evaluation_bytes: u64,
    /// For the background jobs, as their programs say.
    pub background_bytes: u64,
    /// The buffers that were allocated for all of these.
    pub allocated_bytes: u64,
}

/// What happens while training goes on, for whoever shows it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Progress {
    /// Everything that was asked for is in order: training begins.
    Started,
    /// A checkpoint is damaged, as this says, and the one before is taken.
    DamagedCheckpoint(String),
    /// Training goes on from a checkpoint, after this many iterations.
    Resumed(u64),
    /// An iteration is over.
    Iteration {
        /// Its number, from 1.
        iteration: u64,
        /// The mean loss of its batch.
        loss: f64,
    },
    /// How fast training was lately; about every half second.
    Speed {
        /// Up to this iteration, from 1.
        iteration: u64,
        /// Foreground samples by second.
        foreground_samples_per_s: f64,
        /// Background samples by second, of all ranks together.
        background_samples_per_s: f64,
    },
    /// An epoch is over.
    Epoch(EpochReport),
}

/// An epoch of training.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct EpochReport {
    /// Its number, from 1.
    pub epoch: u64,
    /// The mean loss over the epoch's iterations in this run.
    pub train_loss: f64,
    /// The part of the held-out samples that are classified right at its end.
    pub test_accuracy: f64,
    /// Foreground samples by second.
    pub foreground_samples_per_s: f64,
    /// Background samples by second, of all ranks together.
    pub background_samples_per_s: f64,
}

/// How long iterations took, one entry each.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct IterationTimes(Vec<Duration>);

impl IterationTimes {
    /// Sorts the times of some iterations.
    #[must_use]
    pub fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// The time that half of the iterations stay below; zero when there are none.
    #[must_use]
    pub fn median(&self) -> Duration {
        self.quantile(0.5)
    }

    /// The time that 99% of the iterations stay below; zero when there are none.
    #[must_use]
    pub fn p99(&self) -> Duration {
        self.quantile(0.99)
    }

    /// The nearest-rank quantile.
    fn quantile(&self, fraction: f64) -> Duration {
        let rank = (fraction * self.0.len() as f64).ceil() as usize;
        self.0.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }
}
