//! Iteration times taken from measured epochs of training runs.

use std::time::Duration;

use crate::{AccuracyError, Configuration, StepTime, StepTimes};

/// Measured time of one epoch of a data-parallel run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EpochTime {
    /// Number of GPUs, each of which is a worker.
    pub gpus: usize,
    /// Global batch, in samples.
    pub batch: usize,
    /// Time of one epoch.
    pub epoch: Duration,
}

/// Measured times of epochs of data-parallel runs, by number of GPUs and global batch, without
/// interpolation.
///
/// A measured epoch may include other work, such as evaluation. The time of an iteration is the
/// time of the epoch divided by the number of iterations. A configuration has no time if it was not
/// measured, has several GPUs per worker, or has an amplification limit.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredEpochs {
    samples_per_epoch: u64,
    rows: Vec<EpochTime>,
}

impl MeasuredEpochs {
    /// Creates a table of measured times from its rows. `samples_per_epoch` is the number of
    /// samples of an epoch in every row.
    ///
    /// # Errors
    /// [`AccuracyError::Empty`] without a row. [`AccuracyError::OutOfRange`] if a number or a time
    /// is zero, and for two rows with the same GPUs and batch.
    pub fn new(
        samples_per_epoch: u64,
        rows: impl IntoIterator<Item = EpochTime>,
    ) -> Result<Self, AccuracyError> {
        let mut rows: Vec<EpochTime> = rows.into_iter().collect();
        rows.sort_by_key(|row| (row.gpus, row.batch));
        if rows.is_empty() {
            return Err(AccuracyError::Empty { name: "the list of measured epochs" });
        }
        let bad = |row: &EpochTime, what: &str, value: String, expected| {
            let name = format!("{what} of the epoch on {} GPUs at batch {}", row.gpus, row.batch);
            Err(AccuracyError::OutOfRange { name, value, expected })
        };
        for row in &rows {
            let samples = [row.gpus as u64, row.batch as u64, samples_per_epoch];
            if samples.contains(&0) {
                return bad(row, "a count", "0".into(), "GPUs, batch and samples of an epoch of at least 1");
            }
            if row.epoch.is_zero() {
                return bad(row, "the time", "0 s".into(), "more than 0 s");
            }
        }
        let is_same = |(a, b): &(&EpochTime, &EpochTime)| (a.gpus, a.batch) == (b.gpus, b.batch);
        if let Some((row, _)) = rows.iter().zip(rows.iter().skip(1)).find(is_same) {
            let expected = "one row for each number of GPUs and batch";
            return bad(row, "the number of rows", "2 or more".into(), expected);
        }
        Ok(Self { samples_per_epoch, rows })
    }

    /// Returns the rows, sorted by number of GPUs and then by batch.
    #[must_use]
    pub fn rows(&self) -> &[EpochTime] {
        &self.rows
    }
}

impl StepTimes for MeasuredEpochs {
    fn step(&self, configuration: &Configuration) -> Option<StepTime> {
        let Configuration { workers, gpus_per_worker, batch, limit } = *configuration;
        if gpus_per_worker != 1 || limit.is_some() {
            return None;
        }
        let row = self.rows.iter().find(|row| (row.gpus, row.batch) == (workers, batch))?;
        let seconds = row.epoch.as_secs_f64() * batch as f64 / self.samples_per_epoch as f64;
        Duration::try_from_secs_f64(seconds).ok().map(StepTime::new)
    }
}
