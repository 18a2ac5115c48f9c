//! A job's layers as operations that are placed on one device each.

use burst_planner::NodeId;
use burst_planner::placement::{Joined, PlacementProblem};
use layer_graph::LayerKind;

use crate::Error;
use crate::job::{Job, JobCosts, PlannerNodes, plan_problem};

/// The layers but the input, each on one of so many GPUs, as a [placement problem](burst_planner::placement): normalisations,
/// activations and what else does little stay with the layer before them, if that has no other consumer.
///
/// # Errors
/// When the profile lacks a time for the whole batch on one GPU.
pub fn placement_problem(job: &Job<'_>, gpus: usize) -> Result<Joined, Error> {
    let network = job.costs().network();
    let problem = plan_problem(job, gpus, &[1])?;
    let placement = PlacementProblem::from_problem(&problem, &JobCosts::new(job), gpus)?;
    let nodes = PlannerNodes::new(network);
    let follows = |node: NodeId| stays_with_its_input(network.layer(nodes.layer(node)).kind());
    Ok(placement.joined(follows)?)
}

/// Whether a layer does so little that it runs where its input is computed.
fn stays_with_its_input(kind: &LayerKind) -> bool {
    matches!(
        kind,
        LayerKind::BatchNorm(_)
            | LayerKind::LayerNorm(_)
            | LayerKind::LocalResponseNorm(_)
            | LayerKind::Relu
            | LayerKind::Gelu
            | LayerKind::GeluTanh
            | LayerKind::Softmax
            | LayerKind::Flatten
            | LayerKind::Reshape(_)
            | LayerKind::Permute(_)
            | LayerKind::Select(_)
            | LayerKind::Dropout(_)
    )
}
