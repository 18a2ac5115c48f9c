//! Linear interpolation of times between batch sizes. A *row* holds the times at one batch size.

use std::time::Duration;

/// Position of a batch size among ascending rows: on a row, or between two.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Position {
    below: usize,
    above: usize,
    /// Position between the two rows, in `0.0..1.0`.
    fraction: f64,
}

impl Position {
    /// Finds the position of the batch size `samples` among rows with strictly ascending batch
    /// sizes, which `batch` returns. `None` if it is outside their range. Binary search: O(log n).
    pub(crate) fn find<T>(rows: &[T], batch: impl Fn(&T) -> usize, samples: usize) -> Option<Self> {
        match rows.binary_search_by_key(&samples, &batch) {
            Ok(row) => Some(Self { below: row, above: row, fraction: 0.0 }),
            Err(above) if above == 0 || above == rows.len() => None,
            Err(above) => {
                let below = above - 1;
                let (low, high) = (batch(&rows[below]), batch(&rows[above]));
                let fraction = (samples - low) as f64 / (high - low) as f64;
                Some(Self { below, above, fraction })
            }
        }
    }

    /// Interpolates linearly between the two rows, rounded to the nanosecond. `rows` are those
    /// given to [`find`](Self::find); `time` returns the time of a row.
    pub(crate) fn interpolate<T>(self, rows: &[T], time: impl Fn(&T) -> Duration) -> Duration {
        let (low, high) = (time(&rows[self.below]), time(&rows[self.above]));
        let step = low.abs_diff(high).mul_f64(self.fraction);
        if high >= low { low.saturating_add(step) } else { low.saturating_sub(step) }
    }
}
