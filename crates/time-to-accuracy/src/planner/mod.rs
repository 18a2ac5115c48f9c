//! Which workers, batch and limit reach a target when, and at what cost.

mod candidates;
mod choice;
mod estimate;

use std::fmt;

pub use candidates::{Batches, Candidates};
pub use choice::{Estimates, GpuTime};
pub use estimate::{Estimate, in_hours};

use crate::{AccuracyError, Configuration, EpochCurve, StepTimes};

/// A candidate without an estimate.
#[derive(Debug, Clone, PartialEq)]
pub struct LeftOut {
    /// The candidate.
    pub configuration: Configuration,
    /// What is missing.
    pub reason: Reason,
}

/// Why a candidate has no estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// Its batch, so many samples a worker, is outside the curve.
    OutsideCurve {
        /// Smallest batch of the curve.
        smallest: usize,
        /// Largest batch of the curve.
        largest: usize,
    },
    /// Some of its workers would have no sample.
    FewerSamplesThanWorkers,
    /// How long an iteration takes is not known, or it is impossible.
    NoStepTime,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutsideCurve { smallest, largest } => {
                write!(f, "the epoch curve covers global batches of {smallest} to {largest} samples only")
            }
            Self::FewerSamplesThanWorkers => f.write_str("some workers would have no sample"),
            Self::NoStepTime => f.write_str("how long an iteration takes is not known"),
        }
    }
}

/// How long each candidate takes to the target, and what it costs: the time of an iteration, times the iterations of an epoch, times the
/// epochs of its batch. Asks `steps` once for each candidate, so that a simulator runs once; takes n log n beside that.
///
/// ```
/// use std::time::Duration;
/// use time_to_accuracy::{Batches, Candidates, Configuration, EpochCurve, StepTime, estimate};
///
/// // 0.2 ms a sample, and 30 ms for gradients.
/// let steps = |c: &Configuration| {
///     let of_worker = c.batch.div_ceil(c.workers) as u32;
///     Some(StepTime::new(of_worker * Duration::from_micros(200) + Duration::from_millis(30)))
/// };
/// let candidates = Candidates::new([64, 128, 256], Batches::PerWorker(vec![16, 32, 64, 128]));
/// let estimates = estimate(&EpochCurve::named("gnmt")?, &steps, &candidates)?;
/// println!("{}", estimates.soonest());
/// let cheap = estimates.fewest_gpu_hours_by(Duration::from_secs(3600))?;
/// assert!(cheap.gpu_hours <= estimates.soonest().gpu_hours);
/// assert!(estimates.frontier().contains(&cheap));
/// # Ok::<(), time_to_accuracy::AccuracyError>(())
/// ```
///
/// # Errors
/// [`AccuracyError::OutsideCurve`] when a global batch that was asked for is outside the curve (a batch a worker that leads outside is
/// only [left out](Estimates::left_out)), [`AccuracyError::NoEstimate`] when all candidates are left out, [`AccuracyError::Empty`] and
/// [`AccuracyError::BadFigure`] for lists that are empty or have zeros in them, for limits below 1, and for an iteration of no time.
pub fn estimate<S: StepTimes + ?Sized>(
    curve: &EpochCurve,
    steps: &S,
    candidates: &Candidates,
) -> Result<Estimates, AccuracyError> {
    let configurations = candidates.configurations()?;
    if let Batches::Global(batches) = candidates.batches() {
        batches.iter().try_for_each(|&batch| curve.epochs(batch).map(drop))?;
    }
    let (mut found, mut left_out) = (Vec::new(), Vec::new());
    for configuration in configurations {
        match one(curve, steps, configuration)? {
            Ok(estimate) => found.push(estimate),
            Err(reason) => left_out.push(LeftOut { configuration, reason }),
        }
    }
    Estimates::new(found, left_out)
}

fn one<S: StepTimes + ?Sized>(
    curve: &EpochCurve,
    steps: &S,
    configuration: Configuration,
) -> Result<Result<Estimate, Reason>, AccuracyError> {
    let Ok(epochs) = curve.epochs(configuration.batch) else {
        let (smallest, largest) = curve.range();
        return Ok(Err(Reason::OutsideCurve { smallest, largest }));
    };
    if configuration.batch < configuration.workers {
        return Ok(Err(Reason::FewerSamplesThanWorkers));
    }
    let Some(step) = steps.step(&configuration) else { return Ok(Err(Reason::NoStepTime)) };
    if step.iteration.is_zero() {
        let name = format!("the time of an iteration of {configuration}");
        return Err(AccuracyError::BadFigure { name, value: "0 s".into(), expected: "more than 0 s" });
    }
    let samples = curve.document().samples_per_epoch;
    Ok(Ok(Estimate::new(configuration, step, samples, epochs)))
}
