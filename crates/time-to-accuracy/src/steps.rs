//! How long iterations take, whoever says so.

use std::fmt;
use std::time::Duration;

/// A way to run a training job: `workers` replicas of `gpus_per_worker` GPUs each, which share a global batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Configuration {
    /// Replicas of the network, N.
    pub workers: usize,
    /// GPUs of each replica, M; 1 in data parallelism.
    pub gpus_per_worker: usize,
    /// The global batch, in samples of all workers together.
    pub batch: usize,
    /// The amplification limit of a burst plan; `None` without one, as in data parallelism.
    pub limit: Option<f64>,
}

impl Configuration {
    /// Data parallelism on so many GPUs, without a limit.
    #[must_use]
    pub fn data_parallel(gpus: usize, batch: usize) -> Self {
        Self { workers: gpus, gpus_per_worker: 1, batch, limit: None }
    }

    /// All GPUs, N x M.
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

/// What an iteration takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepTime {
    /// From its beginning to that of the next one.
    pub iteration: Duration,
    /// The time in which GPUs compute or transfer, all of them together; `None` where it is not known.
    pub active_gpu_time: Option<Duration>,
    /// That time over the iteration's time on one GPU; `None` where it is not known.
    pub amplification: Option<f64>,
}

impl StepTime {
    /// An iteration of which nothing else is known.
    #[must_use]
    pub fn new(iteration: Duration) -> Self {
        Self { iteration, active_gpu_time: None, amplification: None }
    }
}

/// Says how long iterations take: measurements, a simulator, or a function.
pub trait StepTimes {
    /// What an iteration takes; `None` where the configuration is impossible, or nothing is known of it.
    fn step(&self, configuration: &Configuration) -> Option<StepTime>;
}

impl<F: Fn(&Configuration) -> Option<StepTime>> StepTimes for F {
    fn step(&self, configuration: &Configuration) -> Option<StepTime> {
        self(configuration)
    }
}

/// Scaling efficiency: how many samples a second each worker has, over what each has in a reference.
///
/// With the same batch a worker in both this is the ratio of iteration times, T<sub>1</sub> / T<sub>N</sub> where the reference is one
/// worker (Pal et al., arXiv 1907.13257). Where the batch a worker differs it still compares throughputs, and so times of an epoch.
///
/// `None` where either time is not known, or is zero.
///
/// ```
/// use std::time::Duration;
/// use time_to_accuracy::{Configuration, StepTime, scaling_efficiency};
///
/// // An all-reduce adds 10 ms for each doubling of the workers.
/// let steps = |c: &Configuration| Some(StepTime::new(Duration::from_millis(100 + 10 * u64::from(c.workers.ilog2()))));
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
