//! Tasklets and their identifiers.

use std::fmt;
use std::time::Duration;

/// Identifier of a job that shares a device: the foreground, or a background job by its index. It
/// is unique on one device. [`CpuDriver::add`](crate::CpuDriver::add) assigns it; the caller of
/// another driver chooses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(u32);

impl JobId {
    /// The latency-sensitive job, which always goes first.
    pub const FOREGROUND: Self = Self(0);
    /// The background job with index 0.
    pub const BACKGROUND: Self = Self::background(0);

    /// Returns the background job with this index, from 0; an index above `u32::MAX - 1` is clamped
    /// to it.
    #[must_use]
    pub const fn background(index: u32) -> Self {
        Self(index.saturating_add(1))
    }

    /// Returns whether this is the foreground.
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

/// Identifier of a tasklet: its job and its number in the job.
///
/// A job numbers its tasklets in the order in which they are to be launched. Numbers only have to
/// increase, so a number larger than the last one proves that the tasklet is new, and no table of
/// past ids is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskletId {
    /// Job of the tasklet.
    pub job: JobId,
    /// Number within the job, larger than that of every earlier tasklet of the job. Numbers need
    /// not be consecutive.
    pub number: u64,
}

impl fmt::Display for TaskletId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tasklet {}", self.job, self.number)
    }
}

/// Part of the device that a tasklet occupies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Lane {
    /// The compute units (streaming multiprocessors), which the background fills.
    #[default]
    Compute,
    /// The links to other devices. The compute units stay mostly free.
    Communication,
}

/// Kind of a tasklet on the communication lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Communication {
    /// Sends only.
    #[default]
    Send,
    /// Receives, and possibly sends as well. It occupies the device while it waits for the sender.
    Receive,
    /// Sums the data of all devices of a group and returns the sum to each of them.
    AllReduce,
}

/// Unit of work that is launched and runs to completion once it has started: its identifier and its
/// properties, without the work itself.
///
/// ```
/// use gpu_mux::{JobId, Lane, Tasklet};
/// use std::time::Duration;
///
/// let receive = Tasklet::new(JobId::FOREGROUND, 6).on(Lane::Communication).receiving();
/// let layer = Tasklet::new(JobId::FOREGROUND, 7).after(receive.id).at_site(3);
/// let layer = layer.estimated(Duration::from_micros(80));
/// assert_eq!(layer.after, Some(receive.id));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tasklet {
    /// Identifier of the tasklet.
    pub id: TaskletId,
    /// Part of the device that it occupies.
    pub lane: Lane,
    /// Expected duration alone on a device, `None` if unknown. For communication, it includes the
    /// time for which it waits for other devices. A background tasklet without an estimate is
    /// assumed to take [`Policy::background_piece`](crate::Policy::background_piece).
    pub estimate: Option<Duration>,
    /// Tasklet on the other lane of the same job for which the device makes this one wait, so that
    /// this one may be launched before it has finished. Until then this one does not count as
    /// computing. `None` if it waits for none. A tasklet of another job, or one launched later, is
    /// ignored.
    pub after: Option<TaskletId>,
    /// Site: position in the job's repeated sequence of tasklets, such as the step of a training
    /// iteration. Statistics are learned by site and used in the next iteration. `None`, or a site
    /// above 65,535, is not learned.
    pub site: Option<u32>,
    /// Kind of communication; ignored on the compute lane.
    pub communication: Communication,
}

impl Tasklet {
    /// Creates a compute tasklet of `job` with this number, without an estimate, dependency and
    /// site.
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

    /// Sets the lane that the tasklet occupies.
    #[must_use]
    pub fn on(self, lane: Lane) -> Self {
        Self { lane, ..self }
    }

    /// Sets the expected duration alone on a device, or `None` if it is unknown.
    #[must_use]
    pub fn estimated(self, estimate: impl Into<Option<Duration>>) -> Self {
        Self { estimate: estimate.into(), ..self }
    }

    /// Makes the device delay this tasklet until the given one has finished, or until none for
    /// `None`.
    #[must_use]
    pub fn after(self, tasklet: impl Into<Option<TaskletId>>) -> Self {
        Self { after: tasklet.into(), ..self }
    }

    /// Sets the site: the position in the job's repeated sequence, or `None`.
    #[must_use]
    pub fn at_site(self, site: impl Into<Option<u32>>) -> Self {
        Self { site: site.into(), ..self }
    }

    /// Moves the tasklet to the communication lane and sets its kind.
    #[must_use]
    pub fn communicating(self, communication: Communication) -> Self {
        Self { lane: Lane::Communication, communication, ..self }
    }

    /// Moves the tasklet to the communication lane as a receive.
    #[must_use]
    pub fn receiving(self) -> Self {
        self.communicating(Communication::Receive)
    }
}
