//! Planning of training jobs by their time to a target accuracy. A *candidate* is a configuration
//! that may be chosen: workers, GPUs per worker, global batch and amplification limit.

mod candidates;
mod choice;
mod estimate;

use std::fmt;

pub use candidates::{Batches, Candidates};
pub use choice::{Estimates, GpuHours};
pub use estimate::{Estimate, format_hours};

use crate::{AccuracyError, Configuration, EpochCurve, StepTimes};

/// Candidate without an estimate.
#[derive(Debug, Clone, PartialEq)]
pub struct SkippedCandidate {
    /// Configuration of the candidate.
    pub configuration: Configuration,
    /// Reason why it has no estimate.
    pub reason: SkipReason,
}

/// Reason why a candidate has no estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SkipReason {
    /// The global batch that follows from the samples per worker is outside the curve.
    OutsideCurve {
        /// Smallest global batch of the curve, in samples.
        smallest: usize,
        /// Largest global batch of the curve, in samples.
        largest: usize,
    },
    /// The global batch has fewer samples than there are workers.
    FewerSamplesThanWorkers,
    /// `StepTimes::step` returned `None`: the iteration time is unknown, or the configuration is
    /// impossible.
    UnknownStepTime,
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutsideCurve { smallest, largest } => {
                write!(f, "the epoch curve covers global batches of {smallest} to {largest} samples only")
            }
            Self::FewerSamplesThanWorkers => f.write_str("some workers would have no sample"),
            Self::UnknownStepTime => f.write_str("how long an iteration takes is not known"),
        }
    }
}

/// Estimates the time and the GPU hours to the target for each candidate.
///
/// The time is the time of an iteration, times the iterations of an epoch, times the epochs at the
/// batch. `curve` gives the epochs and `steps` the iteration times. `steps` is called at most once
/// for each candidate. The rest takes O(n log n) for n candidates.
///
/// ```
/// use std::time::Duration;
/// use time_to_accuracy::{Batches, Candidates, Configuration, EpochCurve, StepTime, estimate};
///
/// // 0.2 ms per sample, and 30 ms for the all-reduce.
/// let steps = |c: &Configuration| {
///     let of_worker = c.batch.div_ceil(c.workers) as u32;
///     Some(StepTime::new(of_worker * Duration::from_micros(200) + Duration::from_millis(30)))
/// };
/// let candidates = Candidates::new([64, 128, 256], Batches::PerWorker(vec![16, 32, 64, 128]));
/// let estimates = estimate(&EpochCurve::named("gnmt")?, &steps, &candidates)?;
/// println!("{}", estimates.soonest());
/// let cheap = estimates.cheapest_by(Duration::from_secs(3600))?;
/// assert!(cheap.gpu_hours <= estimates.soonest().gpu_hours);
/// assert!(estimates.frontier().contains(&cheap));
/// # Ok::<(), time_to_accuracy::AccuracyError>(())
/// ```
///
/// # Errors
/// - [`AccuracyError::OutsideCurve`] if a batch of [`Batches::Global`] is outside the curve. A
///   batch of [`Batches::PerWorker`] outside the curve is [skipped](Estimates::skipped).
/// - [`AccuracyError::NoEstimate`] if all candidates are skipped.
/// - [`AccuracyError::Empty`] and [`AccuracyError::OutOfRange`] as returned by
///   `Candidates::configurations`. The latter also for an iteration time of zero.
pub fn estimate<S: StepTimes + ?Sized>(
    curve: &EpochCurve,
    steps: &S,
    candidates: &Candidates,
) -> Result<Estimates, AccuracyError> {
    let configurations = candidates.configurations()?;
    if let Batches::Global(batches) = candidates.batches() {
        batches.iter().try_for_each(|&batch| curve.epochs(batch).map(drop))?;
    }
    let (mut found, mut skipped) = (Vec::new(), Vec::new());
    for configuration in configurations {
        match estimate_one(curve, steps, configuration)? {
            Ok(estimate) => found.push(estimate),
            Err(reason) => skipped.push(SkippedCandidate { configuration, reason }),
        }
    }
    Estimates::new(found, skipped)
}

fn estimate_one<S: StepTimes + ?Sized>(
    curve: &EpochCurve,
    steps: &S,
    configuration: Configuration,
) -> Result<Result<Estimate, SkipReason>, AccuracyError> {
    let Ok(epochs) = curve.epochs(configuration.batch) else {
        let (smallest, largest) = curve.range();
        return Ok(Err(SkipReason::OutsideCurve { smallest, largest }));
    };
    if configuration.batch < configuration.workers {
        return Ok(Err(SkipReason::FewerSamplesThanWorkers));
    }
    let Some(step) = steps.step(&configuration) else { return Ok(Err(SkipReason::UnknownStepTime)) };
    if step.iteration.is_zero() {
        let name = format!("the time of an iteration of {configuration}");
        return Err(AccuracyError::OutOfRange { name, value: "0 s".into(), expected: "more than 0 s" });
    }
    let samples = curve.document().samples_per_epoch;
    Ok(Ok(Estimate::new(configuration, step, samples, epochs)))
}
