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
    BadFigure {
        /// The quantity.
        name: &'static str,
        /// The given value.
        value: String,
        /// The permitted range.
        expected: &'static str,
    },
    /// A GPU type is unknown to the cluster or the table.
    #[error("unknown GPU type `{name}`; known types: {known}")]
    UnknownGpuType {
        /// The requested name.
        name: String,
        /// The known names.
        known: String,
    },
    /// The table has no kind of job with this name.
    #[error("the table of execution times has no kind of job called `{0}`")]
    UnknownKind(String),
    /// A job can never run: the table has no time for it on GPUs that the cluster has.
    #[error("{job} ({kind} on {gpus} GPUs) cannot run: {reason}")]
    Impossible {
        /// The job.
        job: JobId,
        /// The kind of the job.
        kind: String,
        /// The number of GPUs that it wants.
        gpus: usize,
        /// The reason.
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
        /// The job.
        job: JobId,
        /// The reported number.
        reported: u64,
        /// The number that its placement still allows.
        given: u64,
    },
    /// An event is older than the event before it.
    #[error("an event at {now:?} follows one at {last:?}: report events in order of time")]
    TimeWentBack {
        /// The time of the refused event.
        now: Duration,
        /// The time of the newest event.
        last: Duration,
    },
    /// A trace or table file has an invalid line.
    #[error("{file}: line {line}, column {column} (`{name}`): {reason}")]
    BadTrace {
        /// The file, as named by the caller.
        file: String,
        /// The line, from 1, including comment lines.
        line: u64,
        /// The column, from 1.
        column: usize,
        /// The name of the column.
        name: String,
        /// The value found and the expected one.
        reason: String,
    },
    /// The program of a fair policy could not be solved.
    #[error("the solver found no allocation for {jobs} jobs: {status}")]
    Unsolved {
        /// The number of jobs among which the cluster was to be shared.
        jobs: usize,
        /// The solver's status.
        status: String,
    },
}
