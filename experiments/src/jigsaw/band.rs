//! Median and range of a value over the seeds. A *seed* selects a draw of jobs, on which every
//! policy is simulated.

/// Maximum difference of a ratio from 1 at which it counts as 1.
pub(super) const ROUNDING: f64 = 1e-3;

/// Minimum, median and maximum over the seeds of a value such as the efficiency.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Band {
    /// Minimum.
    pub(super) min: f64,
    /// Median; of an even number of values, the larger of the middle two.
    pub(super) median: f64,
    /// Maximum.
    pub(super) max: f64,
}

impl Band {
    /// Returns minimum, median and maximum of the finite values, or `None` if there are none.
    pub(super) fn of(mut all: Vec<f64>) -> Option<Self> {
        all.retain(|value| value.is_finite());
        all.sort_by(f64::total_cmp);
        let (&min, &max) = (all.first()?, all.last()?);
        Some(Self { min, median: all[all.len() / 2], max })
    }

    /// Formats the band as `median (minimum to maximum)`.
    pub(super) fn format(&self) -> String {
        format!("{:.3} ({:.3} to {:.3})", self.median, self.min, self.max)
    }
}
