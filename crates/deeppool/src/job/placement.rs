//! A job's layers as operations that are placed on one device each.

use burst_planner::NodeId;
use burst_planner::placement::{Joined, PlacementProblem};
use layer_graph::LayerKind;

use super::Job;
use crate::Error;

impl Job<'_> {
    /// The layers but the input, each on one of so many GPUs, as a [placement problem](burst_planner::placement): normalisations,
    /// activations and what else does little stay with the layer before them, if that has no other consumer.
    ///
    /// # Errors
    /// When the profile lacks a time for the whole batch on one GPU.
    pub fn placement_problem(&self, gpus: usize) -> Result<Joined, Error> {
        let network = self.costs.network();
        let problem = self.training_problem(gpus, &[1])?;
        let placement = PlacementProblem::of_training(&problem, &self.training_costs(), gpus)?;
        // Nodes are the layers but the input.
        let follows = |NodeId(node): NodeId| {
            network.layers().nth(node + 1).is_some_and(|(_, layer)| stays_with_its_input(layer.kind()))
        };
        Ok(placement.joined(follows)?)
    }
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
