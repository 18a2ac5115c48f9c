//! Errors of this crate. A *kind* of job is a set of jobs with the same iteration times. A job is
//! *in the cluster* from its arrival until it has completed or was cancelled.

use std::time::Duration;

use crate::JobId;

/// Errors of this crate.
///
/// An event that a [`Scheduler`](crate::Scheduler) refuses means that its driver broke the
/// contract. A refused event changes nothing.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A cluster has no GPUs.
    #[error("a cluster needs at least one GPU")]
    NoGpus,
    /// A value is outside its range.
    #[error("{name} is {value}, expected {expected}")]
    OutOfRange {
        /// Name of the quantity.
        name: &'static str,
        /// Value that was given.
        value: String,
        /// Permitted range, in words.
        expected: &'static str,
    },
    /// A GPU type is unknown to the cluster or the table.
    #[error("unknown GPU type `{name}`; known types: {known}")]
    UnknownGpuType {
        /// Name that was given.
        name: String,
        /// Names of the known types.
        known: String,
    },
    /// The table has no kind of job with this name.
    #[error("the table of execution times has no kind of job called `{0}`")]
    UnknownKind(String),
    /// A job can never run: the table has no time for it on GPUs that the cluster has.
    #[error("{job} ({kind} on {gpus} GPUs) cannot run: {reason}")]
    Impossible {
        /// Identifier of the job.
        job: JobId,
        /// Name of the job's kind.
        kind: String,
        /// Number of GPUs that the job wants.
        gpus: usize,
        /// Reason for which it cannot run.
        reason: String,
    },
    /// A job arrived with the identifier of an earlier job, whether or not that has left.
    #[error("{0} has arrived before: give each job a different number")]
    DuplicateJob(JobId),
    /// An event about a job that never arrived or has left.
    #[error("{0} is not in the cluster: it has not arrived, or has left")]
    UnknownJob(JobId),
    /// Iterations were reported for a job that does not run, or more than its placement allows.
    #[error("{job} reports {reported} iterations, but was given {given}")]
    TooManyIterations {
        /// Identifier of the job.
        job: JobId,
        /// Number of iterations that was reported.
        reported: u64,
        /// Number of iterations that the job's placement still allows; 0 if it does not run.
        given: u64,
    },
    /// An event is older than the event before it.
    #[error("an event at {now:?} follows one at {last:?}: report events in order of time")]
    TimeWentBack {
        /// Time of the refused event, from the driver's epoch.
        now: Duration,
        /// Time of the newest event, from the driver's epoch.
        last: Duration,
    },
    /// A trace or table file has an invalid line.
    #[error("{file}: line {line}, column {column} (`{name}`): {reason}")]
    BadTrace {
        /// Name of the file, as given by the caller.
        file: String,
        /// Number of the line, from 1, including comment lines.
        line: u64,
        /// Number of the column, from 1.
        column: usize,
        /// Name of the column.
        name: String,
        /// Value found and the expected one.
        reason: String,
    },
    /// The solver found no solution of the linear or cone program of a fair policy.
    #[error("the solver found no allocation for {jobs} jobs: {status}")]
    Unsolved {
        /// Number of jobs among which the cluster was to be shared.
        jobs: usize,
        /// Status that the solver returned.
        status: String,
    },
}
