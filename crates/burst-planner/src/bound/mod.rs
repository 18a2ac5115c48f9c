//! Lower bounds of the iteration time.
//!
//! Consider a **path** of the graph, and divide it into **runs**: sequences of consecutive nodes on
//! the same list of ranks. The following holds for every arrangement and every iteration time T
//! that it keeps. All durations are minima over the ranks that a GPU count allows, so a bound does
//! not depend on which ranks are used.
//!
//! - Forward steps, backward steps and the transfers between runs are one sequence. The steps of a
//!   rank of a run, from the transfer of the run's input on, are a part of it.
//! - On the communication lane of these ranks, the gradients of the run's nodes are reduced, each
//!   after its backward step, and the gradient of the input is moved. The compute lane ends with
//!   the updates. So the part of the sequence, plus what follows it, takes at most T.
//! - The gradient of the input waits for all-reduces of full buckets before it.
//! - If the GPU counts of a run and of the first node add up to more than the number of GPUs, a
//!   rank is in both. Its cycle contains the whole sequence, and the updates of both. In the mean
//!   of the first node's ranks, the updates of each run count by the minimum part of these ranks in
//!   it.
//! - All-reduces on all GPUs are on the lane of every rank.
//! - The GPU time of all steps, updates and transfers is within the budget, and at most T times the
//!   number of GPUs. Nodes beside the path count with their minimum, or ranks that wait for the
//!   path's transfers count instead: they have no other node of the path to run.
//! - An all-reduce follows the backward steps of its nodes and of later ones on the same rank. So
//!   for each node of the path, these do not overlap on any rank, and are within the same budget:
//!   all forward steps and waiting, backward steps from this node on, and all-reduces up to this
//!   node.
//! - If nodes can be split, the costs of a node on a GPU count are the minimum over its splits, and
//!   its output moves in no time. Which ranks have the larger shard depends on the split, so all
//!   count with the smaller one. A run then has a bucket for each number of parts.
//! - A branch beside a part of a run is on the same ranks, and its steps add to those of the run,
//!   or two transfers and the branch run beside this part.
//!
//! [`decision`] decides for a given T whether GPU counts and runs exist that satisfy these
//! conditions: dynamic programming from the last node to the first. A *label* has the steps of the
//! last nodes and a weighted sum of GPU time and communication, its load (resource-constrained
//! shortest paths: M. Desrochers, F. Soumis, INFOR 26, 1988). It is pruned if another one is no
//! worse, or if it exceeds a limit together with the minimum for the nodes before, also for several
//! weighted sums of steps and load (Lagrangian relaxation: H. Everett, Operations Research 11,
//! 1963). If there are too many labels, neighbours are merged into one that is no worse than both.
//! The bound is the largest T for which there is no label. Further passes have
//! more labels, and ranges of fewer GPU counts.

mod decision;
mod labels;
mod node_tables;
mod path;
mod run_sums;
mod tables;
#[cfg(test)]
mod tests;

use crate::costs::CostModel;
use crate::problem::{PlanProblem, ProblemGraph};
use crate::proof::{LowerBound, ProofEnd, Work};
use decision::{Answer, Decision, Limits};
use path::Path;
use tables::{Prefixes, Tables};

/// Relative precision of the bisection.
const PRECISION: f64 = 1e-3;
/// Relative increase of the bound that is tried first.
const FIRST_STEP: f64 = 0.02;
/// Relative tolerance of times.
const ROUNDING: f64 = 1e-9;
/// Maximum number of ranges of GPU counts in the first pass.
const FIRST_RANGES: usize = 16;
/// Maximum number of labels by block and range in the first pass.
const FIRST_LABELS: usize = 4;
/// Ratio of the numbers of labels of two passes.
const MORE_LABELS: usize = 4;
/// Maximum number of labels in any pass.
const MAX_LABELS: usize = 1 << 14;

/// Costs from which lower bounds are computed.
#[derive(Debug, Clone)]
pub(super) struct Bound {
    /// Number of GPUs.
    gpus: f64,
    /// Whether gradients are reduced during the backward pass.
    overlaps: bool,
    /// The path whose steps are counted; `None` if a node has no times.
    path: Option<Path>,
}

/// A bound and its maximum, microseconds.
struct Bracket {
    /// The bound so far.
    bound_us: f64,
    /// Iteration time of the known plan, above which nothing needs to be proved.
    stop_at_us: f64,
}

