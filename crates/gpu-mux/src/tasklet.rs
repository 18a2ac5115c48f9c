use std::fmt;
use std::time::Duration;

/// A job that shares the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(u32);

impl JobId {
    /// The latency-sensitive job, which is never made to wait for a decision.
    pub const FOREGROUND: Self = Self(0);
    /// The job that gets what the foreground leaves idle.
    pub const BACKGROUND: Self = Self(1);

    /// Whether this is the job that goes first.
    #[must_use]
    pub fn is_foreground(self) -> bool {
        self == Self::FOREGROUND
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_foreground() { "foreground" } else { "background" })
    }
}

/// Names one tasklet: its job, and its number within the job.
///
/// A job numbers its tasklets in the order in which it wants them launched. Numbers only have to rise, so a
/// number is also the proof that a tasklet is new: no table of past ids is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskletId {
    /// The job it belongs to.
    pub job: JobId,
    /// Its number: larger than that of every earlier tasklet of the job.
    pub number: u64,
}

impl fmt::Display for TaskletId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tasklet {}", self.job, self.number)
    }
}

/// The part of the device that a tasklet occupies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Lane {
    /// The compute units: what the background is after.
    #[default]
    Compute,
    /// The links to other devices. Compute units stay (mostly) free meanwhile.
    Communication,
}

/// The unit that is launched: work that runs to completion once it has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tasklet {
    /// Its name.
    pub id: TaskletId,
    /// What it occupies.
    pub lane: Lane,
    /// How long it is expected to take, if that is known.
    pub estimate: Option<Duration>,
}

impl Tasklet {
    /// Compute work of `job`, its `number`-th in launch order, of unknown length.
    #[must_use]
    pub fn new(job: JobId, number: u64) -> Self {
        Self { id: TaskletId { job, number }, lane: Lane::Compute, estimate: None }
    }

    /// The same tasklet on `lane`.
    #[must_use]
    pub fn on(self, lane: Lane) -> Self {
        Self { lane, ..self }
    }

    /// The same tasklet with the time it is expected to take.
    #[must_use]
    pub fn estimated(self, estimate: impl Into<Option<Duration>>) -> Self {
        Self { estimate: estimate.into(), ..self }
    }
}
