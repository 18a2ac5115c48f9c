//! A training run to a target accuracy. An *epoch* is one pass over the training samples.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::data::Dataset;
use crate::train::{EpochReport, Progress, TrainConfig, has_accuracy, train};

/// Result of a training run to a target accuracy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetRun {
    /// Number of samples of the global batch.
    pub batch: usize,
    /// Seed of the initial parameters and of the order of samples.
    pub seed: u64,
    /// Learning rate of the optimiser.
    pub learning_rate: f64,
    /// Maximum accuracy on the held-out samples at the end of an epoch, from 0 to 1; 0 before the
    /// first evaluation.
    pub best_accuracy: f64,
    /// Whether the target was reached, and when.
    pub outcome: Outcome,
}

/// Outcome of a run to a target accuracy.
///
/// A *round* is an epoch of the training loop. A round skips the samples of an incomplete batch, so
/// it counts as less than one epoch in [`TargetRun::epochs`], which counts samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The target was reached.
    Reached {
        /// Number of rounds up to and including the first evaluation that reached the target.
        rounds: u64,
    },
    /// The target was not reached within the configured number of epochs.
    Missed {
        /// Number of rounds that were evaluated.
        rounds: u64,
    },
    /// The loss became NaN or infinite.
    Diverged {
        /// The iteration with this loss, from 1.
        iteration: u64,
    },
}

impl TargetRun {
    /// Returns the number of epochs to the target; `None` if it was not reached. It is the number
    /// of training samples used, divided by the number of training samples of the data set. A round
    /// that skips an incomplete batch counts as less than one epoch. Multiplied by samples / batch
    /// this is exactly the number of iterations of the run.
    #[must_use]
    pub fn epochs(&self, dataset: &Dataset) -> Option<f64> {
        let samples = dataset.train().len();
        let Outcome::Reached { rounds } = self.outcome else { return None };
        let of_round = samples - samples % self.batch.max(1);
        Some(rounds as f64 * of_round as f64 / samples as f64)
    }
}

/// Trains until the accuracy on the held-out samples is at least `target` at the end of an epoch,
/// or to the end of the configured length. `progress` receives the progress of the run.
///
/// # Errors
/// [`Error::Setting`] if the target is not above 0 and at most 1, or the network's loss has no
/// accuracy. [`Error::Stopped`] if the run was
/// stopped. Those of [`train`], except for a loss that is not finite, which is an [`Outcome`].
pub fn train_to_target(
    config: &TrainConfig<'_>,
    target: f64,
    progress: &(dyn Fn(&Progress) + Sync),
) -> Result<TargetRun, Error> {
    check_target(target)?;
    if !has_accuracy(config.network()) {
        let setting = "the target accuracy";
        let got = "a mean squared error, which has none".into();
        return Err(Error::Setting { setting, expected: "a loss that classifies", got });
    }
    let stop = AtomicBool::new(false);
    let evaluations = Mutex::new(Evaluations::default());
    let is_stop_requested = || config.stop.is_some_and(|stop| stop.load(Ordering::Relaxed));
    let trained = train(&config.clone().with_stop(&stop), &|at| {
        // A rank that panicked ends the run anyway.
        if let (Progress::Epoch(epoch), Ok(mut evaluations)) = (&at, evaluations.lock()) {
            evaluations.add(epoch, target);
            stop.fetch_or(evaluations.reached.is_some(), Ordering::Relaxed);
        }
        stop.fetch_or(is_stop_requested(), Ordering::Relaxed);
        progress(&at);
    });
    let evaluations = evaluations.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let outcome = match (evaluations.reached, trained) {
        (Some(rounds), _) => Outcome::Reached { rounds },
        (None, Ok(report)) if report.is_stopped => {
            let done = report.first_iteration + report.losses.len() as u64;
            let next = "what it has learned is lost".into();
            return Err(Error::Stopped { done, all: config.iterations(), next });
        }
        (None, Ok(_)) => Outcome::Missed { rounds: evaluations.rounds },
        (None, Err(Error::NotFinite { iteration, .. })) => Outcome::Diverged { iteration },
        (None, Err(error)) => return Err(error),
    };
    Ok(TargetRun {
        batch: config.batch(),
        seed: config.seed,
        learning_rate: config.learning_rate,
        best_accuracy: evaluations.best,
        outcome,
    })
}

/// Results of the evaluations of a run.
#[derive(Default)]
struct Evaluations {
    rounds: u64,
    best: f64,
    /// Number of epochs to the target.
    reached: Option<u64>,
}

impl Evaluations {
    fn add(&mut self, epoch: &EpochReport, target: f64) {
        if self.reached.is_some() {
            // An epoch that ended before the run stopped.
            return;
        }
        self.rounds = epoch.epoch;
        let accuracy = epoch.test.accuracy.unwrap_or_default();
        self.best = self.best.max(accuracy);
        if accuracy >= target {
            self.reached = Some(epoch.epoch);
        }
    }
}

/// Checks that an accuracy can be a target.
///
/// # Errors
/// [`Error::Setting`] if it is not above 0 and at most 1.
pub fn check_target(target: f64) -> Result<(), Error> {
    if target > 0.0 && target <= 1.0 {
        return Ok(());
    }
    let setting = "the target accuracy";
    Err(Error::Setting { setting, expected: "above 0, at most 1", got: target.to_string() })
}
