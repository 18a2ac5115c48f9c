//! Hyper-parameters of recurrences, which compute the positions of a sequence one after the other.

use serde::{Deserialize, Serialize};

use crate::Shape;

/// Hyper-parameters of a recurrence, the recurrent part of an LSTM or of a GRU: the products of the
/// recurrent weights with the output of the position before, the gates and the state.
///
/// A layer of `torch.nn.LSTM` or `torch.nn.GRU` is a [`Linear`](crate::Linear) layer, which
/// multiplies all positions by the input weights at once, and a recurrence, which adds the products
/// of the recurrent weights. The gates of a position are next to each other, in PyTorch's order.
///
/// ```
/// use layer_graph::{LayerGraph, Linear, Recurrence, RecurrentCell, Shape};
///
/// // An LSTM of 32 cells over 10 positions of 16 features: as many parameters as
/// // `torch.nn.LSTM(16, 32)` has.
/// let mut network = LayerGraph::new("network", Shape::sequence(10, 16))?;
/// let gates = network.add("lstm.ih_l0", Linear::new(4 * 32), [network.input()])?;
/// let lstm = network.add("lstm.hh_l0", Recurrence::new(RecurrentCell::Lstm), [gates])?;
/// assert_eq!(network.layer(lstm).output_shape(), &Shape::sequence(10, 32));
/// assert_eq!(network.parameter_count(), 4 * 32 * (16 + 32) + 2 * 4 * 32);
/// # Ok::<(), layer_graph::GraphError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recurrence {
    /// Function of the gates and of the position before.
    pub cell: RecurrentCell,
    /// Whether a bias is added to the products of the recurrent weights.
    pub bias: bool,
    /// Whether positions are computed from the last to the first, as in the reverse direction of a
    /// bidirectional module. The position before another one is then the next one of the sequence.
    /// Outputs are at the positions of their inputs in both directions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reversed: bool,
}

impl Recurrence {
    /// Creates a recurrence with biases, from the first position to the last.
    #[must_use]
    pub fn new(cell: RecurrentCell) -> Self {
        Self { cell, bias: true, reversed: false }
    }

    /// Changes the order to that from the last position to the first.
    #[must_use]
    pub fn reversed(self) -> Self {
        Self { reversed: true, ..self }
    }

    /// Returns the sizes of a recurrence with an input of the given shape, or `None` if it is no
    /// sequence of all gates.
    #[must_use]
    pub fn sizes(&self, input: &Shape) -> Option<RecurrenceSizes> {
        let (positions, features) = input.as_sequence()?;
        let gates = self.cell.gates();
        (features % gates == 0).then(|| RecurrenceSizes { positions, gates, width: features / gates })
    }
}

/// Function that computes the output `h` of a position from its input, the gates `x`, and the
/// products of the recurrent weights, `p = W h' + b`. `h'` and `c'` are the output and the memory
/// of the position before, 0 for the first computed one. `sigmoid` is the logistic function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecurrentCell {
    /// Long short-term memory (Hochreiter and Schmidhuber, 1997), with a memory `c`:
    ///
    /// ```text
    /// i, f, o = sigmoid(x + p),  g = tanh(x + p)      gates in the order i, f, g, o
    /// c = f c' + i g,  h = o tanh(c)
    /// ```
    Lstm,
    /// Gated recurrent unit (Cho et al., 2014), as in PyTorch and cuDNN:
    ///
    /// ```text
    /// r, z = sigmoid(x + p),  n = tanh(x + r p)       gates in the order r, z, n
    /// h = (1 - z) n + z h'
    /// ```
    Gru,
}

impl RecurrentCell {
    /// Returns the number of gates.
    #[must_use]
    pub fn gates(self) -> usize {
        match self {
            Self::Lstm => 4,
            Self::Gru => 3,
        }
    }

    /// Returns the number of values that are saved for each output element for the backward pass:
    /// the gates, and the memory of an LSTM or the last gate's `p` of a GRU.
    #[must_use]
    pub fn saved(self) -> usize {
        self.gates() + 1
    }

    /// Returns the floating-point operations of an output element beside the products, with 10 for
    /// a logistic function or a hyperbolic tangent.
    pub(crate) fn flops(self) -> u64 {
        match self {
            // Five functions, four sums of `x` and `p`, three products and a sum.
            Self::Lstm => 5 * 10 + 4 + 4,
            // Three functions, three sums of `x` and `p`, a product, and the mean of `n` and `h'`.
            Self::Gru => 3 * 10 + 4 + 4,
        }
    }
}

/// Sizes of a recurrence for one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecurrenceSizes {
    /// Number of positions.
    pub positions: usize,
    /// Number of gates.
    pub gates: usize,
    /// Number of features of a gate, and of the output.
    pub width: usize,
}
