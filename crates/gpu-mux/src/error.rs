use std::time::Duration;

use crate::{Tasklet, TaskletId};

/// What this crate refuses.
///
/// What a [`Multiplexer`](crate::Multiplexer) refuses means that the driver that feeds it broke its contract; the event
/// that was refused has changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A tasklet was reported ready with a number that its job has already used or passed.
    #[error(
        "{tasklet} is ready, but its job is already at number {last}: a job's tasklets are numbered in rising order"
    )]
    OutOfOrder {
        /// The tasklet that was refused.
        tasklet: TaskletId,
        /// The number of the newest tasklet of the same job.
        last: u64,
    },
    /// A tasklet was reported finished that is not in flight: never launched, or finished before.
    #[error("{0} has finished, but it is not in flight")]
    NotInFlight(TaskletId),
    /// An event is older than the one before it.
    #[error("an event at {now:?} follows one at {last:?}: events are fed in the order of their times")]
    TimeWentBack {
        /// The time of the event that was refused.
        now: Duration,
        /// The time of the newest event.
        last: Duration,
    },
    /// A tasklet was reported ready for a job that takes nothing new: it is being drained, or has failed.
    #[error("{} is ready, but its job takes nothing new: it is being drained, or has failed", .0.id)]
    Closed(Tasklet),
    /// Only background jobs can be paused, drained, weighted or given up.
    #[error("the foreground is never held back or given up: {0} was asked for it")]
    NotBackground(&'static str),
    /// A figure of a kernel or a device is outside its range.
    #[error("{name} is {value}, expected {expected}")]
    BadFigure {
        /// What it is a figure of.
        name: &'static str,
        /// What it is.
        value: String,
        /// What it may be.
        expected: &'static str,
    },
    /// A file cannot be read, or holds something else than expected.
    #[error("{file}: {reason}")]
    BadFile {
        /// The file.
        file: String,
        /// The place in it, and what is wrong there.
        reason: String,
    },
    /// An iteration of a workload without a kernel that takes time: it would never end, or at once.
    #[error("an iteration of the {0} needs a kernel that takes time")]
    EmptyIteration(&'static str),
    /// The background of [`share`](crate::share) panicked.
    #[error("the background panicked, and was not run again: {0}")]
    BackgroundPanicked(String),
    /// A communication on a [`VirtualDevice`](crate::VirtualDevice) waits for partners that its user simulates, and the user
    /// does not poll for it: virtual time could not advance.
    #[error(
        "{0} waits for external partners: call `VirtualDevice::exchange` until it gives none before each wait"
    )]
    ExchangeNotPolled(TaskletId),
    /// Only for a communication whose partners are [`Partners::External`](crate::Partners::External) can their times be
    /// set.
    #[error("{0} has no external partners: that is for a communication with `Partners::External`")]
    PartnersNotExternal(TaskletId),
    /// Nothing runs, and nothing will.
    #[error("nothing runs: the policy lets nothing of what has been offered be launched")]
    Stalled,
}
