//! Which point of a frontier to take.

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

    fn within(&self, budget_us: f64) -> Option<&FrontierPoint> {
        self.points.get(self.points.partition_point(|point| point.totals.gpu_time_us > budget_us))
    }
}
