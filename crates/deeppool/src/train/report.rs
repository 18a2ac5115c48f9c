//! The report and the progress events of a training run.

use std::fmt;
use std::time::Duration;

use gpu_mux::Usage;
use layer_engine::KernelPart;
use layer_graph::{ElementwiseLoss, Layer, LayerGraph, LayerKind};
use serde::{Deserialize, Serialize};

use crate::program::RankMemory;
use crate::runtime::ImageOrder;
use crate::timeline::Timeline;

/// Results of a training run. Times are measured while it ran; on emulated GPUs they are virtual.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct TrainReport {
    /// Number of iterations before this run: 0, or those of the checkpoint that it resumed from.
    pub first_iteration: u64,
    /// Whether the run was stopped on request before its last iteration.
    pub is_stopped: bool,
    /// Mean loss over the global batch of each iteration of this run, in order.
    pub losses: Vec<f64>,
    /// Results of the epochs that ended in this run, in order.
    pub epochs: Vec<EpochReport>,
    /// Iteration times of this rank, or, if all ranks are threads, of rank 0. With partial
    /// backpropagation, means over rotations: the iterations until the programs repeat.
    pub iteration_times: IterationTimes,
    /// Foreground samples per second of training, without evaluation and checkpoints.
    pub foreground_samples_per_s: f64,
    /// Background samples per second of training, of all jobs and ranks; 0 without background jobs.
    pub background_samples_per_s: f64,
    /// Results of the background jobs, in the order of the configuration.
    pub background: Vec<BackgroundReport>,
    /// Use of each rank's time by foreground and background tasklets during training, by rank.
    pub usage: Vec<Usage>,
    /// Timeline of the last iterations on all ranks; `None` if it was not requested.
    pub timeline: Option<Timeline>,
    /// Memory of each rank, by rank.
    pub memory: Vec<HeldMemory>,
    /// Kernels for which this rank, or, if all ranks are threads, rank 0, chose among candidates,
    /// in the order of its training steps. Empty on processors.
    pub kernels: Vec<ChosenKernel>,
    /// Order of the elements of images and filters of the foreground on GPUs, with the reason for
    /// it; `None` on processors.
    pub image_order: Option<ImageOrder>,
}

impl TrainReport {
    /// Returns the memory of the rank with the most allocated bytes; `None` without ranks.
    #[must_use]
    pub fn max_memory(&self) -> Option<&HeldMemory> {
        self.memory.iter().max_by_key(|held| held.allocated_bytes)
    }
}

/// Kernel of a training step whose engine chose among candidates.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChosenKernel {
    /// Name of the step, such as `forward conv1`.
    pub step: String,
    /// Parts of the kernel, each with the chosen candidate and the reason.
    pub parts: Vec<KernelPart>,
}

/// Results of a background job. Each rank trained its own copy, or some ranks one job together.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct BackgroundReport {
    /// Name of the network.
    pub network: String,
    /// Name of the job, such as `digits-cnn:64@4`: see
    /// [`BackgroundConfig::label`](super::BackgroundConfig::label).
    pub label: String,
    /// Whether the ranks trained one job together, which has one entry in `iterations` and
    /// `losses`.
    pub is_joint: bool,
    /// Ranks that trained the job or a copy of it, in ascending order.
    pub ranks: Vec<usize>,
    /// Samples per second that all ranks processed together, over the time in which the foreground
    /// trained.
    pub samples_per_s: f64,
    /// Number of completed iterations of each copy, by rank, including those before a checkpoint.
    pub iterations: Vec<u64>,
    /// Mean loss of the last completed batch of each copy, by rank; `None` if none was completed in
    /// this run.
    pub losses: Vec<Option<f64>>,
    /// Mean loss of the global batch of each iteration in this run. Empty for copies.
    pub history: Vec<f64>,
    /// The ranks on which the job failed, with the error message. The foreground continues. Other
    /// ranks of the same job, which ended because of it, are not in the list.
    pub errors: Vec<(usize, String)>,
}

/// Memory of a rank, which is allocated for the whole run. Workspaces of kernels are not included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HeldMemory {
    /// Memory for training by kind, as computed from its program. A plan predicts the same.
    pub training: RankMemory,
    /// Memory for evaluation, as computed from its programs, without the state that training has.
    pub evaluation_bytes: u64,
    /// Memory for background jobs, as computed from their programs.
    pub background_bytes: u64,
    /// Size of all buffers that were allocated, for training, evaluation and background jobs.
    pub allocated_bytes: u64,
}

