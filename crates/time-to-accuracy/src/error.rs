use std::time::Duration;

use crate::Configuration;

/// What can be wrong with an epoch curve, or with a question about time to accuracy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccuracyError {
    /// An epoch curve breaks the format's rules.
    #[error("not a valid epoch curve: at `{path}`: {problem}")]
    Invalid {
        /// Where in the document, such as `points[2].epochs`.
        path: String,
        /// What was found, what was expected, and how to mend it.
        problem: String,
    },
    /// No epoch curve of this name is built in.
    #[error("no epoch curve is called `{name}`; there are: {}. Others are read from files", known.join(", "))]
    UnknownCurve {
        /// The name that was asked for.
        name: String,
        /// All names that exist.
        known: Vec<&'static str>,
    },
    /// Epochs were asked for at a batch outside those of the curve, which is not extrapolated.
    #[error(
        "the epoch curve of `{network}` covers global batches of {smallest} to {largest} samples, not {batch}: choose a batch in that \
         range, or measure the curve there"
    )]
    OutsideCurve {
        /// The network that the curve is of.
        network: String,
        /// Samples that were asked for.
        batch: usize,
        /// Smallest batch of the curve.
        smallest: usize,
        /// Largest batch of the curve.
        largest: usize,
    },
    /// A figure that a caller gave is outside its range.
    #[error("{name} is {value}, expected {expected}")]
    BadFigure {
        /// What it is a figure of.
        name: String,
        /// What it is.
        value: String,
        /// What it may be.
        expected: &'static str,
    },
    /// A list of candidates or of GPU counts is empty.
    #[error("there is nothing to choose from: {name} is empty, give at least one")]
    Empty {
        /// The list.
        name: &'static str,
    },
    /// Not one of the candidates has an estimate.
    #[error("none of the {count} candidates has an estimate; the first one, {first}: {reason}")]
    NoEstimate {
        /// How many candidates there were.
        count: usize,
        /// The first of them.
        first: Configuration,
        /// Why it has none.
        reason: String,
    },
    /// Nothing is ready by the deadline.
    #[error(
        "nothing reaches the target within {:.3} h: the soonest, {soonest}, takes {:.3} h; allow that long, or more GPUs",
        deadline.as_secs_f64() / 3600.0, takes.as_secs_f64() / 3600.0
    )]
    Deadline {
        /// The time that was given.
        deadline: Duration,
        /// What is ready first.
        soonest: Configuration,
        /// How long that takes.
        takes: Duration,
    },
    /// A number of GPUs cannot be divided into workers of so many.
    #[error(
        "{gpus} GPUs are no whole number of workers of {gpus_per_worker} GPUs: leave it out, or take a multiple"
    )]
    Indivisible {
        /// All GPUs.
        gpus: usize,
        /// GPUs a worker.
        gpus_per_worker: usize,
    },
    /// The scaling efficiency of a number of workers is not known.
    #[error(
        "the scaling efficiency of {workers} workers is not known: leave that number out, or measure or simulate it"
    )]
    NoEfficiency {
        /// The number of workers.
        workers: usize,
    },
}
