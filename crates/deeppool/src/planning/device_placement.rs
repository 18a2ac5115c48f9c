//! Device placement: the layers of a job as operations that run on one device each (model
//! parallelism).

use burst_planner::NodeId;
use burst_planner::placement::{Joined, PlacementProblem};
use layer_graph::LayerKind;

use crate::Error;
use crate::job::{Job, JobCosts, PlannerNodes, plan_problem};

/// Returns the layers, except the input, as a [placement problem](burst_planner::placement) on
/// `gpus` devices: each layer runs on one device with the whole batch. Normalisations, activations
/// and other layers with little work are joined with the layer before them, unless another layer
/// reads its output too.
///
/// # Errors
/// [`Error::Profile`] if the profile lacks a time for the whole batch on one GPU.
pub fn placement_problem(job: &Job<'_>, gpus: usize) -> Result<Joined, Error> {
    let network = job.costs().network();
    let problem = plan_problem(job, gpus, &[1])?;
    let placement = PlacementProblem::from_problem(&problem, &JobCosts::new(job), gpus)?;
    let nodes = PlannerNodes::new(network);
    let follows = |node: NodeId| is_joined_with_its_input(network.layer(nodes.layer(node)).kind());
    Ok(placement.joined(follows)?)
}

/// Returns whether a layer has so little work that it runs where its input is computed.
fn is_joined_with_its_input(kind: &LayerKind) -> bool {
    matches!(
        kind,
        LayerKind::BatchNorm(_)
            | LayerKind::LayerNorm(_)
            | LayerKind::RmsNorm(_)
            | LayerKind::GroupNorm(_)
            | LayerKind::LocalResponseNorm(_)
            | LayerKind::RotaryEmbedding(_)
            | LayerKind::Softmax
            | LayerKind::Flatten
            | LayerKind::Pad(_)
            | LayerKind::Reshape(_)
            | LayerKind::Permute(_)
            | LayerKind::Select(_)
            | LayerKind::Slice(_)
            | LayerKind::Scale(_)
            | LayerKind::Dropout(_)
    ) || kind.is_activation()
}