/// Events of a training run, for progress displays.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Progress {
    /// The configuration is valid, and rank 0 begins to load its programs.
    Started,
    /// A checkpoint is damaged, with the error message. The previous one is used.
    DamagedCheckpoint(String),
    /// Training resumes from a checkpoint after the given number of iterations.
    Resumed(u64),
    /// The run has other settings than the one that wrote the checkpoint. The text names each
    /// setting that differs, such as `learning rate 0.1 -> 0.2`.
    ChangedSettings(String),
    /// An iteration has ended. Reported at the next synchronisation of the ranks.
    Iteration {
        /// Number of the iteration, from 1.
        iteration: u64,
        /// Mean loss over its global batch.
        loss: f64,
    },
    /// Speed since the previous event of this kind, about every half second.
    Speed {
        /// Number of the last completed iteration, from 1.
        iteration: u64,
        /// Foreground samples per second.
        foreground_samples_per_s: f64,
        /// Background samples per second, of all jobs and ranks.
        background_samples_per_s: f64,
    },
    /// An epoch has ended.
    Epoch(EpochReport),
}

/// Results of a network on test samples.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Evaluation {
    /// Mean loss: the weighted sum of those of all loss layers.
    pub loss: f64,
    /// Fraction (0 to 1) of the samples, or of the positions or probabilities of all samples, that
    /// are classified correctly, of the first loss layer that classifies. `None` for mean squared
    /// errors, which classify nothing.
    pub accuracy: Option<f64>,
    /// Results of each loss layer, in the network's order.
    pub of_losses: Vec<LossEvaluation>,
}

/// Results of a loss layer on test samples.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct LossEvaluation {
    /// Name of the loss layer.
    pub layer: String,
    /// Factor of the loss in the sum of losses.
    pub weight: f64,
    /// Mean loss, without the factor.
    pub loss: f64,
    /// Fraction (0 to 1) of correctly classified samples, positions or probabilities. `None` for a
    /// mean squared error.
    pub accuracy: Option<f64>,
}

/// Returns whether results of a network have an accuracy: whether one of its losses classifies.
pub(crate) fn has_accuracy(network: &LayerGraph) -> bool {
    network.losses().any(|loss| classifies(network.layer(loss)))
}

/// Returns whether results of a loss layer have an accuracy.
pub(super) fn classifies(loss: &Layer) -> bool {
    *loss.kind() != LayerKind::ElementwiseLoss(ElementwiseLoss::MeanSquaredError)
}

impl Evaluation {
    /// Returns a number that is higher for better results: the accuracy, or the negative loss.
    #[must_use]
    pub fn score(&self) -> f64 {
        self.accuracy.unwrap_or(-self.loss)
    }
}

impl fmt::Display for Evaluation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "test loss {:.4}", self.loss)?;
        match self.accuracy {
            Some(accuracy) => write!(f, "  test accuracy {:.2}%", accuracy * 100.0),
            None => Ok(()),
        }
    }
}

/// Results of an epoch.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct EpochReport {
    /// Number of the epoch, from 1.
    pub epoch: u64,
    /// Mean training loss over the epoch's iterations in this run.
    pub train_loss: f64,
    /// Results on the test samples at the end of the epoch.
    pub test: Evaluation,
    /// Foreground samples per second of training, without the evaluation.
    pub foreground_samples_per_s: f64,
    /// Background samples per second of the foreground's training, of all jobs and ranks.
    pub background_samples_per_s: f64,
}

/// Distribution of iteration times.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct IterationTimes(Vec<Duration>);

impl IterationTimes {
    /// Creates the distribution of the given times, in any order.
    #[must_use]
    pub fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// Returns the median; zero without times.
    #[must_use]
    pub fn median(&self) -> Duration {
        self.quantile(0.5)
    }

    /// Returns the first and the third quartile by the nearest-rank method; zero without times.
    #[must_use]
    pub fn quartiles(&self) -> (Duration, Duration) {
        (self.quantile(0.25), self.quantile(0.75))
    }

    /// Returns the 99th percentile by the nearest-rank method; zero without times.
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
