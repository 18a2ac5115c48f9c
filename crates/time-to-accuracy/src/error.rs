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
        /// Expected and found content, and a way to correct it.
        problem: String,
    },
    /// There is no built-in epoch curve of this name.
    #[error("no epoch curve is called `{name}`; there are: {}. Others are read from files", known.join(", "))]
    UnknownCurve {
        /// Name given.
        name: String,
        /// Names of the built-in curves.
        known: Vec<&'static str>,
    },
    /// A batch is outside the range of a curve. Curves are not extrapolated.
    #[error(
        "the epoch curve of `{network}` covers global batches of {smallest} to {largest} samples, not \
         {batch}: choose a batch in that \
         range, or measure the curve there"
    )]
    OutsideCurve {
        /// Network of the curve.
        network: String,
        /// Requested batch, in samples.
        batch: usize,
        /// Smallest batch of the curve.
        smallest: usize,
        /// Largest batch of the curve.
        largest: usize,
    },
    /// A parameter is out of range.
    #[error("{name} is {value}, expected {expected}")]
    BadFigure {
        /// Description of the parameter.
        name: String,
        /// Its value.
        value: String,
        /// Valid values.
        expected: &'static str,
    },
    /// A list of candidates or of GPU counts is empty.
    #[error("there is nothing to choose from: {name} is empty, give at least one")]
    Empty {
        /// Name of the list.
        name: &'static str,
    },
    /// No candidate has an estimate.
    #[error("none of the {count} candidates has an estimate; the first one, {first}: {reason}")]
    NoEstimate {
        /// Number of candidates.
        count: usize,
        /// First candidate.
        first: Configuration,
        /// Reason why the first candidate was skipped.
        reason: String,
    },
    /// No candidate reaches the target by the deadline.
    #[error(
        "nothing reaches the target within {:.3} h: the soonest, {soonest}, takes {:.3} h; allow that long, \
         or more GPUs",
        deadline.as_secs_f64() / 3600.0, takes.as_secs_f64() / 3600.0
    )]
    Deadline {
        /// Deadline.
        deadline: Duration,
        /// Candidate that reaches the target first.
        soonest: Configuration,
        /// Its time to the target.
        takes: Duration,
    },
    /// A number of GPUs is not a multiple of the GPUs per worker.
    #[error(
        "{gpus} GPUs are no whole number of workers of {gpus_per_worker} GPUs: leave it out, or take a \
         multiple"
    )]
    Indivisible {
        /// Number of GPUs.
        gpus: usize,
        /// GPUs per worker.
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
