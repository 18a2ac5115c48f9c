use std::time::Duration;

use crate::JobId;

/// What this crate refuses.
///
/// What a [`Scheduler`](crate::Scheduler) refuses means that whoever feeds it broke its contract; the event that was refused has
/// changed nothing.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A cluster without a GPU.
    #[error("a cluster needs at least one GPU")]
    NoGpus,
    /// A figure is outside its range.
    #[error("{name} is {value}, expected {expected}")]
    BadFigure {
        /// What it is a figure of.
        name: &'static str,
        /// What it is.
        value: String,
        /// What it may be.
        expected: &'static str,
    },
    /// A GPU type that the cluster or the table does not name.
    #[error("no GPU type is called `{name}`; there are: {known}")]
    UnknownGpuType {
        /// The name that was asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A kind of job that the table does not have.
    #[error("the table of execution times has no kind of job called `{0}`")]
    UnknownKind(String),
    /// A job that could never run: the table has no time for it on GPUs that the cluster has.
    #[error("{job} ({kind} on {gpus} GPUs) cannot run: {reason}")]
    Impossible {
        /// The job.
        job: JobId,
        /// What kind of job it is.
        kind: String,
        /// The GPUs that it wants.
        gpus: usize,
        /// What is missing.
        reason: String,
    },
    /// A job arrived whose number was used before.
    #[error("{0} has arrived before: each job has a number of its own")]
    Twice(JobId),
    /// An event about a job that never arrived, or has left.
    #[error("{0} is not in the cluster: it has not arrived, or has left")]
    UnknownJob(JobId),
    /// Iterations were reported of a job that does not run, or more of them than it was given.
    #[error("{job} reports {reported} iterations, but was given {given}")]
    TooManyIterations {
        /// The job.
        job: JobId,
        /// What was reported.
        reported: u64,
        /// What it may still do by its placement.
        given: u64,
    },
    /// An event is older than the one before it.
    #[error("an event at {now:?} follows one at {last:?}: events are fed in the order of their times")]
    TimeWentBack {
        /// The time of the event that was refused.
        now: Duration,
        /// The time of the newest event.
        last: Duration,
    },
    /// A line of a trace or a table that does not hold what it should.
    #[error("{file}: line {line}, column {column} (`{name}`): {reason}")]
    BadTrace {
        /// The file, as the caller named it.
        file: String,
        /// The line, from 1, comments counted.
        line: u64,
        /// The column, from 1.
        column: usize,
        /// The column's name.
        name: String,
        /// What is there, and what was expected.
        reason: String,
    },
    /// The linear program of a fair policy could not be solved.
    #[error("the solver gave no allocation for {jobs} jobs: {status}")]
    Unsolved {
        /// How many jobs it was to share the cluster between.
        jobs: usize,
        /// What the solver says.
        status: String,
    },
}
