//! Configuration of a background job.

use std::num::NonZeroU32;

use layer_graph::LayerGraph;

use super::JobRanks;
use crate::Error;
use crate::data::Dataset;
use crate::program::{LowerOptions, Placement, Program, lower_training};

/// A background job, which runs until the end of the foreground's training. Each rank trains a
/// separate copy on its device, or [some ranks](Self::with_ranks) train one job together.
///
/// Checkpoints have the state of each copy at the end of its current iteration, and a rank resumes
/// from its own copy. With more ranks than before, the new ranks resume from copies of the others.
/// A job of several ranks has one state, from which it also resumes on another number of ranks. A
/// job of another network than that of the checkpoint starts from the beginning.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BackgroundConfig<'a> {
    /// Network that the job trains.
    pub network: &'a LayerGraph,
    /// Data set, of which only the training samples are used.
    pub dataset: &'a Dataset,
    /// Number of samples of an iteration: of each copy, or of the global batch of one job.
    pub batch: usize,
    /// Number of micro-batches of an iteration, from 1 to `batch`. The foreground waits for at most
    /// one step of one layer: of one micro-batch, or of the optimiser. See
    /// [`MicroBatches`](super::MicroBatches).
    pub micro_batches: usize,
    /// Weight of the job. The jobs of a rank share its background time in proportion to their
    /// weights.
    pub weight: NonZeroU32,
    /// Ranks that train the job together; `None` for a copy on each rank.
    pub ranks: Option<JobRanks>,
    /// Seed of the random initial parameters, the order of the samples and dropout of a job with
    /// `ranks`; `None` for the seed of the run plus the job's position, from 1. Copies begin with
    /// the parameters of the run's seed, and take the other seeds by rank.
    pub seed: Option<u64>,
}

impl<'a> BackgroundConfig<'a> {
    /// Creates a job of weight 1 with a copy on each rank, whose whole batch is one micro-batch.
    #[must_use]
    pub fn new(network: &'a LayerGraph, dataset: &'a Dataset, batch: usize) -> Self {
        Self { network, dataset, batch, micro_batches: 1, weight: NonZeroU32::MIN, ranks: None, seed: None }
    }

    /// Sets the number of micro-batches of an iteration.
    #[must_use]
    pub fn with_micro_batches(self, micro_batches: usize) -> Self {
        Self { micro_batches, ..self }
    }

    /// Sets the weight, the job's share of background time relative to other jobs.
    #[must_use]
    pub fn with_weight(self, weight: NonZeroU32) -> Self {
        Self { weight, ..self }
    }

    /// Sets the ranks that train the job together; `None` for a copy on each rank.
    #[must_use]
    pub fn with_ranks(self, ranks: Option<JobRanks>) -> Self {
        Self { ranks, ..self }
    }

    /// Sets the seed of a job with ranks; `None` for one from the seed of the run.
    #[must_use]
    pub fn with_seed(self, seed: Option<u64>) -> Self {
        Self { seed, ..self }
    }

    /// Returns the name of the job: network, batch and number of ranks, such as `digits-cnn:64@4`.
    /// A job with a copy on each rank has no number.
    #[must_use]
    pub fn label(&self) -> String {
        let copy = format!("{}:{}", self.network.name(), self.batch);
        match &self.ranks {
            Some(ranks) => format!("{copy}@{}", ranks.ranks().len()),
            None => copy,
        }
    }

    /// Returns whether several ranks train the job together, by collectives.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.ranks.as_ref().is_some_and(|ranks| ranks.ranks().len() > 1)
    }

    /// Returns the number of a rank of the run in the job: that in its program. `None` if the rank
    /// does not train the job.
    pub(super) fn place_of(&self, rank: usize) -> Option<usize> {
        self.ranks.as_ref().map_or(Some(0), |ranks| ranks.place_of(rank))
    }

    /// Returns the number of samples that a rank of the job trains in an iteration: an equal share
    /// of the global batch.
    pub(super) fn samples_of_rank(&self) -> f64 {
        self.batch as f64 / self.ranks.as_ref().map_or(1, |ranks| ranks.ranks().len()) as f64
    }

    /// Returns the seed of a job with ranks. `index` is its position in the configuration of a run
    /// with seed `of_run`.
    pub(super) fn seed(&self, of_run: u64, index: usize) -> u64 {
        self.seed.unwrap_or(of_run.wrapping_add(1 + index as u64))
    }

    /// Returns the job's training program. `foreground` are the lowering options of the foreground.
    ///
    /// # Errors
    /// As [`lower_training`].
    pub(super) fn program(&self, foreground: &LowerOptions) -> Result<Program, Error> {
        let own = self.ranks.as_ref().and_then(JobRanks::lowering).unwrap_or(foreground).clone();
        let options = LowerOptions { micro_batches: self.micro_batches, partial: None, ..own };
        match &self.ranks {
            Some(ranks) => lower_training(self.network, ranks.placement(), self.batch, &options),
            None => lower_training(self.network, &Placement::single(self.network)?, self.batch, &options),
        }
    }

    /// Checks the settings for a run of `world` ranks.
    ///
    /// # Errors
    /// [`Error::Setting`] with the first setting that is out of range, or
    /// [`Error::MoreRanksThanSamples`].
    pub(super) fn check(&self, world: usize) -> Result<(), Error> {
        let wrong = |setting, expected, got| Err(Error::Setting { setting, expected, got });
        if self.batch == 0 {
            return wrong("the batch of a background job", "at least 1", "0".into());
        }
        if !(1..=self.batch).contains(&self.micro_batches) {
            return wrong(
                "the micro-batches of a background job",
                "from 1 to the samples of its batch",
                self.micro_batches.to_string(),
            );
        }
        self.ranks.as_ref().map_or(Ok(()), |ranks| ranks.check(self.network, self.batch, world))
    }
}
