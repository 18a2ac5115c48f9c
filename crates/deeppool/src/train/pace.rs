//! Synchronisation points of the ranks: when to stop, and when to save.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::rank::Rank;
use super::{CheckpointEvery, TrainConfig};
use crate::Error;
use crate::runtime::TrainingBackend;

/// Approximate time between two synchronisation points.
const SYNC_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of iterations between them, which single precision represents exactly.
const MAX_ITERATIONS: f64 = 1e6;
/// Minimum time between two checkpoints, as a multiple of the time to write one.
const MIN_INTERVAL_IN_WRITES: u32 = 20;

/// Timing of the synchronisation points, measured by rank 0.
pub(super) struct Pace {
    /// Number of iterations until the next synchronisation point.
    pub(super) iterations: u64,
    saved: Instant,
    /// Duration of writing the last checkpoint.
    writing: Duration,
}

/// Values that all ranks agreed on at a synchronisation point.
#[derive(Debug, Clone, Copy)]
pub(super) struct Agreed {
    /// Whether any rank was requested to stop.
    pub(super) stop: bool,
    /// Whether a checkpoint is due by its time interval, on the clock of rank 0.
    pub(super) save: bool,
    /// Foreground samples per second since the previous synchronisation point: global batches
    /// divided by the time on this rank.
    pub(super) foreground_samples_per_s: f64,
    /// Background samples per second of all ranks, since the previous synchronisation point.
    pub(super) background_samples_per_s: f64,
}

impl Pace {
    /// Starts the clock of checkpoints. The first synchronisation point is after one iteration.
    pub(super) fn new() -> Self {
        Self { iterations: 1, saved: Instant::now(), writing: Duration::ZERO }
    }

    /// Records that a checkpoint was written, and the duration of writing it.
    pub(super) fn saved(&mut self, writing: Duration) {
        (self.saved, self.writing) = (Instant::now(), writing);
    }

    /// Agrees with the other ranks after a number of iterations, with their duration and the number
    /// of background samples meanwhile. Rank 0 decides by its clock; any rank may request to stop.
    pub(super) fn agree<B: TrainingBackend>(
        &mut self,
        config: &TrainConfig<'_>,
        rank: &mut Rank<'_, B>,
        (iterations, elapsed, background_samples): (u64, Duration, f64),
    ) -> Result<Agreed, Error> {
        let is_first = rank.rank() == 0;
        let stop = config.stop.is_some_and(|stop| stop.load(Ordering::Relaxed));
        let one_us = elapsed.as_secs_f64() * 1e6 / iterations.max(1) as f64;
        let next = (SYNC_INTERVAL.as_secs_f64() * 1e6 / one_us.max(1e-3)).clamp(1.0, MAX_ITERATIONS).floor();
        let is_due = match config.checkpoint.as_ref().map(|checkpoint| checkpoint.every) {
            Some(CheckpointEvery::Time(time)) => {
                self.saved.elapsed() >= time.max(MIN_INTERVAL_IN_WRITES * self.writing)
            }
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
