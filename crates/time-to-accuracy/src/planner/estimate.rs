//! Time and GPU hours of one candidate.

use std::cmp::Ordering;
use std::fmt;
use std::time::Duration;

use super::candidates::limit_key;
use crate::{Configuration, Epochs, StepTime};

/// What a configuration takes to the target, with the figures that this comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// What is estimated.
    pub configuration: Configuration,
    /// What an iteration takes.
    pub step: StepTime,
    /// Samples of an epoch over those of a batch. Not rounded: an epoch's last batch counts as far as it is filled, so that the same
    /// times of epochs come out that were measured.
    pub iterations_per_epoch: f64,
    /// Epochs to the target, with their spread.
    pub epochs: Epochs,
    /// The time to the target, with the mean number of epochs.
    pub time: Duration,
    /// The same with the fewest and the most epochs of a run, where they are known.
    pub time_range: Option<(Duration, Duration)>,
    /// That time on all GPUs, whatever they do.
    pub gpu_hours: f64,
    /// What of it GPUs compute or transfer, where that is known. The rest is there for background jobs.
    pub active_gpu_hours: Option<f64>,
}

impl Estimate {
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

    /// The time to the target, in hours.
    #[must_use]
    pub fn hours(&self) -> f64 {
        self.time.as_secs_f64() / 3600.0
    }

    /// Which of two of the same time and cost comes first: that of fewer GPUs, smaller batch, smaller workers, and no
    /// limit, or a tighter one.
    pub(super) fn simplest(&self, other: &Self) -> Ordering {
        let key = |c: &Configuration| (c.gpus(), c.batch, c.gpus_per_worker);
        let (own, others) = (&self.configuration, &other.configuration);
        let by_limit = || limit_key(own.limit).total_cmp(&limit_key(others.limit));
        key(own).cmp(&key(others)).then_with(by_limit)
    }
}

/// More than six hundred thousand million years count as that many.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// So many hours as text with their unit: where they are few, in seconds.
#[must_use]
pub fn in_hours(hours: f64) -> String {
    if hours < 0.01 { format!("{:.2} s", hours * 3600.0) } else { format!("{hours:.3} h") }
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let iteration_ms = self.step.iteration.as_secs_f64() * 1e3;
        write!(
            f,
            "{}: {}, {} of GPU time ({:.2} ms an iteration x {:.1} iterations an epoch x {:.2} epochs",
            self.configuration,
            in_hours(self.hours()),
            in_hours(self.gpu_hours),
            iteration_ms,
            self.iterations_per_epoch,
            self.epochs.mean
        )?;
        if let Some((fewest, most)) = self.epochs.range {
            write!(f, ", {fewest:.2} to {most:.2}")?;
        }
        f.write_str(")")?;
        if let Some(hours) = self.active_gpu_hours {
            write!(f, ", {} of it active", in_hours(hours))?;
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
