//! Errors of this crate, except for those of CUDA.

use std::time::Duration;

use crate::{GangId, Tasklet, TaskletId};

/// Errors of this crate.
///
/// An event that a [`Multiplexer`](crate::Multiplexer) refuses means that the driver broke its
/// contract. A refused event changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A tasklet was reported ready with a number that is not larger than its job's last one.
    #[error(
        "{tasklet} is ready, but its job is already at number {last}: the numbers of a job's tasklets \
         must increase"
    )]
    OutOfOrder {
        /// Refused tasklet.
        tasklet: TaskletId,
        /// Number of the newest tasklet of the same job.
        last: u64,
    },
    /// A tasklet was reported finished that is not in flight: it was never launched, or finished
    /// before.
    #[error("{0} has finished, but it is not in flight")]
    NotInFlight(TaskletId),
    /// The multiplexer launched a tasklet that is not the next one that was offered with its work.
    #[error("{0} is to be launched, but no work was offered for it")]
    NotOffered(TaskletId),
    /// An event is older than the event before it.
    #[error("an event at {now:?} follows one at {last:?}: report events in order of time")]
    TimeWentBack {
        /// Time of the refused event, from the driver's epoch.
        now: Duration,
        /// Time of the newest event, from the driver's epoch.
        last: Duration,
    },
    /// A tasklet, which the value is, was reported ready for a job that is being drained or has
    /// failed.
    #[error("{} is ready, but its job accepts no new tasklets: it is being drained, or has failed", .0.id)]
    Closed(Tasklet),
    /// A request that only background jobs accept was made for the foreground: to pause, resume,
    /// drain, weight or fail it. The value names the request, such as `a pause`.
    #[error(
        "the foreground cannot be paused, resumed, drained, weighted or failed: {0} was requested for it"
    )]
    NotBackground(&'static str),
    /// A value of a kernel or a device is outside its range.
    #[error("{name} is {value}, expected {expected}")]
    OutOfRange {
        /// Name of the quantity, such as `launch_time`.
        name: &'static str,
        /// Value that was given.
        value: String,
        /// Permitted range, in words.
        expected: &'static str,
    },
    /// A JSON document does not have the expected format.
    #[error("{reason}")]
    BadDocument {
        /// Reason, with the position in the document.
        reason: String,
    },
    /// An iteration of a workload has no kernel with a positive duration. The value is `foreground`
    /// or `background`.
    #[error("an iteration of the {0} needs a kernel with a positive duration")]
    EmptyIteration(&'static str),
    /// The background of [`share`](crate::share) panicked. The value is the panic's message.
    #[error("the background panicked and was not run again: {0}")]
    BackgroundPanicked(String),
    /// A communication on a [`VirtualDevice`](crate::VirtualDevice) waits for [external
    /// partners](crate::Partners::External), and its user has not polled
    /// [`exchange`](crate::VirtualDevice::exchange). Virtual time cannot advance.
    #[error(
        "{0} waits for external partners: call `VirtualDevice::exchange` until it gives none before each wait"
    )]
    ExchangeNotPolled(TaskletId),
    /// A partner time was set for a communication whose partners are not
    /// [`Partners::External`](crate::Partners::External).
    #[error("{0} has no external partners: their times can be set for `Partners::External` only")]
    PartnersNotExternal(TaskletId),
    /// A gang was to be added with no members, or with a rank given twice or that does not exist.
    #[error("a gang of the ranks {members:?} of {ranks}: give each of its ranks once, at least one")]
    BadGang {
        /// Ranks that were given, ascending.
        members: Vec<usize>,
        /// Number of ranks.
        ranks: usize,
    },
    /// An event of a gang named a rank that is not expected to report it.
    #[error("gang {} does not expect this event of {}", gang.0, rank_name(*rank))]
    NotAMember {
        /// Gang of the event.
        gang: GangId,
        /// Rank of the event; `None` for an event of the whole gang.
        rank: Option<usize>,
    },
    /// Nothing is in flight, and the policy launches none of the offered tasklets.
    #[error("nothing is in flight, and the policy launches none of the offered tasklets")]
    Stalled,
}

fn rank_name(rank: Option<usize>) -> String {
    rank.map_or_else(|| "the whole gang".into(), |rank| format!("rank {rank}"))
}
