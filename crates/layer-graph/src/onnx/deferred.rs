//! Values that are not outputs of layers, or not yet: parts of what several nodes compute together.
//!
//! A node that may be the first of several that are one layer, such as a sigmoid that a product
//! makes a sigmoid linear unit, defines a deferred value. It becomes a layer where another node
//! reads it that needs one.

use super::function::Function;
use super::node::Node;
use super::scores::Scores;
use super::table::Table;
use super::view::View;
use crate::LayerKind;

/// Value with the way to make it a layer's output.
#[derive(Debug, Clone)]
pub(super) struct Deferred<'a> {
    /// Node that computes the value.
    pub(super) node: Node<'a>,
    /// Meaning of the value.
    pub(super) value: Value,
    /// Layer that computes the value.
    pub(super) replay: Replay,
    /// Length of the longest chain of deferred values that this one depends on.
    pub(super) depth: usize,
}

/// Meaning of a deferred value.
#[derive(Debug, Clone)]
pub(super) enum Value {
    /// Rearranged output of a layer.
    View(View),
    /// The second half of the features with the opposite sign, before the first half.
    HalfTurned(View),
    /// Product of a view, half-turned or not, with a table by position and feature.
    Turned {
        /// Factor that depends on the samples.
        view: View,
        /// Cosines or sines.
        table: Table,
        /// Whether the view is half-turned.
        is_half_turned: bool,
    },
    /// Function of the elements of a layer's output.
    Function(Function),
    /// Products of queries and keys.
    Scores(Scores),
    /// Softmax of the products of queries and keys.
    Weights(Scores),
    /// Whether the softmax of the products is not a number, as without any key.
    NotNumbers(Scores),
    /// Parts of a view: the axis along which it is split, and their lengths.
    Parts(View, usize, Vec<usize>),
    /// Random zeros and equal positive numbers.
    Mask(Mask),
}

/// Random numbers, uniform or compared with a probability.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Mask {
    /// Whether there is one number for all elements of a sample.
    pub(super) is_of_samples: bool,
    /// Probability of a number that is not 0; `None` for uniform numbers.
    pub(super) keep: Option<f64>,
    /// The number that is not 0.
    pub(super) scale: f64,
}

/// Layer that computes a deferred value, from the inputs of its node.
#[derive(Debug, Clone)]
pub(super) enum Replay {
    /// Layer of the given kind, of the node's first input.
    Kind(LayerKind),
    /// Layer of the given kind, of all inputs.
    Join(LayerKind),
    /// The layer that computes the first input.
    Same,
    /// None, for the given reason.
    None(String),
}
