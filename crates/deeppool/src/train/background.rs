//! The background jobs of a rank. Each trains its own copy of a network on the rank's device,
//! without communication with other ranks. A job's index is its position in
//! `TrainConfig::background`.

use std::time::Instant;

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
    index: usize,
    job: &'a BackgroundConfig<'a>,
    device: RankDevice<B>,
    loaded: LoadedProgram<B>,
    state: RankState<B>,
    /// Index of the first iteration in this run: 0, or that after a checkpoint.
    first: u64,
}

impl<'a, B: Backend> BackgroundParts<'a, B> {
    /// Loads the programs and allocates the states of all background jobs of a rank, by job, each
    /// on its engine.
    ///
    /// # Errors
    /// If the engine cannot allocate memory or does not support a network.
    pub(super) fn of_all(
        config: &'a TrainConfig<'a>,
        programs: &Programs<'_>,
        engines: &[B::Engine],
    ) -> Result<Vec<Self>, Error> {
        let jobs = config.background.iter().zip(&programs.background).zip(engines).enumerate();
        jobs.map(|(index, ((job, program), engine))| {
            let mut device = RankDevice::new(engine.clone())?;
            let times = config
                .emulated_times
                .and_then(|times| times.background.get(index).cloned())
                .map(|times| vec![times]);
            let loaded =
                LoadedProgram::new(&mut device, None, job.network, program, 0)?.with_step_times(times);
            let state = RankState::new(&mut device, job.network, loaded.program(), config.seed)?;
            Ok(Self { config, index, job, device, loaded, state, first: 0 })
        })
        .collect()
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
        if let Some(kept) = BackgroundState::find(checkpoint, *index, rank)? {
            self.first = kept.restore(job.network, loaded, (state, device))?.unwrap_or(0);
        }
        Ok(())
    }

    /// Starts the job on `rank`. Each rank has its own order of samples.
    pub(super) fn start<'s>(&'s mut self, rank: usize) -> BackgroundIterations<'s, B>
    where
        'a: 's,
    {
        let Self { config, job, device, loaded, state, first, .. } = self;
        let seed = config.seed.wrapping_add(1 + rank as u64);
        let context = LaunchContext { seed, ..context(config, *first) };
        let source = Epochs::new(job.dataset.train(), job.batch).shuffled(seed);
        let record = BackgroundRecord::new(job.batch, config.traced_iterations);
        Iterations::new(device, loaded, state, source, record, context, u64::MAX)
    }
}

/// Observer of a background job on one rank, which records its step times and its loss.
pub(super) struct BackgroundRecord {
    batch: usize,
    steps: StepTimes,
    loss: Option<f64>,
}

impl BackgroundRecord {
    fn new(batch: usize, traced_iterations: usize) -> Self {
        Self { batch, steps: StepTimes::new(traced_iterations), loss: None }
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
        self.loss = Some(LossMetrics::weighted_sum(metrics) / self.batch as f64);
        self.steps.finished_iteration(iteration, metrics, at)
    }
}
