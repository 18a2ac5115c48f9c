//! Hyper-parameters and sizes of additive attentions.

use serde::{Deserialize, Serialize};

use crate::Shape;

/// Hyper-parameters of an additive attention (Bahdanau, Cho and Bengio, "Neural Machine Translation
/// by Jointly Learning to Align and Translate", 2015).
///
/// The score of a key `k` for a query `q` is `sum(v * tanh(q + k))` over their units, with a
/// learned vector `v`. The output of a query is the mean of the values, weighted by the softmax of
/// its scores over the keys. The projections of queries and keys are [`Linear`](crate::Linear)
/// layers before it.
///
/// ```
/// use layer_graph::{AdditiveAttention, LayerGraph, Linear, Shape};
///
/// // Five queries attend to the ten outputs of an encoder, which are the values, too.
/// let mut network = LayerGraph::new("attention", Shape::sequence(5, 16))?;
/// let encoded = network.add_input("encoded", Shape::sequence(10, 24))?;
/// let queries = network.add("linear_q", Linear::new(32).without_bias(), [network.input()])?;
/// let keys = network.add("linear_k", Linear::new(32).without_bias(), [encoded])?;
/// let attention = AdditiveAttention::normalised();
/// let attention = network.add("attention", attention, [queries, keys, encoded])?;
/// assert_eq!(network.layer(attention).output_shape(), &Shape::sequence(5, 24));
/// assert_eq!(network.layer(attention).parameter_count(), 32 + 1 + 32);
/// # Ok::<(), layer_graph::GraphError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdditiveAttention {
    /// Whether `v` is divided by its Euclidean norm and multiplied by a learned factor, and a
    /// learned bias is added to `q + k`, as in the code of GNMT.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub normalised: bool,
}

impl AdditiveAttention {
    /// Creates an attention whose only parameter is the vector `v`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an attention with a normalised vector `v`, its factor and a bias.
    #[must_use]
    pub fn normalised() -> Self {
        Self { normalised: true }
    }

    /// Returns the number of elements that a sample saves for the backward pass: the weights. It is
    /// 0 if the inputs do not fit.
    #[must_use]
    pub fn saved(&self, inputs: &[Shape]) -> usize {
        self.sizes(inputs).map_or(0, |sizes| sizes.weights())
    }

    /// Returns the sizes of an attention with inputs of the given shapes, or `None` if it cannot be
    /// applied to them.
    #[must_use]
    pub fn sizes(&self, inputs: &[Shape]) -> Option<AdditiveSizes> {
        let sequences: Option<Vec<_>> = inputs.iter().map(Shape::as_sequence).collect();
        match sequences?[..] {
            [(positions, units), (key_positions, of_key), (values, features)]
                if units == of_key && key_positions == values =>
            {
                Some(AdditiveSizes { positions, key_positions, units, features })
            }
            _ => None,
        }
    }
}

/// Sizes of an additive attention for one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdditiveSizes {
    /// Number of positions of the queries and of the output.
    pub positions: usize,
    /// Number of positions of the keys and values.
    pub key_positions: usize,
    /// Number of units of a query and of a key.
    pub units: usize,
    /// Number of features of a value and of an output position.
    pub features: usize,
}

impl AdditiveSizes {
    /// Returns the number of weights: one for each pair of a query and a key.
    #[must_use]
    pub fn weights(&self) -> usize {
        self.positions.saturating_mul(self.key_positions)
    }
}
