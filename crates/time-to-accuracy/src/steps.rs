//! Configurations of a training job and their iteration times. A *step* is one training iteration.

use std::fmt;
use std::time::Duration;

/// Configuration of a training job: `workers` replicas of `gpus_per_worker` GPUs each, which share
/// a global batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Configuration {
    /// Number of workers: replicas of the network, N.
    pub workers: usize,
    /// Number of GPUs of each worker, M. 1 in data parallelism.
    pub gpus_per_worker: usize,
    /// Global batch: number of samples of an iteration, over all workers.
    pub batch: usize,
    /// Amplification limit of a burst-parallel plan, at least 1. `None` for no limit, as in data
    /// parallelism.
    pub limit: Option<f64>,
}

impl Configuration {
    /// Returns data parallelism on the given number of GPUs at a global batch, without an
    /// amplification limit.
    #[must_use]
    pub fn data_parallel(gpus: usize, batch: usize) -> Self {
        Self { workers: gpus, gpus_per_worker: 1, batch, limit: None }
    }

    /// Returns the number of all GPUs, N x M.
    #[must_use]
    pub fn gpus(&self) -> usize {
        self.workers.saturating_mul(self.gpus_per_worker)
    }
}

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workers, gpus_per_worker, batch, limit } = self;
        write!(f, "{workers} x {gpus_per_worker} GPUs at batch {batch}")?;
        limit.map_or(Ok(()), |limit| write!(f, " and amplification {limit} at most"))
    }
}

/// Time of a training iteration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepTime {
    /// Time from the start of an iteration to the start of the next one.
    pub iteration: Duration,
    /// Sum over all GPUs of the time of an iteration in which they compute or transfer. `None` if
    /// unknown.
    pub active_gpu_time: Option<Duration>,
    /// Active GPU time divided by the iteration time on one GPU. `None` if unknown.
    pub amplification: Option<f64>,
}

impl StepTime {
    /// Returns an iteration time without active GPU time and amplification.
    #[must_use]
    pub fn new(iteration: Duration) -> Self {
        Self { iteration, active_gpu_time: None, amplification: None }
    }
}

/// Source of iteration times: measurements, a simulator, or a function.
pub trait StepTimes {
    /// Returns the time of an iteration, or `None` if the configuration is impossible or its time
    /// unknown.
    fn step(&self, configuration: &Configuration) -> Option<StepTime>;
}

impl<F: Fn(&Configuration) -> Option<StepTime>> StepTimes for F {
    fn step(&self, configuration: &Configuration) -> Option<StepTime> {
        self(configuration)
    }
}

/// Returns the scaling efficiency of the configuration `of`: the throughput of each of its workers,
/// in samples per second, divided by that of each worker of the configuration `reference`.
///
/// If the batch per worker is the same in both, this is the ratio of iteration times, T<sub>1</sub>
/// / T<sub>N</sub> for a reference of one worker (Pal et al., arXiv 1907.13257).
///
/// Returns `None` if either time is unknown or zero.
///
/// ```
/// use std::time::Duration;
/// use time_to_accuracy::{Configuration, StepTime, scaling_efficiency};
///
/// // An all-reduce adds 10 ms for each doubling of the workers.
/// let steps = |c: &Configuration| {
///     let ms = 100 + 10 * u64::from(c.workers.ilog2());
///     Some(StepTime::new(Duration::from_millis(ms)))
/// };
/// let on = |gpus: usize| Configuration::data_parallel(gpus, 32 * gpus);
/// assert_eq!(scaling_efficiency(&steps, &on(1), &on(1024)), Some(0.5));
/// ```
pub fn scaling_efficiency<S: StepTimes + ?Sized>(
    steps: &S,
    reference: &Configuration,
    of: &Configuration,
) -> Option<f64> {
    let of_worker = |configuration: &Configuration| {
        let seconds = steps.step(configuration)?.iteration.as_secs_f64();
        let rate = configuration.batch as f64 / configuration.workers as f64 / seconds;
        (rate.is_finite() && rate > 0.0).then_some(rate)
    };
    Some(of_worker(of)? / of_worker(reference)?)
}
