use std::fmt;
use std::time::Duration;

/// A job that shares the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(u32);

impl JobId {
    /// The latency-sensitive job, which is never made to wait for a decision.
    pub const FOREGROUND: Self = Self(0);
    /// The first of the jobs that get what the foreground leaves idle.
    pub const BACKGROUND: Self = Self::background(0);

    /// The background job with this index, from 0 on; indices above `u32::MAX - 1` count as that.
    #[must_use]
    pub const fn background(index: u32) -> Self {
        Self(index.saturating_add(1))
    }

    /// Whether this is the job that goes first.
    #[must_use]
    pub fn is_foreground(self) -> bool {
        self == Self::FOREGROUND
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("foreground"),
            1 => f.write_str("background"),
            number => write!(f, "background {}", number - 1),
        }
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

/// What a tasklet on the communication lane does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Communication {
    /// It sends, and receives nothing.
    #[default]
    Send,
    /// It receives, whether or not it sends as well. It is on the device while it waits for the sender.
    Receive,
    /// It sums up what all devices of a group have.
    AllReduce,
}

/// The unit that is launched: work that runs to completion once it has started.
///
/// ```
/// use gpu_mux::{JobId, Lane, Tasklet};
/// use std::time::Duration;
///
/// let receive = Tasklet::new(JobId::FOREGROUND, 6).on(Lane::Communication).receiving();
/// let layer = Tasklet::new(JobId::FOREGROUND, 7).after(receive.id).estimated(Duration::from_micros(80)).at_site(3);
/// assert_eq!(layer.after, Some(receive.id));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tasklet {
    /// Its name.
    pub id: TaskletId,
    /// What it occupies.
    pub lane: Lane,
    /// How long it takes on a device of its own, if that is known: of a communication with the time for which it waits
    /// for other devices. Background without it is taken to take
    /// [as long as it should at most](crate::Policy::background_piece).
    pub estimate: Option<Duration>,
    /// A tasklet of the same job's other lane that the device makes it wait for, so that it may be launched before
    /// that one has finished. Until then it does not count as computing. One of another job, or not launched before,
    /// is not waited for.
    pub after: Option<TaskletId>,
    /// Its place in what the job does over and over, such as the step of a training iteration: what is learned
    /// about a place in one round is used in the next. Places above 65,535 are not learned.
    pub site: Option<u32>,
    /// What it does on the communication lane; without meaning on the other.
    pub communication: Communication,
}

impl Tasklet {
    /// Compute work of `job`, its `number`-th in launch order, of unknown length.
    #[must_use]
    pub fn new(job: JobId, number: u64) -> Self {
        Self {
            id: TaskletId { job, number },
            lane: Lane::Compute,
            estimate: None,
            after: None,
            site: None,
            communication: Communication::Send,
        }
    }

    /// The same tasklet on `lane`.
    #[must_use]
    pub fn on(self, lane: Lane) -> Self {
        Self { lane, ..self }
    }

    /// The same tasklet with the time it takes on a device of its own.
    #[must_use]
    pub fn estimated(self, estimate: impl Into<Option<Duration>>) -> Self {
        Self { estimate: estimate.into(), ..self }
    }

    /// The same tasklet, which the device makes wait for another one.
    #[must_use]
    pub fn after(self, tasklet: impl Into<Option<TaskletId>>) -> Self {
        Self { after: tasklet.into(), ..self }
    }

    /// The same tasklet with its place in what the job does over and over.
    #[must_use]
    pub fn at_site(self, site: impl Into<Option<u32>>) -> Self {
        Self { site: site.into(), ..self }
    }

    /// The same tasklet on the communication lane, where it does this.
    #[must_use]
    pub fn communicating(self, communication: Communication) -> Self {
        Self { lane: Lane::Communication, communication, ..self }
    }

    /// The same tasklet on the communication lane, where it receives.
    #[must_use]
    pub fn receiving(self) -> Self {
        self.communicating(Communication::Receive)
    }
}