impl Bound {
    /// Computes the costs of a path of `problem`. O(nodes x counts^2).
    pub(super) fn new(problem: &PlanProblem, structure: &ProblemGraph, costs: &dyn CostModel) -> Self {
        let path = Path::new(problem, structure, costs);
        Self { gpus: problem.gpus as f64, overlaps: problem.gradients.overlap, path }
    }

    /// Proves a lower bound of the iteration time of all arrangements whose GPU time is at most
    /// `budget_us` GPU-microseconds; 0 if a node has no options. The bound is at most `stop_at_us`
    /// microseconds, the time of a known arrangement.
    pub(super) fn prove(&self, budget_us: f64, stop_at_us: f64, work: &mut Work<'_>) -> LowerBound {
        let mut bracket = Bracket { bound_us: 0.0, stop_at_us };
        let end = self.passes(budget_us, work, &mut bracket);
        LowerBound { us: bracket.bound_us.min(stop_at_us), operations: work.operations, end }
    }

    /// Runs passes with more and more labels until one of the reasons to end.
    fn passes(&self, budget_us: f64, work: &mut Work<'_>, bracket: &mut Bracket) -> ProofEnd {
        if work.left() == 0 {
            return ProofEnd::Budget;
        }
        let Some(path) = &self.path else { return ProofEnd::Complete };
        bracket.bound_us = path.all_us / self.gpus;
        let (mut ranges, mut labels) = (FIRST_RANGES, FIRST_LABELS);
        while !path.nodes.is_empty() && bracket.bound_us < bracket.stop_at_us {
            let tables = Tables::new(path, self.gpus, ranges);
            let prefixes: Vec<Prefixes> =
                (0..tables.ranges.len()).map(|case| tables.prefixes(case)).collect();
            let min_us = prefixes.iter().map(|prefixes| prefixes.min_us(&tables));
            bracket.bound_us = bracket.bound_us.max(min_us.fold(f64::INFINITY, f64::min));
            work.report(bracket.bound_us.min(bracket.stop_at_us));
            if bracket.bound_us >= bracket.stop_at_us {
                break;
            }
            let decision =
                Decision { tables: &tables, gpus: self.gpus, overlaps: self.overlaps, prefixes: &prefixes };
            match decision.raise((budget_us, labels), bracket, work) {
                Err(end) => return end,
                Ok(is_merged) => {
                    let is_joined = tables.ranges.len() < path.counts.len();
                    if !(is_merged || is_joined) || labels >= MAX_LABELS {
                        break;
                    }
                }
            }
            ranges *= 2;
            labels *= MORE_LABELS;
        }
        if bracket.bound_us >= bracket.stop_at_us { ProofEnd::Optimal } else { ProofEnd::Complete }
    }
}

impl Decision<'_> {
    /// Raises a bound by growing steps, then by bisection, with at most `labels` labels. Returns
    /// whether more labels may raise it further.
    fn raise(
        &self,
        (budget_us, labels): (f64, usize),
        bracket: &mut Bracket,
        work: &mut Work<'_>,
    ) -> Result<bool, ProofEnd> {
        let mut decide = |iteration_us: f64| {
            let gpu_us = budget_us.min(self.gpus * iteration_us);
            let answer = self.decide(Limits { iteration_us, gpu_us, labels }, work)?;
            if answer == Answer::Impossible {
                work.report(iteration_us);
            }
            Ok(answer)
        };
        let max_us = bracket.stop_at_us * (1.0 - ROUNDING);
        // Small times are excluded with few labels, so they are tried first, in growing steps.
        let (mut step, mut high_us) = (FIRST_STEP, f64::INFINITY);
        let mut answer = Answer::Possible;
        while high_us > bracket.bound_us * (1.0 + PRECISION) {
            let low_us = bracket.bound_us.max(f64::MIN_POSITIVE);
            let middle_us = (low_us * high_us).sqrt().min(low_us * (1.0 + step)).min(max_us);
            match decide(middle_us)? {
                Answer::Impossible if middle_us >= max_us => {
                    bracket.bound_us = bracket.stop_at_us;
                    return Ok(false);
                }
                Answer::Impossible => {
                    bracket.bound_us = middle_us;
                    step *= 2.0;
                }
                possible => (answer, high_us) = (possible, middle_us),
            }
        }
        Ok(answer == Answer::Unknown)
    }
}
