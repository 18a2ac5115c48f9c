//! The time of an iteration when all-reduces hide behind the backward pass.

use crate::order::program_order;
use crate::totals::chosen_options;
use crate::{NodeOption, PlanProblem, Result, Totals, evaluate};

/// Adds up what `choice` costs when all-reduces overlap with the backward pass.
///
/// The iteration takes as long as [`TimeModel::Overlap`](crate::TimeModel::Overlap) says, and GPU time is that of
/// [`evaluate`]. The problem must be valid ([`PlanProblem::validate`]). Time `O(n log n)` for `n` nodes and edges.
///
/// # Errors
/// As [`evaluate`].
///
/// # Example
/// ```
/// use burst_planner::{NodeOption, PlanProblem, evaluate, evaluate_overlap};
///
/// let mut problem = PlanProblem::new(2);
/// problem.single_gpu_us = Some(60.0);
/// let layer = || NodeOption::new(2, 30.0).with_backward_us(20.0).with_all_reduce_us(15.0);
/// let first = problem.add_node("first", [layer()]);
/// let second = problem.add_node("second", [layer()]);
/// problem.add_edge(first, second, vec![vec![0.0]]);
/// assert_eq!(evaluate(&problem, &[0, 0])?.iteration_us, 90.0);
/// // The all-reduce of `second` hides behind the backward pass of `first`, whose own comes too late for that.
/// assert_eq!(evaluate_overlap(&problem, &[0, 0])?.iteration_us, 75.0);
/// # Ok::<(), burst_planner::Error>(())
/// ```
pub fn evaluate_overlap(problem: &PlanProblem, choice: &[usize]) -> Result<Totals> {
    let additive = evaluate(problem, choice)?;
    let options = chosen_options(problem, choice)?;
    let all_reduces: f64 = options.iter().map(|option| option.all_reduce_us).sum();
    let iteration_us =
        additive.iteration_us - all_reduces + CommunicationLane::new(problem).exposed_us(choice, &options);
    Ok(Totals { iteration_us, ..additive })
}

/// The communication lane of a problem.
pub(super) struct CommunicationLane<'p> {
    problem: &'p PlanProblem,
    /// The nodes in program order.
    pub(super) order: Vec<usize>,
    /// By node: the edges to its consumers.
    pub(super) outgoing: Vec<Vec<usize>>,
}

impl<'p> CommunicationLane<'p> {
    pub(super) fn new(problem: &'p PlanProblem) -> Self {
        let mut outgoing = vec![Vec::new(); problem.nodes.len()];
        for (index, edge) in problem.edges.iter().enumerate() {
            outgoing[edge.from.0].push(index);
        }
        Self { problem, order: program_order(problem), outgoing }
    }

    /// How much longer the iteration takes than without all-reduces.
    pub(super) fn exposed_us(&self, choice: &[usize], options: &[&NodeOption]) -> f64 {
        let mut exposed_us = 0.0;
        let mut queue_us = 0.0_f64;
        for &node in self.order.iter().rev() {
            let takes_time = |&edge: &usize| {
                let edge = &self.problem.edges[edge];
                edge.transfer_us[choice[edge.from.0]][choice[edge.to.0]] > 0.0
            };
            if self.outgoing[node].iter().any(takes_time) {
                exposed_us += queue_us;
                queue_us = 0.0;
            }
            queue_us = (queue_us - options[node].backward_part_us()).max(0.0) + options[node].all_reduce_us;
        }
        exposed_us + queue_us
    }

    /// The position in program order from which on the lane is busy until the iteration ends, if transfers do not
    /// wait: the all-reduces up to there take longer than the backward passes before it, by more than from anywhere else.
    /// `None` when none is exposed.
    pub(super) fn busiest(&self, options: &[&NodeOption]) -> Option<usize> {
        let mut best = (0.0, None);
        let (mut reduced_us, mut backward_us) = (0.0, 0.0);
        for (position, &node) in self.order.iter().enumerate() {
            reduced_us += options[node].all_reduce_us;
            if reduced_us - backward_us > best.0 {
                best = (reduced_us - backward_us, Some(position));
            }
            backward_us += options[node].backward_part_us();
        }
        best.1
    }
}
