//! Errors of this crate.

use std::time::Duration;

use crate::Configuration;

/// Errors of epoch curves and of estimates of the time to accuracy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccuracyError {
    /// An epoch curve breaks the rules of the format.
    #[error("not a valid epoch curve: at `{path}`: {problem}")]
    Invalid {
        /// Position in the document, such as `points[2].epochs`.
        path: String,
        /// Description of the expected and the actual content, and of a way to correct it.
        problem: String,
    },
    /// There is no built-in epoch curve of this name.
    #[error("no epoch curve is called `{name}`; there are: {}. Others are read from files", known.join(", "))]
    UnknownCurve {
        /// Requested name.
        name: String,
        /// Names of the built-in curves.
        known: Vec<&'static str>,
    },
    /// A global batch is outside the range of a curve. Curves are not extrapolated.
    #[error(
        "the epoch curve of `{network}` covers global batches of {smallest} to {largest} samples, not \
         {batch}: choose a batch in that \
         range, or measure the curve there"
    )]
    OutsideCurve {
        /// Name of the curve's network.
        network: String,
        /// Requested global batch, in samples.
        batch: usize,
        /// Smallest global batch of the curve, in samples.
        smallest: usize,
        /// Largest global batch of the curve, in samples.
        largest: usize,
    },
    /// A parameter has a value that is not allowed.
    #[error("{name} is {value}, expected {expected}")]
    OutOfRange {
        /// Description of the parameter.
        name: String,
        /// Value of the parameter, as text.
        value: String,
        /// Description of the allowed values.
        expected: &'static str,
    },
    /// A list of candidates, of GPU counts or of measurements is empty.
    #[error("there is nothing to choose from: {name} is empty, give at least one")]
    Empty {
        /// Description of the list.
        name: &'static str,
    },
    /// No candidate has an estimate.
    #[error("none of the {count} candidates has an estimate; the first one, {first}: {reason}")]
    NoEstimate {
        /// Number of candidates.
        count: usize,
        /// Configuration of the first candidate.
        first: Configuration,
        /// Reason why the first candidate was skipped.
        reason: String,
    },
    /// No candidate reaches the target by the deadline.
    #[error(
        "nothing reaches the target within {:.3} h: the soonest, {soonest}, takes {:.3} h; allow that long, \
         or more GPUs",
        deadline.as_secs_f64() / 3600.0, time.as_secs_f64() / 3600.0
    )]
    Deadline {
        /// Deadline that was given, counted from the start of training.
        deadline: Duration,
        /// Configuration of the candidate that reaches the target first.
        soonest: Configuration,
        /// Time from the start of training until that candidate reaches the target.
        time: Duration,
    },
    /// A number of GPUs is not a multiple of the GPUs per worker.
    #[error(
        "{gpus} GPUs are no whole number of workers of {gpus_per_worker} GPUs: leave it out, or take a \
         multiple"
    )]
    Indivisible {
        /// Number of GPUs of a job.
        gpus: usize,
        /// Number of GPUs of each worker.
        gpus_per_worker: usize,
    },
    /// The scaling efficiency of a number of workers is not known.
    #[error(
        "the scaling efficiency of {workers} workers is not known: leave that number out, or measure or \
         simulate it"
    )]
    NoEfficiency {
        /// Number of workers.
        workers: usize,
    },
}

impl AccuracyError {
    /// Returns an [`AccuracyError::Invalid`] for a problem at `path`, the path of a JSON field.
    pub(crate) fn invalid(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Invalid { path: path.into(), problem: problem.into() }
    }
}
