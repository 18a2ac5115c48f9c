//! Backpropagation methods that are compared.

use deeppool::program::{PartialBackpropagation, PartialDepth};
use layer_graph::LayerGraph;

/// Method: how far gradients are propagated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Method {
    /// All gradients of all samples.
    Whole,
    /// Parts of the batch have different roles, which rotate.
    Parts(usize),
    /// The whole batch has the same role, which rotates: skipped layers are skipped for all samples
    /// at once.
    Together(usize),
    /// The whole batch has the same role, drawn at random in each iteration.
    Random(usize),
    /// All samples down to this layer. The layers below are not trained.
    Frozen(String),
}

impl Method {
    pub(super) fn label(&self) -> String {
        match self {
            Self::Whole => "whole".into(),
            Self::Parts(parts) => format!("SPB, K = {parts}"),
            Self::Together(parts) => format!("skipped together, K = {parts}"),
            Self::Random(parts) => format!("skipped at random, K = {parts}"),
            Self::Frozen(layer) => format!("frozen below {layer}"),
        }
    }

    pub(super) fn partial(&self, network: &LayerGraph) -> anyhow::Result<Option<PartialBackpropagation>> {
        let of_parts = |parts: usize| PartialBackpropagation::new(network, parts, PartialDepth::Layers);
        Ok(match self {
            Self::Whole => None,
            Self::Parts(parts) => Some(of_parts(*parts)?),
            Self::Together(parts) => Some(of_parts(*parts)?.together()),
            Self::Random(parts) => Some(of_parts(*parts)?.together().at_random()),
            Self::Frozen(layer) => Some(PartialBackpropagation::frozen_below(network, layer)?),
        })
    }
}
