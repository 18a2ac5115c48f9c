//! Hyper-parameters of a mixture of experts: perceptrons of which a router chooses some for each
//! position.

use serde::{Deserialize, Serialize};

use crate::{LayerKind, Shape};

/// Hyper-parameters of a sparse mixture of experts (Shazeer et al., "Outrageously large neural
/// networks", 2017), as in Mixtral.
///
/// Two inputs: `positions x features`, or a vector of features; and the scores of the router,
/// `positions x experts`, or a vector. The router is a [`Linear`](crate::Linear) layer without
/// bias. Output: the shape of the first input.
///
/// The weight of an expert is its softmax over the scores of all experts. For each position, the
/// experts with the largest scores are chosen; of equal ones, those with the lower index. The
/// output is the sum over the chosen experts of the weight times the expert's perceptron: `down
/// (activation(gate x) * (up x))`, or `down activation(up x)` without a gate.
///
/// Parameters, in the layout of `transformers`: `gate_up_proj`, `experts x 2 width x features`, the
/// rows of the gate before those of the values; or `up_proj`, `experts x width x features`; and
/// `down_proj`, `experts x features x width`. There are no biases.
///
/// ```
/// use layer_graph::{LayerGraph, Linear, MixtureOfExperts, Shape};
///
/// let mut network = LayerGraph::new("network", Shape::sequence(10, 16))?;
/// let input = network.input();
/// let scores = network.add("mlp.gate", Linear::new(8).without_bias(), [input])?;
/// let experts = network.add("mlp.experts", MixtureOfExperts::new(8, 2, 64), [input, scores])?;
/// assert_eq!(network.layer(experts).output_shape(), &Shape::sequence(10, 16));
/// assert_eq!(network.layer(experts).parameter_count(), 8 * 3 * 64 * 16);
/// # Ok::<(), layer_graph::GraphError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixtureOfExperts {
    /// Number of experts.
    pub experts: usize,
    /// Number of experts that are chosen for a position, from 1 to the number of experts.
    pub chosen: usize,
    /// Number of features between the two products of an expert.
    pub width: usize,
    /// Function between the two products of an expert.
    #[serde(default)]
    pub activation: ExpertActivation,
    /// Whether the activation of a second product, the gate, multiplies the values.
    #[serde(default = "yes")]
    pub gated: bool,
    /// Whether the weights of a position's chosen experts are divided by their sum.
    #[serde(default = "yes")]
    pub normalised: bool,
    /// Maximum number of positions of a sample for an expert, at least 1, or `None` for no limit.
    /// Positions in excess, in their order, have nothing from the expert, and the weights of their
    /// other experts stay the same. It is a limit for each sample, so that results do not depend on
    /// the split of a batch. In `GShard` (Lepikhin et al., 2020, section 2.2), first choices of all
    /// positions come before second ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<usize>,
}

/// Function between the two products of an expert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpertActivation {
    /// [`LayerKind::Relu`].
    Relu,
    /// [`LayerKind::Gelu`].
    Gelu,
    /// [`LayerKind::GeluTanh`].
    GeluTanh,
    /// [`LayerKind::Silu`].
    #[default]
    Silu,
}

impl ExpertActivation {
    /// Returns the kind of layer that computes the function.
    #[must_use]
    pub fn kind(self) -> LayerKind {
        match self {
            Self::Relu => LayerKind::Relu,
            Self::Gelu => LayerKind::Gelu,
            Self::GeluTanh => LayerKind::GeluTanh,
            Self::Silu => LayerKind::Silu,
        }
    }

    /// Returns the number of floating-point operations for an element.
    pub(crate) fn flops(self) -> u64 {
        if self == Self::Relu { 1 } else { 10 }
    }
}

/// Sizes of a mixture of experts for one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertSizes {
    /// Number of positions, 1 for a vector.
    pub positions: usize,
    /// Number of features of a position.
    pub features: usize,
    /// Maximum number of pairs of a position and an expert that computes it. Without a capacity,
    /// the number of pairs.
    pub pairs: usize,
}

impl MixtureOfExperts {
    /// Creates a mixture of gated experts with sigmoid linear units, normalised weights and no
    /// limit of positions, as in Mixtral.
    #[must_use]
    pub fn new(experts: usize, chosen: usize, width: usize) -> Self {
        Self {
            experts,
            chosen,
            width,
            activation: ExpertActivation::default(),
            gated: true,
            normalised: true,
            capacity: None,
        }
    }

    /// Sets the maximum number of positions of a sample for an expert.
    #[must_use]
    pub fn with_capacity(mut self, positions: usize) -> Self {
        self.capacity = Some(positions);
        self
    }

    /// Returns the number of rows of an expert's first matrix: those of the gate, if there is one,
    /// and those of the values.
    #[must_use]
    pub fn inner_rows(&self) -> usize {
        if self.gated { self.width.saturating_mul(2) } else { self.width }
    }

    /// Returns the sizes of a mixture with inputs of the given shapes, or `None` if they do not
    /// fit.
    #[must_use]
    pub fn sizes(&self, inputs: &[Shape]) -> Option<ExpertSizes> {
        let [input, scores] = inputs else { return None };
        let (outer, features) = match input.dims() {
            [outer @ .., features] if outer.len() <= 1 => (outer, *features),
            _ => return None,
        };
        if scores.dims().split_last() != Some((&self.experts, outer)) {
            return None;
        }
        let positions = outer.first().copied().unwrap_or(1);
        let pairs = self.max_pairs(positions);
        Some(ExpertSizes { positions, features, pairs })
    }

    /// Returns the number of elements that a sample saves for the backward pass: the results of
    /// each pair's first product. It is 0 if the inputs do not fit.
    #[must_use]
    pub fn saved(&self, inputs: &[Shape]) -> usize {
        self.sizes(inputs).map_or(0, |sizes| sizes.pairs.saturating_mul(self.inner_rows()))
    }

    /// Returns the maximum number of pairs of a position and an expert that computes it, for a
    /// number of positions of a sample.
    fn max_pairs(&self, positions: usize) -> usize {
        let chosen = positions.saturating_mul(self.chosen);
        self.capacity.map_or(chosen, |capacity| chosen.min(capacity.saturating_mul(self.experts)))
    }

    /// Returns the floating-point operations of a sample: the softmax of the scores, and for each
    /// pair both products, the activation, the product with the gate, and the weighted sum.
    pub(crate) fn flops(&self, sizes: ExpertSizes) -> u64 {
        let times = u64::saturating_mul;
        let ExpertSizes { positions, features, pairs } = sizes;
        let [features, width] = [features, self.width].map(|size| size as u64);
        let matrices = if self.gated { 3 } else { 2 };
        let products = times(times(2 * matrices, features), width);
        let functions = times(width, self.activation.flops() + u64::from(self.gated));
        let of_pair = products.saturating_add(functions).saturating_add(times(2, features));
        times(5, times(positions as u64, self.experts as u64)).saturating_add(times(pairs as u64, of_pair))
    }
}

fn yes() -> bool {
    true
}
