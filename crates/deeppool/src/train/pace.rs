//! When ranks look up from their work: at the same iterations, all of them.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::rank::Rank;
use super::{CheckpointEvery, TrainConfig};
use crate::Error;
use crate::runtime::TrainingBackend;

/// How long ranks train before they look whether to stop or to save, about.
const STRETCH: Duration = Duration::from_millis(500);
/// How many iterations that is at most: a whole number in single precision.
const MOST_ITERATIONS: f64 = 1e6;
/// By how much longer than a checkpoint takes ranks train until the next one.
const WRITING: u32 = 20;

/// What rank 0 knows of the time.
pub(super) struct Pace {
    /// Iterations until ranks look up again.
    pub(super) iterations: u64,
    saved: Instant,
    /// How long writing took.
    writing: Duration,
}

/// What all ranks know after a stretch: what to do before they go on, and how fast they were.
#[derive(Debug, Clone, Copy)]
pub(super) struct Agreed {
    pub(super) stop: bool,
    pub(super) save: bool,
    pub(super) foreground_samples_per_s: f64,
    /// Of all ranks together.
    pub(super) background_samples_per_s: f64,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { iterations: 1, saved: Instant::now(), writing: Duration::ZERO }
    }

    /// A checkpoint was written, which took so long.
    pub(super) fn saved(&mut self, writing: Duration) {
        (self.saved, self.writing) = (Instant::now(), writing);
    }

    /// Agrees with the other ranks, after a stretch of so many iterations, which took so long, beside so many background samples: rank 0
    /// has the time, and any rank may be told to stop.
    pub(super) fn agree<B: TrainingBackend>(
        &mut self,
        config: &TrainConfig<'_>,
        rank: &mut Rank<'_, B>,
        (iterations, elapsed, background_samples): (u64, Duration, f64),
    ) -> Result<Agreed, Error> {
        let is_first = rank.rank() == 0;
        let stop = config.stop.is_some_and(|stop| stop.load(Ordering::Relaxed));
        let one_us = elapsed.as_secs_f64() * 1e6 / iterations.max(1) as f64;
        let next = (STRETCH.as_secs_f64() * 1e6 / one_us.max(1e-3)).clamp(1.0, MOST_ITERATIONS).floor();
        let is_due = match config.checkpoint.as_ref().map(|checkpoint| checkpoint.every) {
            Some(CheckpointEvery::Time(time)) => self.saved.elapsed() >= time.max(WRITING * self.writing),
            _ => false,
        };
        let of_first = |value: f64| if is_first { value as f32 } else { 0.0 };
        let mut sums = [
            of_first(next),
            of_first(f64::from(u8::from(is_due))),
            f32::from(u8::from(stop)),
            background_samples as f32,
        ];
        rank.sum_over_ranks(&mut sums)?;
        let [next, save, stop, background_samples] = sums;
        self.iterations = next as u64;
        let seconds = elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
        Ok(Agreed {
            stop: stop > 0.0,
            save: save > 0.0,
            foreground_samples_per_s: (iterations * config.batch() as u64) as f64 / seconds,
            background_samples_per_s: f64::from(background_samples) / seconds,
        })
    }
}
