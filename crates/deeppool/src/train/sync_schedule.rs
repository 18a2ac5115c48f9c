//! Synchronisation points of the ranks. At a synchronisation point, which is between two iterations
//! about twice a second, all ranks agree whether to stop and whether to write a checkpoint.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::rank::Rank;
use super::{CheckpointEvery, TrainConfig};
use crate::Error;
use crate::runtime::TrainingBackend;

/// Approximate time between two synchronisation points.
const SYNC_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of iterations between two synchronisation points. Single precision represents all
/// numbers up to it exactly.
const MAX_ITERATIONS: f64 = 1e6;
/// Minimum time between two checkpoints, as a multiple of the time to write one.
const MIN_INTERVAL_IN_WRITES: u32 = 20;

/// Timing of the synchronisation points, measured by rank 0.
pub(super) struct SyncSchedule {
    /// Number of iterations until the next synchronisation point.
    pub(super) iterations: u64,
    /// Time at which the last checkpoint was written, or the run began.
    saved: Instant,
    /// Duration of writing the last checkpoint.
    writing: Duration,
}

/// Values that all ranks agreed on at a synchronisation point.
#[derive(Debug, Clone, Copy)]
pub(super) struct Agreed {
    /// Whether any rank was requested to stop the run.
    pub(super) stop: bool,
    /// Whether a checkpoint is due by its time interval, on the clock of rank 0.
    pub(super) save: bool,
    /// Whether a background job of several ranks has failed on any rank since the previous point.
    pub(super) has_failure: bool,
    /// Foreground samples per second since the previous synchronisation point: samples of the
    /// global batches divided by the time on this rank.
    pub(super) foreground_samples_per_s: f64,
    /// Background samples per second of all ranks, since the previous synchronisation point.
    pub(super) background_samples_per_s: f64,
}

impl SyncSchedule {
    /// Starts the clock of checkpoints. The first synchronisation point is after the first
    /// iteration.
    pub(super) fn new() -> Self {
        Self { iterations: 1, saved: Instant::now(), writing: Duration::ZERO }
    }

    /// Records that a checkpoint was written just now, which took `writing`.
    pub(super) fn saved(&mut self, writing: Duration) {
        (self.saved, self.writing) = (Instant::now(), writing);
    }

    /// Agrees with the other ranks at a synchronisation point. All ranks call it. The last argument
    /// has the number of iterations since the previous point, their duration, and the number of
    /// background samples on this rank in this time. `has_failure` is whether a background job of
    /// several ranks has failed on this rank, which the others do not know. Rank 0 decides by its
    /// clock when to save and when the next point is; any rank may request to stop.
    ///
    /// # Errors
    /// If the communicator fails.
    pub(super) fn agree<B: TrainingBackend>(
        &mut self,
        config: &TrainConfig<'_>,
        rank: &mut Rank<'_, B>,
        (iterations, elapsed, background_samples): (u64, Duration, f64),
        has_failure: bool,
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
            f32::from(u8::from(has_failure)),
        ];
        rank.sum_over_ranks(&mut sums)?;
        let [next, save, stop, background_samples, failures] = sums;
        self.iterations = next as u64;
        let seconds = elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
        Ok(Agreed {
            stop: stop > 0.0,
            save: save > 0.0,
            has_failure: failures > 0.0,
            foreground_samples_per_s: (iterations * config.batch() as u64) as f64 / seconds,
            background_samples_per_s: f64::from(background_samples) / seconds,
        })
    }
}
