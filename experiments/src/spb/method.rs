//! Backpropagation methods that are compared. K is the number of roles, each of which
//! backpropagates to another depth.

use deeppool::program::{PartialBackpropagation, PartialDepth};
use layer_graph::LayerGraph;

/// Method of backpropagation: the layers and samples for which gradients are computed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Method {
    /// Full backpropagation: all layers and all samples.
    Whole,
    /// Structured partial backpropagation: K parts of the batch have different roles, which rotate
    /// from iteration to iteration. The value is K.
    Parts(usize),
    /// The whole batch has the same one of K roles, which rotates, so that a layer is skipped for
    /// all samples at once. The value is K.
    Together(usize),
    /// The whole batch has the same one of K roles, drawn at random in each iteration. The value is
    /// K.
    Random(usize),
    /// All samples are backpropagated down to the layer of this name. The layers before it are not
    /// trained.
    Frozen(String),
}

impl Method {
    /// Returns the name in tables and rows.
    pub(super) fn label(&self) -> String {
        match self {
            Self::Whole => "whole".into(),
            Self::Parts(parts) => format!("SPB, K = {parts}"),
            Self::Together(parts) => format!("skipped together, K = {parts}"),
            Self::Random(parts) => format!("skipped at random, K = {parts}"),
            Self::Frozen(layer) => format!("frozen below {layer}"),
        }
    }

    /// Returns the rule of partial backpropagation for a network, or `None` for full
    /// backpropagation.
    ///
    /// # Errors
    /// If the network cannot be divided into K parts, or has no such layer.
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
