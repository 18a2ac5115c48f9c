//! The work behind a plan.

use burst_planner::{LowerBound, ProofBudget, ProofEnd, SearchEnd};
use serde::{Deserialize, Serialize};

/// Work of the search for a plan and of the proof of its lower bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PlanningWork {
    /// Number of evaluated arrangements.
    pub evaluations: u64,
    /// Reason for the end of the search.
    pub search_end: SearchEnd,
    /// Number of operations of the proof.
    pub proof_operations: u64,
    /// Reason for the end of the proof.
    pub proof_end: ProofEnd,
    /// Whether another machine finds the same lower bound: the proof was not limited in time.
    pub is_reproducible: bool,
}

impl PlanningWork {
    /// Describes the work of a search, by its number of evaluations and its end, and of a proof
    /// within `budget`.
    pub(crate) fn new(
        (evaluations, search_end): (u64, SearchEnd),
        proof: &LowerBound,
        budget: ProofBudget,
    ) -> Self {
        let is_reproducible = budget.is_reproducible() && proof.end != ProofEnd::Stopped;
        let LowerBound { operations: proof_operations, end: proof_end, .. } = *proof;
        Self { evaluations, search_end, proof_operations, proof_end, is_reproducible }
    }
}
