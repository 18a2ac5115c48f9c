//! Estimated time and GPU hours of a candidate. *GPU hours* are the time to the target summed over
//! GPUs.

use std::cmp::Ordering;
use std::fmt;
use std::time::Duration;

use super::candidates::limit_order;
use crate::{Configuration, Epochs, StepTime};

/// Estimated time and GPU hours to the target, with the figures that they are computed from.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// Configuration of the candidate.
    pub configuration: Configuration,
    /// Time of an iteration.
    pub step: StepTime,
    /// Number of samples of an epoch divided by the global batch, not rounded.
    pub iterations_per_epoch: f64,
    /// Number of epochs to the target at the global batch.
    pub epochs: Epochs,
    /// Time to the target with the mean number of epochs.
    pub time: Duration,
    /// Times to the target with the minimum and the maximum number of epochs of a run. `None` if
    /// these are unknown.
    pub time_range: Option<(Duration, Duration)>,
    /// Time to the target times the number of GPUs, in hours.
    pub gpu_hours: f64,
    /// Part of the GPU hours in which GPUs compute or transfer. `None` if unknown.
    pub active_gpu_hours: Option<f64>,
}

impl Estimate {
    /// Creates the estimate of a configuration with the iteration time `step`. `samples` is the
    /// number of samples per epoch, and `epochs` the number of epochs to the target at its batch.
    pub(super) fn new(configuration: Configuration, step: StepTime, samples: u64, epochs: Epochs) -> Self {
        let iterations_per_epoch = samples as f64 / configuration.batch as f64;
        let after = |epochs: f64| seconds(step.iteration.as_secs_f64() * iterations_per_epoch * epochs);
        let time = after(epochs.mean);
        let active = |active: Duration| active.as_secs_f64() * iterations_per_epoch * epochs.mean / 3600.0;
        Self {
            configuration,
            step,
            iterations_per_epoch,
            epochs,
            time,
            time_range: epochs.range.map(|(fewest, most)| (after(fewest), after(most))),
            gpu_hours: time.as_secs_f64() * configuration.gpus() as f64 / 3600.0,
            active_gpu_hours: step.active_gpu_time.map(active),
        }
    }

    /// Returns the time to the target in hours.
    #[must_use]
    pub fn hours(&self) -> f64 {
        self.time.as_secs_f64() / 3600.0
    }

    /// Orders by number of GPUs, batch, GPUs per worker and amplification limit, each ascending,
    /// with no limit before any limit.
    pub(super) fn compare_simplicity(&self, other: &Self) -> Ordering {
        let key = |c: &Configuration| (c.gpus(), c.batch, c.gpus_per_worker);
        let (own, others) = (&self.configuration, &other.configuration);
        let by_limit = || limit_order(own.limit).total_cmp(&limit_order(others.limit));
        key(own).cmp(&key(others)).then_with(by_limit)
    }
}

/// Converts to a duration, saturating.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// Formats a time in hours with its unit, such as `1.250 h`; below 0.01 hours in seconds, such as
/// `18.00 s`.
#[must_use]
pub fn format_hours(hours: f64) -> String {
    if hours < 0.01 { format!("{:.2} s", hours * 3600.0) } else { format!("{hours:.3} h") }
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let iteration_ms = self.step.iteration.as_secs_f64() * 1e3;
        write!(
            f,
            "{}: {}, {} of GPU time ({:.2} ms an iteration x {:.1} iterations an epoch x {:.2} epochs",
            self.configuration,
            format_hours(self.hours()),
            format_hours(self.gpu_hours),
            iteration_ms,
            self.iterations_per_epoch,
            self.epochs.mean
        )?;
        if let Some((fewest, most)) = self.epochs.range {
            write!(f, ", {fewest:.2} to {most:.2}")?;
        }
        f.write_str(")")?;
        if let Some(hours) = self.active_gpu_hours {
            write!(f, ", {} of it active", format_hours(hours))?;
        }
        if let Some(amplification) = self.step.amplification {
            write!(f, ", amplification {amplification:.2}")?;
        }
        match self.epochs.missed {
            0 => Ok(()),
            missed => write!(f, "; {missed} runs at that batch missed the target, so it is longer than that"),
        }
    }
}
