//! What is trained, and what that costs.

mod planning;

pub use planning::JobCosts;

use crate::costs::Costs;
use crate::program::LowerOptions;

/// A network that is trained with a global batch, how its iterations are lowered, and what they cost.
#[derive(Debug, Clone)]
pub struct Job<'a> {
    costs: Costs<'a>,
    batch: usize,
    lowering: LowerOptions,
}

impl<'a> Job<'a> {
    /// A job.
    #[must_use]
    pub fn new(costs: Costs<'a>, batch: usize, lowering: LowerOptions) -> Self {
        Self { costs, batch, lowering }
    }

    /// The costs of its layers and links.
    #[must_use]
    pub fn costs(&self) -> &Costs<'a> {
        &self.costs
    }

    /// Samples of the global batch.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// How an iteration is lowered.
    #[must_use]
    pub fn lowering(&self) -> &LowerOptions {
        &self.lowering
    }
}
