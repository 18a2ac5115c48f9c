use std::time::Duration;

use crate::nanos::nanos;
use crate::{Error, spb};

/// How an iteration of a job is executed on some number of GPUs: how long it takes, and how long each GPU computes in it.
///
/// What a GPU does not compute is a slot in which another job's iteration fits: it waits for others, or for
/// communication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execution {
    /// How long an iteration takes, in nanoseconds.
    pub(crate) iteration: u64,
    /// How long each GPU computes in it, the longest first.
    pub(crate) busy: Vec<u64>,
    /// Whether the GPUs take turns with these times from iteration to iteration, as SPB's parts do.
    pub(crate) rotates: bool,
}

impl Execution {
    /// All GPUs compute for the whole iteration.
    ///
    /// # Errors
    ///
    /// [`Error::BadFigure`] without GPUs, or for an iteration that takes no time.
    pub fn full(gpus: usize, iteration: Duration) -> Result<Self, Error> {
        Self::new(iteration, &vec![iteration; gpus], false)
    }

    /// Each GPU has a part of its own in every iteration: `busy` is for how long it computes, as in a burst plan.
    ///
    /// # Errors
    ///
    /// [`Error::BadFigure`] without GPUs, for an iteration that takes no time, or where a GPU computes for longer than that.
    pub fn parts(iteration: Duration, busy: &[Duration]) -> Result<Self, Error> {
        Self::new(iteration, busy, false)
    }

    /// Data parallelism under structured partial backpropagation with `parts` parts: see [`spb`].
    ///
    /// `layers` are each layer's forward and backward times on one of the GPUs, from the input to the loss, and
    /// `synchronization` is what an iteration takes beyond computing. GPU `g` has part `g mod parts`, and the parts rotate. On one GPU,
    /// and with one part, every layer is backpropagated.
    ///
    /// # Errors
    ///
    /// [`Error::BadFigure`] without GPUs, or where nothing takes time.
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
        Self::new(longest + synchronization, &busy, true)
    }

    fn new(iteration: Duration, busy: &[Duration], rotates: bool) -> Result<Self, Error> {
        let bad = |name, value: String, expected| Err(Error::BadFigure { name, value, expected });
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

    /// How long an iteration takes.
    #[must_use]
    pub fn iteration(&self) -> Duration {
        Duration::from_nanos(self.iteration)
    }

    /// The GPUs.
    #[must_use]
    pub fn gpus(&self) -> usize {
        self.busy.len()
    }

    /// What the GPUs leave of an iteration, the shortest first.
    pub fn slots(&self) -> impl Iterator<Item = Duration> {
        self.slot_nanos().map(Duration::from_nanos)
    }

    pub(crate) fn slot_nanos(&self) -> impl Iterator<Item = u64> {
        self.busy.iter().map(|busy| self.iteration - busy)
    }
}
