//! Configuration of a training run, its background jobs and its checkpoints.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use gpu_mux::Policy;
use layer_engine::{ImageLayout, KernelChoice, Sgd};
use layer_graph::{LayerGraph, LayerId};

use super::{BackgroundConfig, Weights};
use crate::Error;
use crate::batch::check_batch;
use crate::data::Dataset;
use crate::program::{LowerOptions, LoweredTraining, Placement};

/// Configuration of a training run.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TrainConfig<'a> {
    /// The network, its placement (the ranks of each layer), the global batch, and the programs of
    /// the iterations. The options of their lowering include the optimiser.
    pub training: &'a LoweredTraining<'a>,
    /// Data set: training samples, and test samples, which are evaluated at the end of each epoch.
    pub dataset: &'a Dataset,
    /// Length of the whole run. If it resumes from a checkpoint, the iterations before the
    /// checkpoint count.
    pub length: Length,
    /// Learning rate, constant over the run.
    pub learning_rate: f64,
    /// Seed of the random initial parameters, the order of the samples and dropout.
    pub seed: u64,
    /// Whether to shuffle the samples in each epoch; otherwise they keep the order of the data set.
    pub shuffle: bool,
    /// Initial parameters and running statistics; `None` for random parameters.
    pub initial: Option<&'a Weights>,
    /// Number of CPU threads per rank. With one, a rank computes on its own thread. With more, all
    /// ranks of this process share a pool with the sum of their threads, limited to the number of
    /// cores. Ranks on GPUs do not use it.
    pub threads_per_rank: usize,
    /// Number of iterations at the end of the run that the report's
    /// [timeline](super::TrainReport::timeline) covers; 0 for no timeline.
    pub traced_iterations: usize,
    /// Background jobs, which ranks train while their foreground waits.
    pub background: Vec<BackgroundConfig<'a>>,
    /// Configuration of checkpoints; `None` writes none and resumes from none.
    pub checkpoint: Option<CheckpointConfig>,
    /// Policy by which each rank's device is shared between the foreground and background jobs,
    /// and, on GPUs, work is launched.
    pub policy: Policy,
    /// Modelled durations of steps on emulated GPUs; `None` for the durations that the emulator is
    /// set to. The emulator is a library in place of CUDA that computes on the processor in virtual
    /// time. Other devices ignore this field.
    pub emulated_times: Option<&'a EmulatedTimes>,
    /// Rule by which ranks on GPUs choose how to compute convolutions and products; `None` for the
    /// engine's default. Other ranks ignore it.
    pub kernels: Option<KernelChoice>,
    /// Whether ranks on GPUs may use algorithms of libraries whose results differ from run to run
    /// by rounding. Other ranks ignore it.
    pub nondeterministic: bool,
    /// Order of the elements of images and filters on GPUs, of the foreground and background jobs;
    /// `None` for the fastest order of each job, where the precision has tensor cores. The first
    /// rank times the kernels and decides for all: see
    /// [`TrainReport::image_order`](super::TrainReport::image_order). Other ranks ignore it. Files
    /// have the same order in either case.
    pub image_layout: Option<ImageLayout>,
    /// Flag that another thread sets to end the run within about half a second, after a checkpoint
    /// if they are configured; `None` if the run always goes to its end.
    pub stop: Option<&'a AtomicBool>,
}

/// Modelled durations of steps, by which the virtual time of emulated GPUs advances.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EmulatedTimes {
    /// Durations by training program, rank, and step of the rank's program: those of
    /// [`Costs::step_times`](crate::costs::Costs::step_times) for each program. There is one
    /// program, or, with partial backpropagation, one for each iteration until they repeat.
    pub training: Vec<Vec<Vec<Duration>>>,
    /// Durations by background job, in the order of the configuration, and step of its program.
    pub background: Vec<Vec<Duration>>,
}

/// Length of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// Number of epochs, each a pass over the training samples. An incomplete batch at the end of
    /// an epoch is skipped.
    Epochs(u64),
    /// Number of iterations, each with one global batch.
    Iterations(u64),
}

/// Configuration of checkpoints: where and when they are written, and which are kept.
///
/// One run at a time owns the folder, from before its first step to its end, and another run with
/// the same folder fails. A run that was killed on the same host does not hinder the next one.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CheckpointConfig {
    /// Folder with one folder per checkpoint. It is created if it does not exist.
    pub folder: PathBuf,
    /// Interval between checkpoints. One more is written at the end of the run.
    pub every: CheckpointEvery,
    /// Whether to resume from the newest valid checkpoint in the folder, if there is one. If this
    /// is false, the folder must not have checkpoints.
    pub resume: bool,
    /// Whether to take the folder over from another run that owns it. The other run ends with an
    /// error at its next checkpoint, if it is still running.
    pub take_over: bool,
    /// Number of newest checkpoints that are kept; 0 counts as 1. Older ones are removed.
    pub keep: usize,
    /// Whether to write a checkpoint after each epoch with the best test results so far (the
    /// highest accuracy, or the lowest loss if there is none), and to keep the best one in addition
    /// to the newest.
    pub keep_best: bool,
}

