//! The programs of a training run.

use layer_engine::LaunchContext;

use super::TrainConfig;
use crate::Error;
use crate::program::{IterationSchedule, LowerOptions, Placement, Program, lower_evaluation, lower_training};

/// The programs of a run, lowered once for all ranks.
pub(super) struct Programs<'a> {
    /// Iteration by iteration, until they come again.
    pub(super) training: &'a [Program],
    /// Which of them an iteration is.
    schedule: IterationSchedule,
    pub(super) evaluation: Program,
    /// For the test samples that are left after whole batches.
    pub(super) remainder: Option<Program>,
    /// By background job.
    pub(super) background: Vec<Program>,
}

impl<'a> Programs<'a> {
    pub(super) fn new(config: &TrainConfig<'a>) -> Result<Self, Error> {
        let evaluation = |samples| lower_evaluation(config.network(), config.placement(), samples);
        let background = config.background.iter().map(|job| {
            let options =
                LowerOptions { micro_batches: job.micro_batches, partial: None, ..config.lowering().clone() };
            lower_training(job.network, &Placement::single(job.network)?, job.batch, &options)
        });
        let rest = config.dataset.test().len() % config.batch();
        Ok(Self {
            training: config.training.programs()?,
            schedule: config.training.schedule(config.seed),
            evaluation: evaluation(config.batch())?,
            remainder: (rest > 0).then(|| evaluation(rest)).transpose()?,
            background: background.collect::<Result<_, Error>>()?,
        })
    }

    /// Which of the training programs an iteration is.
    pub(super) fn schedule(&self) -> IterationSchedule {
        self.schedule
    }

    /// The training program of an iteration.
    pub(super) fn of_iteration(&self, iteration: u64) -> &Program {
        &self.training[self.schedule.program_of(iteration)]
    }
}

/// The seed, iteration and learning rate of a run's kernels.
pub(super) fn context(config: &TrainConfig<'_>, iteration: u64) -> LaunchContext {
    LaunchContext { seed: config.seed, iteration, learning_rate: config.learning_rate }
}
