//! Functions of each element of a layer's output, and of the mean of its row, that modules compute
//! in several nodes, such as `x * sigmoid(x)`.
//!
//! A function is known by its values at some points, which are also a row of the layer's output. So
//! it is recognised in whichever way it is written.

use std::rc::Rc;

use super::numbers::shortest_decimal;
use crate::{LayerId, LayerKind};

/// Maximum relative error of constants such as the square root of 2 in single precision.
const TOLERANCE: f64 = 1e-5;

/// Function of the output of a layer.
#[derive(Debug, Clone)]
pub(super) struct Function {
    /// Layer whose output is the argument.
    pub(super) of: LayerId,
    values: Rc<[f64]>,
    /// Whether the function depends on the mean of a row.
    depends_on_row: bool,
    /// Whether there is one value for each row instead of each element.
    pub(super) is_of_row: bool,
}

/// Kind of layer with its function.
type Activation = (LayerKind, fn(f64) -> f64);

/// Returns the points at which a function is known.
fn points() -> impl Iterator<Item = f64> {
    // Dense around the corners of hard activations, and up to where smooth ones are flat.
    (-40..=40).map(|i| f64::from(i) * 0.1625 + 0.011)
}

impl Function {
    /// Creates the function that returns its argument.
    pub(super) fn identity(of: LayerId) -> Self {
        Self { of, values: points().collect(), depends_on_row: false, is_of_row: false }
    }

    /// Applies a function to each value.
    pub(super) fn map(&self, function: impl Fn(f64) -> f64) -> Self {
        Self { values: self.values.iter().map(|&value| function(value)).collect(), ..self.clone() }
    }

    /// Combines the values of two functions of the same layer.
    pub(super) fn zip(&self, other: &Self, function: impl Fn(f64, f64) -> f64) -> Self {
        let pairs = self.values.iter().zip(&*other.values);
        Self {
            of: self.of,
            values: pairs.map(|(&left, &right)| function(left, right)).collect(),
            depends_on_row: self.depends_on_row || other.depends_on_row,
            is_of_row: self.is_of_row && other.is_of_row,
        }
    }

    /// Returns the mean of the row.
    pub(super) fn mean(&self) -> Self {
        let mean = self.values.iter().sum::<f64>() / self.values.len() as f64;
        Self { depends_on_row: true, is_of_row: true, ..self.map(|_| mean) }
    }

    /// Returns the kind of layer that computes the function.
    pub(super) fn kind(&self) -> Option<LayerKind> {
        if self.depends_on_row {
            return None;
        }
        let kinds: [Activation; 9] = [
            (LayerKind::Relu6, |x| x.clamp(0.0, 6.0)),
            (LayerKind::HardSigmoid, |x| (x / 6.0 + 0.5).clamp(0.0, 1.0)),
            (LayerKind::HardSwish, |x| x * (x / 6.0 + 0.5).clamp(0.0, 1.0)),
            (LayerKind::Gelu, |x| x * (1.0 + error_function(x / 2f64.sqrt())) / 2.0),
            (LayerKind::GeluTanh, |x| {
                x * sigmoid(2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3)))
            }),
            (LayerKind::QuickGelu, |x| x * sigmoid(1.702 * x)),
            (LayerKind::Silu, |x| x * sigmoid(x)),
            (LayerKind::Sigmoid, sigmoid),
            (LayerKind::Tanh, f64::tanh),
        ];
        let is_same = |(_, function): &Activation| {
            self.values.iter().zip(points()).all(|(&value, x)| is_close(value, function(x)))
        };
        kinds.into_iter().find(is_same).map(|(kind, _)| kind)
    }

    /// Returns the number by which the function multiplies its argument, if it does nothing else.
    pub(super) fn factor(&self) -> Option<f64> {
        let first = self.values[0] / points().next()?;
        let is_linear = self.values.iter().zip(points()).all(|(&value, x)| is_close(value, first * x));
        (is_linear && !self.depends_on_row).then_some(first)
    }

    /// Returns the epsilon of the root-mean-square normalisation, without weights, that the
    /// function is.
    pub(super) fn epsilon_of_norm(&self) -> Option<f64> {
        let count = self.values.len() as f64;
        let mean = points().map(|x| x * x).sum::<f64>() / count;
        let factor = self.values[0] / points().next()?;
        let is_norm = self.depends_on_row
            && !self.is_of_row
            && self.values.iter().zip(points()).all(|(&value, x)| is_close(value, factor * x));
        let epsilon = 1.0 / (factor * factor) - mean;
        let is_epsilon = 0.0 < epsilon && epsilon < 0.1;
        if !is_norm || !is_epsilon {
            return None;
        }
        // The difference has fewer digits than a number in single precision.
        let rounded = format!("{epsilon:.2e}").parse().unwrap_or(epsilon);
        let is_round = is_close(epsilon / rounded, 1.0);
        Some(if is_round { rounded } else { shortest_decimal(epsilon as f32) })
    }
}

fn is_close(left: f64, right: f64) -> bool {
    (left - right).abs() <= TOLERANCE * (1.0 + right.abs())
}

/// Returns the logistic function.
pub(super) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Returns the error function, with an error of at most 1.5e-7 (Abramowitz and Stegun, 7.1.26).
pub(super) fn error_function(x: f64) -> f64 {
    const TERMS: [f64; 5] = [0.254_829_592, -0.284_496_736, 1.421_413_741, -1.453_152_027, 1.061_405_429];
    let t = 1.0 / (1.0 + 0.327_591_1 * x.abs());
    let sum = TERMS.iter().rev().fold(0.0, |sum, term| (sum + term) * t);
    (1.0 - sum * (-x * x).exp()).copysign(x)
}
