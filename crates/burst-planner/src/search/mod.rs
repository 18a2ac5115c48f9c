//! Optimal searches: the fastest plan under a limit, and the frontier of all plans worth choosing from.

mod budget;
mod cost;
mod elimination;
mod frontier;
mod guide;
mod history;
mod labels;
mod queries;
mod shrink;
mod solver;
mod tables;
mod window;

pub use budget::fastest;
pub use frontier::{Frontier, FrontierPoint, frontier, supported};

use crate::{Error, Result};

/// Times are compared with limits at this relative tolerance.
const LIMIT_TOLERANCE: f64 = 1e-9;

/// What an amplification limit is applied to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LimitRule {
    /// The limit is a budget for the whole plan: its GPU time over the single-GPU time.
    #[default]
    Total,
}

/// How to search.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SearchOptions {
    /// The tolerance: 0 is exact and the default. It is guaranteed for the result, not for a step on the way.
    pub epsilon: f64,
    /// What the amplification limit is applied to.
    pub limit_rule: LimitRule,
    /// How many partial plans one window of the search may keep before it gives up with
    /// [`Error::TooManyLabels`]; one takes some 50 bytes. 20 million by default.
    pub max_labels: usize,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self { epsilon: 0.0, limit_rule: LimitRule::Total, max_labels: 20_000_000 }
    }
}

impl SearchOptions {
    /// The default with a tolerance.
    #[must_use]
    pub fn with_epsilon(epsilon: f64) -> Self {
        Self { epsilon, ..Self::default() }
    }

    fn validate(&self) -> Result<()> {
        if self.epsilon.is_finite() && self.epsilon >= 0.0 {
            return Ok(());
        }
        Err(Error::BadEpsilon { epsilon: self.epsilon })
    }
}

fn limit_error(limit: f64) -> Result<()> {
    // Also false for a limit that is not a number.
    if limit >= 1.0 { Ok(()) } else { Err(Error::BadLimit { limit }) }
}

fn tolerant(limit: f64) -> f64 {
    limit * (1.0 + LIMIT_TOLERANCE)
}