impl CheckpointConfig {
    /// Creates a configuration that writes a checkpoint every 30 seconds, keeps the newest two, and
    /// does not resume.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        let every = CheckpointEvery::Time(Duration::from_secs(30));
        Self { folder: folder.into(), every, resume: false, take_over: false, keep: 2, keep_best: false }
    }

    /// Sets the interval between checkpoints.
    #[must_use]
    pub fn with_every(self, every: CheckpointEvery) -> Self {
        Self { every, ..self }
    }

    /// Sets whether to resume from the newest valid checkpoint.
    #[must_use]
    pub fn with_resume(self, resume: bool) -> Self {
        Self { resume, ..self }
    }

    /// Sets whether to take the folder over from another run that owns it.
    #[must_use]
    pub fn with_take_over(self, take_over: bool) -> Self {
        Self { take_over, ..self }
    }

    /// Sets the number of newest checkpoints that are kept.
    #[must_use]
    pub fn with_keep(self, keep: usize) -> Self {
        Self { keep, ..self }
    }

    /// Sets whether the checkpoint with the best test results is written and kept.
    #[must_use]
    pub fn with_keep_best(self, keep_best: bool) -> Self {
        Self { keep_best, ..self }
    }
}

/// Interval between checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointEvery {
    /// Number of iterations, at least 1. A checkpoint is written after each multiple of it.
    Iterations(u64),
    /// Minimum time since the last checkpoint, or since the start of the run. If twenty times the
    /// duration of writing the last checkpoint is longer, that is the minimum.
    Time(Duration),
}

impl<'a> TrainConfig<'a> {
    /// Creates a configuration with five epochs, shuffled samples, learning rate 0.03, seed 0 and
    /// one thread per rank, without background jobs and checkpoints.
    #[must_use]
    pub fn new(dataset: &'a Dataset, training: &'a LoweredTraining<'a>) -> Self {
        Self {
            dataset,
            training,
            length: Length::Epochs(5),
            learning_rate: 0.03,
            seed: 0,
            shuffle: true,
            initial: None,
            threads_per_rank: 1,
            traced_iterations: 0,
            background: Vec::new(),
            checkpoint: None,
            policy: Policy::default(),
            emulated_times: None,
            kernels: None,
            nondeterministic: false,
            image_layout: None,
            stop: None,
        }
    }

    /// Sets the length of the run.
    #[must_use]
    pub fn with_length(self, length: Length) -> Self {
        Self { length, ..self }
    }

    /// Sets the learning rate.
    #[must_use]
    pub fn with_learning_rate(self, learning_rate: f64) -> Self {
        Self { learning_rate, ..self }
    }

    /// Sets the seed.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Sets whether to shuffle the samples in each epoch.
    #[must_use]
    pub fn with_shuffle(self, shuffle: bool) -> Self {
        Self { shuffle, ..self }
    }

    /// Sets the initial weights; `None` for random ones.
    #[must_use]
    pub fn with_initial(self, initial: Option<&'a Weights>) -> Self {
        Self { initial, ..self }
    }

    /// Sets the number of CPU threads per rank.
    #[must_use]
    pub fn with_threads_per_rank(self, threads_per_rank: usize) -> Self {
        Self { threads_per_rank, ..self }
    }

    /// Sets the number of iterations at the end of the run that the timeline covers.
    #[must_use]
    pub fn with_traced_iterations(self, traced_iterations: usize) -> Self {
        Self { traced_iterations, ..self }
    }

    /// Sets the background jobs.
    #[must_use]
    pub fn with_background(self, background: impl IntoIterator<Item = BackgroundConfig<'a>>) -> Self {
        Self { background: background.into_iter().collect(), ..self }
    }

    /// Sets the configuration of checkpoints; `None` for none.
    #[must_use]
    pub fn with_checkpoint(self, checkpoint: Option<CheckpointConfig>) -> Self {
        Self { checkpoint, ..self }
    }

    /// Sets the policy by which devices are shared with background jobs.
    #[must_use]
    pub fn with_policy(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    /// Sets the durations of steps on emulated GPUs; `None` for those that the emulator is set to.
    #[must_use]
    pub fn with_emulated_times(self, times: Option<&'a EmulatedTimes>) -> Self {
        Self { emulated_times: times, ..self }
    }

    /// Sets the rule by which ranks on GPUs choose among kernels; `None` for the engine's default.
    #[must_use]
    pub fn with_kernels(self, kernels: Option<KernelChoice>) -> Self {
        Self { kernels, ..self }
    }

    /// Sets whether ranks on GPUs may use algorithms whose results differ from run to run.
    #[must_use]
    pub fn with_nondeterministic(self, nondeterministic: bool) -> Self {
        Self { nondeterministic, ..self }
    }

    /// Sets the order of the elements of images and filters on GPUs; `None` for the fastest.
    #[must_use]
    pub fn with_image_layout(self, layout: Option<ImageLayout>) -> Self {
        Self { image_layout: layout, ..self }
    }

    /// Sets the flag that ends the run early.
    #[must_use]
    pub fn with_stop(self, stop: &'a AtomicBool) -> Self {
        Self { stop: Some(stop), ..self }
    }

    /// Returns the network of the foreground.
    #[must_use]
    pub fn network(&self) -> &'a LayerGraph {
        self.training.network()
    }

