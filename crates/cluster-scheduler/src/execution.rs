//! Execution times of one iteration. An *idle period* is the time of an iteration in which a GPU of
//! a job does not compute, because it waits for other GPUs or for communication. Another job can
//! run in it.

use std::time::Duration;

use crate::nanos::nanos;
use crate::{Error, spb};

/// Execution of one iteration on a number of GPUs: its duration, and the time for which each GPU
/// computes.
///
/// The time for which a GPU does not compute, because it waits for other GPUs or for communication,
/// is an idle period in which another job can run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execution {
    /// Duration of an iteration in nanoseconds.
    pub(crate) iteration: u64,
    /// Computing time of each GPU in nanoseconds, in decreasing order.
    pub(crate) busy: Vec<u64>,
    /// Whether the computing times rotate among the GPUs from iteration to iteration, as with SPB.
    pub(crate) rotates: bool,
}

impl Execution {
    /// Creates an execution on `gpus` GPUs that all compute for the whole iteration, so that there
    /// are no idle periods.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for zero GPUs or a zero duration.
    pub fn full(gpus: usize, iteration: Duration) -> Result<Self, Error> {
        Self::new(iteration, &vec![iteration; gpus], false)
    }

    /// Creates an execution of iterations of the duration `iteration`, in which the GPUs compute
    /// for the times `busy`, one for each GPU, as in a burst plan.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for zero GPUs, a zero duration, or a computing time longer than the
    /// iteration.
    pub fn parts(iteration: Duration, busy: &[Duration]) -> Result<Self, Error> {
        Self::new(iteration, busy, false)
    }

    /// Creates a data-parallel execution on `gpus` GPUs with structured partial backpropagation in
    /// `parts` parts; see [`spb`].
    ///
    /// `layers` are the forward and backward times of each layer on one GPU, from the input to the
    /// loss. `synchronization` is the part of the iteration time in which no GPU computes. Part 0
    /// backpropagates all layers, later parts fewer. In the first iteration GPU `g` has part
    /// `g mod parts`; the parts then rotate. On one GPU, or with one part, every layer is
    /// backpropagated.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`] for zero GPUs or a zero total time.
    pub fn spb(
        gpus: usize,
        layers: &[(Duration, Duration)],
        synchronization: Duration,
        parts: usize,
    ) -> Result<Self, Error> {
        let parts = parts.clamp(1, gpus.max(1));
        let times = spb::part_times(layers, parts);
        let busy: Vec<Duration> = (0..gpus).map(|gpu| times[gpu % parts]).collect();
        let longest = times.iter().copied().max().unwrap_or_default();
        Self::new(longest.saturating_add(synchronization), &busy, true)
    }

    fn new(iteration: Duration, busy: &[Duration], rotates: bool) -> Result<Self, Error> {
        let bad = |name, value: String, expected| Err(Error::OutOfRange { name, value, expected });
        let longest = Duration::from_secs(3 * 365 * 86_400);
        if iteration.is_zero() || iteration > longest {
            return bad("the time of an iteration", format!("{iteration:?}"), "more than 0, up to 3 years");
        }
        if busy.is_empty() {
            return bad("GPUs of an execution", "0".into(), "at least 1");
        }
        if let Some(&time) = busy.iter().find(|&&time| time > iteration) {
            return bad("a GPU's time in an iteration", format!("{time:?}"), "at most the iteration's");
        }
        let mut busy: Vec<u64> = busy.iter().copied().map(nanos).collect();
        busy.sort_unstable_by(|a, b| b.cmp(a));
        Ok(Self { iteration: nanos(iteration), busy, rotates })
    }

    /// Returns the duration of an iteration of this job alone on its GPUs.
    #[must_use]
    pub fn iteration(&self) -> Duration {
        Duration::from_nanos(self.iteration)
    }

    /// Returns the number of GPUs that the execution uses.
    #[must_use]
    pub fn gpus(&self) -> usize {
        self.busy.len()
    }

    /// Returns the idle period of each GPU in an iteration, in increasing order; zero for a GPU
    /// that computes all the time.
    pub fn idle_periods(&self) -> impl Iterator<Item = Duration> {
        self.idle_nanos().map(Duration::from_nanos)
    }

    /// Returns the [`idle_periods`](Self::idle_periods) in nanoseconds.
    pub(crate) fn idle_nanos(&self) -> impl Iterator<Item = u64> {
        self.busy.iter().map(|busy| self.iteration - busy)
    }
}
