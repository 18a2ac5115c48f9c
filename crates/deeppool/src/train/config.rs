use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use gpu_mux::Policy;
use layer_engine::Sgd;
use layer_graph::LayerGraph;

use super::Weights;
use crate::Error;
use crate::data::Dataset;
use crate::program::{LowerOptions, LoweredTraining, Placement};

/// What is trained, on what, and how.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TrainConfig<'a> {
    /// The network, the ranks of its layers, the batch, and the programs of the iterations; the optimiser's rule is in the options of these.
    pub training: &'a LoweredTraining<'a>,
    /// The network's data.
    pub dataset: &'a Dataset,
    /// For how long.
    pub length: Length,
    /// The learning rate.
    pub learning_rate: f64,
    /// Seed of the parameters, the order of the samples and dropout.
    pub seed: u64,
    /// Whether the samples are put into another order for each epoch; else they are read as they lie in the data set.
    pub shuffle: bool,
    /// What the network begins with, instead of parameters drawn by the seed.
    pub initial: Option<&'a Weights>,
    /// Threads that a rank may compute with. With one, a rank computes on its own thread; with more, all ranks share a pool
    /// of as many threads as they may use together, and no more than the machine has.
    pub threads_per_rank: usize,
    /// Of how many iterations, the last ones, the report has a [timeline](super::TrainReport::timeline); of none, usually.
    pub traced_iterations: usize,
    /// Jobs that every rank trains by itself in its gaps.
    pub background: Vec<BackgroundConfig<'a>>,
    /// Where the foreground's state is kept.
    pub checkpoint: Option<CheckpointConfig>,
    /// How a rank's device is shared with its background jobs, and on GPUs how work is launched.
    pub policy: Policy,
    /// How long steps take on emulated GPUs: without it, what the emulated driver's settings say.
    pub emulated_times: Option<&'a EmulatedTimes>,
    /// Once this is true, the run ends within about half a second, with a checkpoint where it keeps any.
    pub stop: Option<&'a AtomicBool>,
}

/// How long steps take by a model: what emulated GPUs take for them, in virtual time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EmulatedTimes {
    /// By iteration, until they come again, as [`Costs::step_times`](crate::costs::Costs::step_times) gives them for each training program:
    /// by rank and step.
    pub training: Vec<Vec<Vec<Duration>>>,
    /// By background job and step of its program.
    pub background: Vec<Vec<Duration>>,
}

/// How long a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// Rounds over the training samples; what does not fill a batch at the end of a round is left out of it.
    Epochs(u64),
    /// Iterations.
    Iterations(u64),
}

/// A background job: each rank trains a copy of its own, on one device, with nobody else. It has no end.
///
/// Checkpoints have the state of each copy, at the end of the iteration that it was amid, and a rank goes on from its own: with more
/// ranks than before, the others begin with copies of theirs. A job of another network than the one in the checkpoint begins anew.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BackgroundConfig<'a> {
    /// The network.
    pub network: &'a LayerGraph,
    /// Its data.
    pub dataset: &'a Dataset,
    /// Samples of its batch.
    pub batch: usize,
    /// Into how many micro-batches its batch is cut, from 1 to its samples: the foreground waits for one step of
    /// one layer at most, of one micro-batch or of the optimiser. See [`MicroBatches`](super::MicroBatches).
    pub micro_batches: usize,
    /// Its part of the time that the background gets: jobs share in proportion to their weights.
    pub weight: NonZeroU32,
}

impl<'a> BackgroundConfig<'a> {
    /// A job of weight 1 whose batch is not cut.
    #[must_use]
    pub fn new(network: &'a LayerGraph, dataset: &'a Dataset, batch: usize) -> Self {
        Self { network, dataset, batch, micro_batches: 1, weight: NonZeroU32::MIN }
    }

    /// This job with its batch cut into so many micro-batches.
    #[must_use]
    pub fn with_micro_batches(self, micro_batches: usize) -> Self {
        Self { micro_batches, ..self }
    }

    /// This job with another weight.
    #[must_use]
    pub fn with_weight(self, weight: NonZeroU32) -> Self {
        Self { weight, ..self }
    }
}

/// Where and when checkpoints are written.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CheckpointConfig {
    /// The folder; made when it does not exist.
    pub folder: PathBuf,
    /// When there is one, beside that at the end.
    pub every: CheckpointEvery,
    /// Whether to go on from the newest checkpoint in the folder that is whole, if there is one.
    pub resume: bool,
    /// How many of the newest checkpoints are kept, at least one: a damaged one is made up for by the one before.
    pub keep: usize,
    /// Whether there is one after each epoch with a higher test accuracy than all before, and the best of them is kept, too.
    pub keep_best: bool,
}

impl CheckpointConfig {
    /// Checkpoints in this folder every half minute, of which the newest two are kept; a run begins anew.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        let every = CheckpointEvery::Time(Duration::from_secs(30));
        Self { folder: folder.into(), every, resume: false, keep: 2, keep_best: false }
    }

    /// This with checkpoints at other times.
    #[must_use]
    pub fn with_every(self, every: CheckpointEvery) -> Self {
        Self { every, ..self }
    }

    /// This going on from the newest checkpoint, or beginning anew.
    #[must_use]
    pub fn with_resume(self, resume: bool) -> Self {
        Self { resume, ..self }
    }

    /// This with so many of the newest checkpoints kept.
    #[must_use]
    pub fn with_keep(self, keep: usize) -> Self {
        Self { keep, ..self }
    }

    /// This with the best checkpoint kept, too, or not.
    #[must_use]
    pub fn with_keep_best(self, keep_best: bool) -> Self {
        Self { keep_best, ..self }
    }
}

