//! The background jobs of a rank. Each is a copy that only this rank trains, or the rank's part of
//! a job that several ranks train. A job's index is its position in `TrainConfig::background`.

use std::time::Instant;

use collectives::Group;
use layer_engine::LaunchContext;

use super::background_state::BackgroundState;
use super::checkpoint_files::Checkpoint;
use super::programs::{Programs, context};
use super::step_times::StepTimes;
use super::{BackgroundConfig, Epochs, TrainConfig};
use crate::Error;
use crate::program::StepId;
use crate::runtime::{
    Backend, Iterations, LoadedProgram, LossMetrics, Observer, RankDevice, RankState, TimeSpan,
};

/// A running background job of a rank. It has no last iteration: it runs until the end of the run.
pub(super) type BackgroundIterations<'a, B> = Iterations<'a, B, Epochs<'a>, BackgroundRecord>;

/// The device, program and state of a background job that is not running yet.
pub(super) struct BackgroundParts<'a, B: Backend> {
    config: &'a TrainConfig<'a>,
    rank: usize,
    index: usize,
    job: &'a BackgroundConfig<'a>,
    device: RankDevice<B>,
    loaded: LoadedProgram<B>,
    state: RankState<B>,
    /// Seed of the job's order of samples and dropout.
    seed: u64,
    /// Whether this rank records the loss of each iteration.
    records_losses: bool,
    /// Communicator of the ranks of a job on several ranks.
    group: Option<B::Communicator>,
    /// Index of the first iteration in this run: 0, or that after a checkpoint.
    first: u64,
}

impl<'a, B: Backend> BackgroundParts<'a, B> {
    /// Loads the programs and allocates the states of all background jobs of a rank, in the order
    /// of the configuration. `engines` are by job. All ranks call it.
    ///
    /// # Errors
    /// If the engine cannot allocate memory or does not support a network, or the communicator
    /// fails.
    pub(super) fn of_all(
        config: &'a TrainConfig<'a>,
        programs: &Programs<'_>,
        engines: &[B::Engine],
        communicator: &B::Communicator,
    ) -> Result<Vec<Self>, Error> {
        let rank = communicator.rank();
        let mut all = Vec::new();
        let jobs = config.background.iter().zip(&programs.background).zip(engines).enumerate();
        for (index, ((job, program), engine)) in jobs {
            let place = job.place_of(rank);
            // Each job has its own group, so that its collectives form their own sequence.
            let group = if job.is_shared() {
                communicator.split(
                    place.map(|_| 0),
                    place.map_or(0, |place| i32::try_from(place).unwrap_or(i32::MAX)),
                )?
            } else {
                None
            };
            let Some(place) = place else { continue };
            let mut device = RankDevice::new(engine.clone())?;
            let times = config
                .emulated_times
                .and_then(|times| times.background.get(index).cloned())
                .map(|times| vec![times]);
            let loaded = LoadedProgram::new(&mut device, group.as_ref(), job.network, program, place)?
                .with_step_times(times);
            // A job on given ranks is the same on any ranks; copies differ by rank.
            let (initial, seed) = match &job.ranks {
                Some(_) => (job.seed(config.seed, index), job.seed(config.seed, index)),
                None => (config.seed, config.seed.wrapping_add(1 + rank as u64)),
            };
            let state = RankState::new(&mut device, job.network, loaded.program(), initial)?;
            let records_losses = job.ranks.as_ref().is_some_and(|ranks| {
                let loss = job.network.layers().map(|(id, _)| id).next_back();
                loss.and_then(|id| ranks.placement().ranks(id).first()) == Some(&place)
            });
            all.push(Self {
                config,
                rank,
                index,
                job,
                device,
                loaded,
                state,
                seed,
                records_losses,
                group,
                first: 0,
            });
        }
        Ok(all)
    }

    /// Takes the communicator of the ranks of a job on several ranks; `None` for other jobs.
    pub(super) fn take_group(&mut self) -> Option<B::Communicator> {
        self.group.take()
    }

    /// Returns the memory of the job in bytes: as computed from its program, and as allocated. Both
    /// are without the workspaces of kernels.
    pub(super) fn memory_bytes(&self) -> (u64, u64) {
        (self.loaded.program().memory().total_bytes(), self.device.allocated_bytes())
    }

    /// Restores the job's state on `rank` from a checkpoint. A job that the checkpoint does not
    /// have, or has with another network, begins with its initial state.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if the job's file cannot be read. The error of the device if copying
    /// fails.
    pub(super) fn restore(&mut self, checkpoint: &Checkpoint, rank: usize) -> Result<(), Error> {
        let Self { index, job, device, loaded, state, .. } = self;
        let kept = match &job.ranks {
            Some(_) => BackgroundState::find_whole(checkpoint, *index)?,
            None => BackgroundState::find(checkpoint, *index, rank)?,
        };
        if let Some(kept) = kept {
            self.first = kept.restore(job.network, loaded, (state, device))?.unwrap_or(0);
        }
        Ok(())
    }

    /// Starts the job.
    pub(super) fn start<'s>(&'s mut self) -> BackgroundIterations<'s, B>
    where
        'a: 's,
    {
        let Self { config, rank, job, device, loaded, state, seed, first, records_losses, .. } = self;
        let context = LaunchContext { seed: *seed, ..context(config, *first) };
        let source = Epochs::new(job.dataset.train(), job.batch).shuffled(*seed);
        let losses = records_losses.then(Vec::new);
        let record = BackgroundRecord::new((job.batch, *rank), config.traced_iterations, losses);
        Iterations::new(device, loaded, state, source, record, context, u64::MAX)
    }
}

/// Observer of a background job on one rank, which records its step times and its loss.
pub(super) struct BackgroundRecord {
    batch: usize,
    /// Rank of the run.
    rank: usize,
    steps: StepTimes,
    loss: Option<f64>,
    /// Loss of each iteration; `None` if they are not recorded.
    losses: Option<Vec<f64>>,
}

impl BackgroundRecord {
    fn new((batch, rank): (usize, usize), traced_iterations: usize, losses: Option<Vec<f64>>) -> Self {
        Self { batch, rank, steps: StepTimes::new(traced_iterations), loss: None, losses }
    }

    /// Returns the times of the steps of the job's current iteration, and of its last completed
    /// ones, at most `TrainConfig::traced_iterations`. Empty if none are traced.
    pub(super) fn steps(&self) -> &StepTimes {
        &self.steps
    }

    /// Returns the mean loss over the samples of the last completed batch; `None` before the first.
    pub(super) fn loss(&self) -> Option<f64> {
        self.loss
    }

    /// Returns the mean loss of the global batch of each iteration in this run; empty unless this
    /// rank records them.
    pub(super) fn losses(&self) -> &[f64] {
        self.losses.as_deref().unwrap_or_default()
    }
}

impl Observer for BackgroundRecord {
    fn ended(&mut self, steps: &[StepId], ran: TimeSpan) {
        self.steps.ended(steps, ran);
    }

    fn finished_iteration(
        &mut self,
        iteration: u64,
        metrics: &[LossMetrics],
        at: Instant,
    ) -> Result<(), Error> {
        self.loss = (!metrics.is_empty()).then(|| LossMetrics::weighted_sum(metrics) / self.batch as f64);
        if let (Some(losses), Some(loss)) = (&mut self.losses, self.loss) {
            if !loss.is_finite() {
                return Err(Error::NotFinite {
                    iteration: iteration + 1,
                    loss,
                    rank: self.rank,
                    layer: None,
                });
            }
            losses.push(loss);
        }
        self.steps.finished_iteration(iteration, metrics, at)
    }
}
