//! What the planner is about to offer.

use burst_planner::{
    Arrangement, Error, Result, Share, TrainingCosts, TrainingFrontier, TrainingPoint, TrainingProblem,
};

/// A step on the critical path of an iteration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathStep {
    /// What is done.
    pub kind: PathKind,
    /// Of which node; `None` for what belongs to several.
    pub node: Option<usize>,
    /// How much of the iteration it makes up, microseconds.
    pub time_us: f64,
}

/// What a step on the critical path does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathKind {
    /// A node's forward step.
    Forward,
    /// A node's backward step.
    Backward,
    /// The optimiser's step over a node's parameters.
    Update,
    /// Moving a node's output.
    Activations,
    /// Moving the gradient of a node's output.
    Gradient,
    /// Summing gradients of parameters.
    AllReduce,
    /// Summing what a node's ranks need of each other, as synchronised batch normalisation does.
    Synchronize,
    /// Summing the norm of all gradients.
    Norm,
    /// Summing the loss.
    Metrics,
    /// What the next iteration hides; negative.
    Overlap,
}

pub(super) fn path(
    problem: &TrainingProblem,
    costs: &impl TrainingCosts,
    arrangement: &Arrangement,
    iteration_us: f64,
) -> Vec<PathStep> {
    let mut steps = Vec::new();
    for &node in &arrangement.order {
        let ranks = arrangement.ranks[node].len();
        let times = costs.compute(node, ranks, Share::Larger).unwrap_or_default();
        let own = if problem.nodes[node].gradient_bytes > 0 { times.update_us } else { 0.0 };
        for (kind, time_us) in [
            (PathKind::Forward, times.forward_us),
            (PathKind::Backward, times.backward_us),
            (PathKind::Update, own),
        ] {
            steps.push(PathStep { kind, node: Some(node), time_us });
        }
    }
    let left_us = iteration_us - steps.iter().map(|step| step.time_us).sum::<f64>();
    let kind = if left_us < 0.0 { PathKind::Overlap } else { PathKind::AllReduce };
    steps.push(PathStep { kind, node: None, time_us: left_us });
    steps
}

pub(super) fn cheapest_within(frontier: &TrainingFrontier, deadline_us: f64) -> Result<&TrainingPoint> {
    if deadline_us.is_nan() || deadline_us < 0.0 {
        return Err(Error::BadDeadline { deadline_us });
    }
    let points = frontier.points();
    let after = points.partition_point(|point| point.time.iteration_us <= deadline_us);
    let smallest_us = points.first().map_or(f64::INFINITY, |point| point.time.iteration_us);
    after
        .checked_sub(1)
        .map(|last| &points[last])
        .ok_or(Error::DeadlineUnreachable { deadline_us, smallest_us })
}

pub(super) fn knee(frontier: &TrainingFrontier) -> &TrainingPoint {
    let product = |point: &&TrainingPoint| point.time.iteration_us * point.time.gpu_time_us;
    let points = frontier.points().iter();
    points.min_by(|a, b| product(a).total_cmp(&product(b))).unwrap_or(&frontier.points()[0])
}

/// The longest chain of nodes, each as short as it can be.
pub(super) fn lower_bound_us(problem: &TrainingProblem, costs: &impl TrainingCosts) -> f64 {
    let mut ends = vec![0.0_f64; problem.nodes.len()];
    for (node, of_node) in problem.nodes.iter().enumerate() {
        let times = of_node.gpu_counts.iter().filter_map(|&count| costs.compute(node, count, Share::Smaller));
        let least = times.map(|times| times.forward_us + times.backward_us).fold(f64::INFINITY, f64::min);
        ends[node] += least;
        for &(_, to) in problem.edges.iter().filter(|(from, _)| *from == node) {
            ends[to] = ends[to].max(ends[node]);
        }
    }
    ends.into_iter().fold(0.0, f64::max)
}
