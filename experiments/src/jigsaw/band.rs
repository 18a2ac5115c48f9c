//! Median and range of a figure over the seeds.

/// Difference from 1 below which a ratio counts as 1.
pub(super) const ROUNDING: f64 = 1e-3;

/// Median of some figures, with minimum and maximum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Band {
    pub(super) min: f64,
    pub(super) median: f64,
    pub(super) max: f64,
}

impl Band {
    /// Returns the band of some figures, or `None` if there are none.
    pub(super) fn of(mut all: Vec<f64>) -> Option<Self> {
        all.retain(|value| value.is_finite());
        all.sort_by(f64::total_cmp);
        let (&min, &max) = (all.first()?, all.last()?);
        Some(Self { min, median: all[all.len() / 2], max })
    }

    pub(super) fn shown(&self) -> String {
        format!("{:.3} ({:.3} to {:.3})", self.median, self.min, self.max)
    }
}
