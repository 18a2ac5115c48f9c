//! The programs of a training run. Its training programs are a rotation: one program, or, with
//! partial backpropagation, several that iterations execute in the order of a schedule.

use layer_engine::LaunchContext;

use super::TrainConfig;
use crate::Error;
use crate::program::{IterationSchedule, Program, lower_evaluation};

/// The programs of a run, lowered once for all ranks.
pub(super) struct Programs<'a> {
    /// Training programs of the rotation, each of one iteration.
    pub(super) training: &'a [Program],
    /// Index of the training program of each iteration.
    schedule: IterationSchedule,
    /// Program that evaluates one whole global batch of test samples.
    pub(super) evaluation: Program,
    /// Program that evaluates the test samples after the last whole global batch; `None` if there
    /// are none.
    pub(super) remainder: Option<Program>,
    /// Programs of the background jobs, on the ranks of each, in the order of the configuration.
    pub(super) background: Vec<Program>,
}

impl<'a> Programs<'a> {
    /// Lowers all programs of a run.
    ///
    /// # Errors
    /// If a network has no loss or an unused layer, or the lowering options do not fit.
    pub(super) fn new(config: &TrainConfig<'a>) -> Result<Self, Error> {
        let precision = config.lowering().precision;
        let evaluation = |samples| lower_evaluation(config.network(), config.placement(), samples, precision);
        let background = config.background.iter().map(|job| job.program(config.lowering()));
        let rest = config.dataset.test().len() % config.batch();
        Ok(Self {
            training: config.training.programs()?,
            schedule: config.training.schedule(config.seed),
            evaluation: evaluation(config.batch())?,
            remainder: (rest > 0).then(|| evaluation(rest)).transpose()?,
            background: background.collect::<Result<_, Error>>()?,
        })
    }

    /// Returns the order in which the training programs are executed.
    pub(super) fn schedule(&self) -> IterationSchedule {
        self.schedule
    }

    /// Returns the training program of an iteration, which is counted from 0.
    pub(super) fn of_iteration(&self, iteration: u64) -> &Program {
        &self.training[self.schedule.program_of(iteration)]
    }
}

/// Returns the values that a kernel launch of an iteration (from 0) reads: seed, iteration and
/// learning rate.
pub(super) fn context(config: &TrainConfig<'_>, iteration: u64) -> LaunchContext {
    LaunchContext { seed: config.seed, iteration, learning_rate: config.learning_rate }
}