    /// Returns the number of samples of the foreground's global batch.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.training.batch()
    }

    /// Returns the ranks and the order of the foreground's layers.
    #[must_use]
    pub fn placement(&self) -> &'a Placement {
        self.training.placement()
    }

    /// Returns the options with which the foreground's iterations are lowered.
    #[must_use]
    pub fn lowering(&self) -> &'a LowerOptions {
        self.training.options()
    }

    /// Returns the number of iterations of an epoch: training samples / batch, rounded down.
    #[must_use]
    pub fn iterations_per_epoch(&self) -> u64 {
        (self.dataset.train().len() / self.batch().max(1)) as u64
    }

    /// Returns the number of training samples that an epoch leaves out, because they do not fill a
    /// batch.
    #[must_use]
    pub fn left_out_of_epoch(&self) -> usize {
        self.dataset.train().len() % self.batch().max(1)
    }

    /// Returns the number of iterations of the whole run, including those before the checkpoint
    /// that it resumes from.
    #[must_use]
    pub fn iterations(&self) -> u64 {
        match self.length {
            Length::Epochs(epochs) => epochs.saturating_mul(self.iterations_per_epoch()),
            Length::Iterations(iterations) => iterations,
        }
    }

    /// Returns the loss layers that a rank reports: those of which it is the first rank.
    pub(super) fn reported_losses(&self, rank: usize) -> Vec<LayerId> {
        let is_reported = |id: &LayerId| self.placement().ranks(*id).first() == Some(&rank);
        self.network().losses().filter(is_reported).collect()
    }

    /// Returns the background jobs that a rank trains with their indices, in the order of the
    /// configuration.
    pub(super) fn background_of(&self, rank: usize) -> impl Iterator<Item = (usize, &BackgroundConfig<'a>)> {
        self.background.iter().enumerate().filter(move |(_, job)| job.place_of(rank).is_some())
    }

    /// Checks the settings, and that the data sets and the initial weights fit the networks.
    ///
    /// # Errors
    /// [`Error::EmptyBatch`], [`Error::MoreRanksThanSamples`], [`Error::Setting`] with the first
    /// setting that is out of range, or the error of the data set or the weights.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.image_layout == Some(ImageLayout::ChannelsLast) && self.placement().is_split() {
            return Err(Error::Setting {
                setting: "the order of images",
                expected: "channels first in a plan with split layers",
                got: "channels last".into(),
            });
        }
        check_batch(self.batch())?;
        let ranges = self.network().layers().map(|(id, _)| self.placement().sample_ranges(id));
        let ranks = ranges.max().unwrap_or(0);
        if ranks > self.batch() {
            return Err(Error::MoreRanksThanSamples { ranks, batch: self.batch() });
        }
        let Sgd { momentum, weight_decay, clip_norm } = self.lowering().optimizer;
        let positive = |value: f64| value > 0.0 && value.is_finite();
        let every = self.checkpoint.as_ref().map(|checkpoint| checkpoint.every);
        let (Length::Epochs(length) | Length::Iterations(length)) = self.length;
        let settings = [
            ("the number of epochs or iterations", "at least 1", length > 0, length.to_string()),
            ("the learning rate", "above 0", positive(self.learning_rate), self.learning_rate.to_string()),
            ("the threads of a rank", "at least 1", self.threads_per_rank > 0, "0".into()),
            ("the momentum", "in 0..1", (0.0..1.0).contains(&momentum), momentum.to_string()),
            (
                "the weight decay",
                "at least 0",
                weight_decay == 0.0 || positive(weight_decay),
                weight_decay.to_string(),
            ),
            (
                "the norm to clip to",
                "above 0",
                clip_norm.is_none_or(positive),
                clip_norm.map_or_else(String::new, |norm| norm.to_string()),
            ),
            (
                "the iterations between checkpoints",
                "at least 1",
                every != Some(CheckpointEvery::Iterations(0)),
                "0".into(),
            ),
        ];
        if let Some((setting, expected, _, got)) = settings.into_iter().find(|(_, _, fits, _)| !fits) {
            return Err(Error::Setting { setting, expected, got });
        }
        check_data(self.network(), self.dataset, self.batch())?;
        self.initial.map_or(Ok(()), |weights| weights.check(self.network()))?;
        self.background.iter().try_for_each(|job| {
            job.check(self.placement().world())?;
            check_data(job.network, job.dataset, job.batch)
        })
    }
}

/// Checks that a data set has samples of the network's shape, and at least a batch of them.
fn check_data(network: &LayerGraph, dataset: &Dataset, batch: usize) -> Result<(), Error> {
    dataset.fits(network)?;
    Ok(dataset.check_batch(batch)?)
}
