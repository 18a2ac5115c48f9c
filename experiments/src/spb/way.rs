//! Ways to backpropagate, which are compared.

use deeppool::program::{PartialBackpropagation, PartialDepth};
use layer_graph::LayerGraph;

/// How far gradients go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Way {
    /// All samples go all the way.
    Whole,
    /// Parts of the batch in roles of their own, in turn.
    Parts(usize),
    /// The whole batch in the same role, in turn: what is skipped is skipped for all samples at once.
    Together(usize),
    /// The whole batch in a role that is drawn in each iteration.
    Random(usize),
    /// All samples down to this layer; those below stay as they are.
    Frozen(String),
}

impl Way {
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
