//! The events and commands that the multiplexer exchanges with its driver. A tasklet is *in flight*
//! from its launch until it is reported as finished.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::{JobId, Tasklet, TaskletId};

/// Event that a driver reports to the [`Multiplexer`](crate::Multiplexer).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MuxEvent {
    /// A tasklet may be launched: every tasklet it depends on has finished, has been launched on a
    /// device that keeps launch order, or is the one named by [`after`](Tasklet::after).
    Ready(Tasklet),
    /// A tasklet that was launched has finished.
    Finished {
        /// Identifier of the finished tasklet.
        tasklet: TaskletId,
        /// Time for which the tasklet occupied its lane.
        took: Duration,
    },
    /// The other devices of a communication of the foreground have arrived, so that it transfers
    /// until it finishes. A driver that cannot tell does not report it.
    Transfers(TaskletId),
    /// A collective of a distributed background job is launched on all its ranks (see
    /// [`Gangs`](crate::Gangs)): the driver launches it at once, without a command. It does not
    /// count towards the limits on background tasklets.
    Collective(Tasklet),
    /// Time has passed without another event. The response to [`MuxCommand::WakeAt`].
    Tick,
    /// Pauses a background job: its tasklets in flight finish, and no further tasklet is launched.
    Pause(JobId),
    /// Resumes a background job. The job gets no compensation for the time it was paused.
    Resume(JobId),
    /// Drains a background job: waiting tasklets are still launched, and new ones are refused.
    Drain(JobId),
    /// Marks a background job as failed: waiting tasklets are dropped, tasklets in flight no longer
    /// count (whether or not they are reported as finished), and new ones are refused.
    Failed(JobId),
    /// Like [`Failed`](Self::Failed), and also removes the job, so that its id can be reused.
    /// Tasklets that were in flight must not be reported as finished afterwards.
    Forget(JobId),
    /// Sets the weight of a background job. Jobs share the background's time in proportion to their
    /// weights; the default is 1.
    SetWeight(JobId, NonZeroU32),
}

/// Command that the [`Multiplexer`](crate::Multiplexer) gives to its driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MuxCommand {
    /// Launch this tasklet now.
    Launch(TaskletId),
    /// Send [`MuxEvent::Tick`] at this time, measured from the driver's epoch. Any other event
    /// cancels the request; the multiplexer repeats it if it is still needed. A tick may be early
    /// or late.
    WakeAt(Duration),
}

/// Answer of a [`Multiplexer`](crate::Multiplexer) about a collective of a distributed job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    /// The collective may start until this time; `None` if no end of the idle period is predicted.
    /// The grant ends earlier if the foreground computes or transfers.
    Until(Option<Duration>),
    /// The collective may not start before this time, when to ask again. `None` if only an event
    /// can change that.
    NotBefore(Option<Duration>),
}