/// When checkpoints are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointEvery {
    /// After so many iterations, at least one.
    Iterations(u64),
    /// After so long, or twenty times what the last one took to write, whichever is longer.
    Time(Duration),
}

impl<'a> TrainConfig<'a> {
    /// Five epochs with learning rate 0.03 and seed 0, on one thread a rank, with plain SGD, and without background jobs or checkpoints.
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
            stop: None,
        }
    }

    /// Sets for how long to train.
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

    /// Sets whether the samples are put into another order for each epoch.
    #[must_use]
    pub fn with_shuffle(self, shuffle: bool) -> Self {
        Self { shuffle, ..self }
    }

    /// Sets what the network begins with.
    #[must_use]
    pub fn with_initial(self, initial: Option<&'a Weights>) -> Self {
        Self { initial, ..self }
    }

    /// Sets the threads that a rank may compute with.
    #[must_use]
    pub fn with_threads_per_rank(self, threads_per_rank: usize) -> Self {
        Self { threads_per_rank, ..self }
    }

    /// Sets of how many iterations there is a timeline.
    #[must_use]
    pub fn with_traced_iterations(self, traced_iterations: usize) -> Self {
        Self { traced_iterations, ..self }
    }

    /// Sets the background jobs.
    #[must_use]
    pub fn with_background(self, background: impl IntoIterator<Item = BackgroundConfig<'a>>) -> Self {
        Self { background: background.into_iter().collect(), ..self }
    }

    /// Sets where the state is kept.
    #[must_use]
    pub fn with_checkpoint(self, checkpoint: Option<CheckpointConfig>) -> Self {
        Self { checkpoint, ..self }
    }

    /// Sets how a rank's device is shared.
    #[must_use]
    pub fn with_policy(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    /// Sets how long steps take on emulated GPUs.
    #[must_use]
    pub fn with_emulated_times(self, times: Option<&'a EmulatedTimes>) -> Self {
        Self { emulated_times: times, ..self }
    }

    /// Sets what ends the run early.
    #[must_use]
    pub fn with_stop(self, stop: &'a AtomicBool) -> Self {
        Self { stop: Some(stop), ..self }
    }

    /// The network.
    #[must_use]
    pub fn network(&self) -> &'a LayerGraph {
        self.training.network()
    }

    /// Number of samples of the global batch.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.training.batch()
    }

    /// The ranks and the order of the layers.
    #[must_use]
    pub fn placement(&self) -> &'a Placement {
        self.training.placement()
    }

    /// The options with which iterations are lowered.
    #[must_use]
    pub fn lowering(&self) -> &'a LowerOptions {
        self.training.options()
    }

    /// Iterations of an epoch.
    #[must_use]
    pub fn iterations_per_epoch(&self) -> u64 {
        (self.dataset.train().len() / self.batch().max(1)) as u64
    }

    /// Iterations of the whole run.
    #[must_use]
    pub fn iterations(&self) -> u64 {
        match self.length {
            Length::Epochs(epochs) => epochs.saturating_mul(self.iterations_per_epoch()),
            Length::Iterations(iterations) => iterations,
        }
    }

    /// The rank that knows the loss and reports it.
    pub(super) fn reporter(&self) -> usize {
        let loss = self.network().layers().map(|(id, _)| id).next_back();
        loss.and_then(|id| self.placement().ranks(id).first().copied()).unwrap_or(0)
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        if self.batch() == 0 {
            return Err(Error::EmptyBatch);
        }
        if self.placement().world() > self.batch() {
            return Err(Error::MoreRanksThanSamples { ranks: self.placement().world(), batch: self.batch() });
        }
        let Sgd { momentum, weight_decay, clip_norm } = self.lowering().optimizer;
        let positive = |value: f64| value > 0.0 && value.is_finite();
        let every = self.checkpoint.as_ref().map(|checkpoint| checkpoint.every);
        let (Length::Epochs(length) | Length::Iterations(length)) = self.length;
        let is_empty = |job: &BackgroundConfig<'_>| job.batch == 0;
        let is_cut = |job: &BackgroundConfig<'_>| (1..=job.batch).contains(&job.micro_batches);
        let uncut = self.background.iter().find(|job| !is_cut(job)).map(|job| job.micro_batches);
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
            (
                "the batch of a background job",
                "at least 1",
                !self.background.iter().any(is_empty),
                "0".into(),
            ),
            (
                "the micro-batches of a background job",
                "from 1 to the samples of its batch",
                uncut.is_none(),
                uncut.unwrap_or_default().to_string(),
            ),
        ];
        if let Some((setting, expected, _, got)) = settings.into_iter().find(|(_, _, fits, _)| !fits) {
            return Err(Error::Setting { setting, expected, got });
        }
        check_data(self.network(), self.dataset, self.batch())?;
        self.initial.map_or(Ok(()), |weights| weights.check(self.network()))?;
        self.background.iter().try_for_each(|job| check_data(job.network, job.dataset, job.batch))
    }
}

fn check_data(network: &LayerGraph, dataset: &Dataset, batch: usize) -> Result<(), Error> {
    dataset.fits(network)?;
    Ok(dataset.check_batch(batch)?)
}
