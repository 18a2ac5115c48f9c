//! Which point of a frontier to take.

use super::window::ROUNDING;
use super::{Frontier, FrontierPoint, limit_error, tolerant};
use crate::{Error, Result};

impl Frontier {
    /// The fastest point whose amplification is at most `limit`, to 1e-9 relative. Logarithmic time.
    ///
    /// On a frontier with a tolerance this is the best of the points, which all keep the limit exactly; a plan
    /// between two points may be better by more than the tolerance. [`fastest`](crate::fastest) looks there, too.
    ///
    /// # Errors
    /// [`Error::BadLimit`] for a limit below 1, [`Error::LimitUnreachable`] where no plan keeps it.
    pub fn fastest_within(&self, limit: f64) -> Result<&FrontierPoint> {
        limit_error(limit)?;
        self.within(tolerant(limit * self.single_gpu_us)).ok_or_else(|| Error::LimitUnreachable {
            limit,
            smallest: self.points.last().map_or(f64::INFINITY, |cheapest| cheapest.totals.amplification),
        })
    }

    /// The fastest point that takes at most `budget_us` GPU-microseconds, to 1e-9 relative. Logarithmic time.
    ///
    /// # Errors
    /// [`Error::BadBudget`] for a negative budget, [`Error::BudgetUnreachable`] where no plan keeps it.
    pub fn fastest_within_gpu_time_us(&self, budget_us: f64) -> Result<&FrontierPoint> {
        if budget_us.is_nan() || budget_us < 0.0 {
            return Err(Error::BadBudget { budget_us });
        }
        self.within(tolerant(budget_us)).ok_or_else(|| Error::BudgetUnreachable {
            budget_us,
            smallest_us: self.points.last().map_or(f64::INFINITY, |cheapest| cheapest.totals.gpu_time_us),
        })
    }

    /// The point with the least GPU time whose iteration time is at most `deadline_us`, to 1e-9 relative. Logarithmic
    /// time.
    ///
    /// On a frontier with a tolerance this is the best of the points, as for
    /// [`fastest_within`](Self::fastest_within).
    ///
    /// # Errors
    /// [`Error::BadDeadline`] for a negative deadline, [`Error::DeadlineUnreachable`] where no plan keeps it.
    pub fn cheapest_within(&self, deadline_us: f64) -> Result<&FrontierPoint> {
        if deadline_us.is_nan() || deadline_us < 0.0 {
            return Err(Error::BadDeadline { deadline_us });
        }
        let latest_us = tolerant(deadline_us);
        let in_time = self.points.partition_point(|point| point.totals.iteration_us <= latest_us);
        self.points[..in_time].last().ok_or_else(|| Error::DeadlineUnreachable {
            deadline_us,
            smallest_us: self.points.first().map_or(f64::INFINITY, |fastest| fastest.totals.iteration_us),
        })
    }

    /// The knee: the point from which being faster costs much GPU time, and saving GPU time costs much speed.
    ///
    /// Both times are scaled so that the fastest and the cheapest point lie at (0, 1) and (1, 0). The knee is the point
    /// farthest below the straight line through the two; of several as far, the fastest. This is the knee of V. Satopaa,
    /// J. Albrecht, D. Irwin and B. Raghavan, "Finding a Kneedle in a Haystack" (ICDCS Workshops, 2011), without
    /// their smoothing, which a frontier does not need. The scale depends on the ends: the knee of a part of the frontier
    /// may be another point.
    ///
    /// Where no point lies below the line, as with one or two points, it is the fastest. Linear time.
    #[must_use]
    pub fn knee(&self) -> &FrontierPoint {
        let (fastest, cheapest) = (&self.points[0].totals, &self.points[self.points.len() - 1].totals);
        let slower_us = cheapest.iteration_us - fastest.iteration_us;
        let saved_us = fastest.gpu_time_us - cheapest.gpu_time_us;
        let mut knee = &self.points[0];
        let mut farthest = 0.0;
        for point in &self.points {
            let slower = (point.totals.iteration_us - fastest.iteration_us) / slower_us;
            let saved = (fastest.gpu_time_us - point.totals.gpu_time_us) / saved_us;
            // Not a number where there is but one point, and then not farther.
            if saved - slower > farthest * (1.0 + ROUNDING) + ROUNDING {
                (knee, farthest) = (point, saved - slower);
            }
        }
        knee
    }

    fn within(&self, budget_us: f64) -> Option<&FrontierPoint> {
        self.points.get(self.points.partition_point(|point| point.totals.gpu_time_us > budget_us))
    }
}
