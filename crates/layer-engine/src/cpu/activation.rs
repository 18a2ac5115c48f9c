//! Activations other than the rectifier. Operations hold the function and the threads that the
//! elements are distributed over. Each function is a type, so that loops over it have no branch.

use super::Real;
use super::elementwise::GRAIN;
use super::operation::{Operands, Operation};
use super::workers::Workers;
use crate::{EngineError, LaunchContext};

/// Function of one number.
pub(super) trait Function: Send + Sync + 'static {
    /// Returns the function at `x`.
    fn evaluate<T: Real>(&self, x: T) -> T;

    /// Returns the derivative as a function of the operand that the backward pass reads: the input
    /// or the output.
    fn derivative<T: Real>(&self, operand: T) -> T;
}

/// Factor of a unit `x * gate(x)`, a function that rises from 0 to 1.
pub(super) trait Gate: Send + Sync + 'static {
    /// Returns the gate at `x`, and its derivative.
    fn evaluate<T: Real>(x: T) -> (T, T);
}

impl<G: Gate> Function for G {
    #[allow(clippy::inline_always, reason = "a call in the loop keeps it from vector instructions")]
    #[inline(always)]
    fn evaluate<T: Real>(&self, x: T) -> T {
        x * <G as Gate>::evaluate(x).0
    }

    #[allow(clippy::inline_always, reason = "a call in the loop keeps it from vector instructions")]
    #[inline(always)]
    fn derivative<T: Real>(&self, x: T) -> T {
        let (gate, slope) = <G as Gate>::evaluate(x);
        gate + x * slope
    }
}

/// Gate of the Gaussian error linear unit: the normal distribution `(1 + erf(x / sqrt(2))) / 2`.
/// Its derivative is the density `exp(-x^2 / 2) / sqrt(2 pi)`.
#[derive(Debug)]
pub(super) struct NormalGate;

impl Gate for NormalGate {
    #[allow(clippy::inline_always, reason = "a call in the loop keeps it from vector instructions")]
    #[inline(always)]
    fn evaluate<T: Real>(x: T) -> (T, T) {
        let half = T::narrow(0.5);
        let gate = half + half * (x * T::narrow(std::f64::consts::FRAC_1_SQRT_2)).error_function();
        (gate, T::narrow(0.398_942_280_401_432_7) * (-half * x * x).exponential())
    }
}

/// Approximation of [`NormalGate`] by a hyperbolic tangent: `sigmoid(u) = (1 + tanh(u / 2)) / 2`
/// with `u = sqrt(8 / pi) * (x + 0.044715 x^3)`.
#[derive(Debug)]
pub(super) struct TanhGate;

impl Gate for TanhGate {
    #[allow(clippy::inline_always, reason = "a call in the loop keeps it from vector instructions")]
    #[inline(always)]
    fn evaluate<T: Real>(x: T) -> (T, T) {
        let (scale, cubic) = (T::narrow(1.595_769_121_605_730_8), T::narrow(0.044_715));
        let square = x * x;
        let gate = logistic(scale * x * (T::one() + cubic * square));
        let slope = scale * (T::one() + T::narrow(3.0) * cubic * square);
        (gate, gate * (T::one() - gate) * slope)
    }
}

/// Approximation of [`NormalGate`] by `sigmoid(1.702 x)`.
#[derive(Debug)]
pub(super) struct QuickGate;

impl Gate for QuickGate {
    #[allow(clippy::inline_always, reason = "a call in the loop keeps it from vector instructions")]
    #[inline(always)]
    fn evaluate<T: Real>(x: T) -> (T, T) {
        let scale = T::narrow(1.702);
        let gate = logistic(scale * x);
        (gate, gate * (T::one() - gate) * scale)
    }
}

/// Gate of the sigmoid linear unit: `sigmoid(x)`.
#[derive(Debug)]
pub(super) struct SigmoidGate;

impl Gate for SigmoidGate {
    #[allow(clippy::inline_always, reason = "a call in the loop keeps it from vector instructions")]
    #[inline(always)]
    fn evaluate<T: Real>(x: T) -> (T, T) {
        let gate = logistic(x);
        (gate, gate * (T::one() - gate))
    }
}

/// Gate of the hard swish: [`HardSigmoid`].
#[derive(Debug)]
pub(super) struct HardGate;

impl Gate for HardGate {
    #[allow(clippy::inline_always, reason = "a call in the loop keeps it from vector instructions")]
    #[inline(always)]
    fn evaluate<T: Real>(x: T) -> (T, T) {
        let gate = HardSigmoid.evaluate(x);
        (gate, HardSigmoid.derivative(gate))
    }
}

/// Line from 0 at -3 to 1 at 3, constant outside. Its derivative is a function of the output.
#[derive(Debug)]
pub(super) struct HardSigmoid;

impl Function for HardSigmoid {
    #[allow(clippy::inline_always, reason = "a call in the loop keeps it from vector instructions")]
    #[inline(always)]
    fn evaluate<T: Real>(&self, x: T) -> T {
        between(x * T::narrow(1.0 / 6.0) + T::narrow(0.5), T::one())
    }

    #[allow(clippy::inline_always, reason = "a call in the loop keeps it from vector instructions")]
    #[inline(always)]
    fn derivative<T: Real>(&self, y: T) -> T {
        if y > T::zero() && y < T::one() { T::narrow(1.0 / 6.0) } else { T::zero() }
    }
}

/// Rectifier with outputs of at most 6. Its derivative is a function of the output.
#[derive(Debug)]
pub(super) struct Relu6;

impl Function for Relu6 {
    #[allow(clippy::inline_always, reason = "a call in the loop keeps it from vector instructions")]
    #[inline(always)]
    fn evaluate<T: Real>(&self, x: T) -> T {
        between(x, T::narrow(6.0))
    }

    #[allow(clippy::inline_always, reason = "a call in the loop keeps it from vector instructions")]
    #[inline(always)]
    fn derivative<T: Real>(&self, y: T) -> T {
        if y > T::zero() && y < T::narrow(6.0) { T::one() } else { T::zero() }
    }
}

/// Rectifier with this slope of at least 0 for negative inputs. Its derivative is a function of the
/// output.
#[derive(Debug)]
pub(super) struct LeakyRelu(pub(super) f64);

impl Function for LeakyRelu {
    #[allow(clippy::inline_always, reason = "a call in the loop keeps it from vector instructions")]
    #[inline(always)]
    fn evaluate<T: Real>(&self, x: T) -> T {
        x * self.derivative(x)
    }

    #[allow(clippy::inline_always, reason = "a call in the loop keeps it from vector instructions")]
    #[inline(always)]
    fn derivative<T: Real>(&self, y: T) -> T {
        if y > T::zero() { T::one() } else { T::narrow(self.0) }
    }
}

/// Logistic function. Its derivative is a function of the output.
#[derive(Debug)]
pub(super) struct Sigmoid;

impl Function for Sigmoid {
    #[allow(clippy::inline_always, reason = "a call in the loop keeps it from vector instructions")]
    #[inline(always)]
    fn evaluate<T: Real>(&self, x: T) -> T {
        logistic(x)
    }

    #[allow(clippy::inline_always, reason = "a call in the loop keeps it from vector instructions")]
    #[inline(always)]
    fn derivative<T: Real>(&self, y: T) -> T {
        y * (T::one() - y)
    }
}

/// Hyperbolic tangent. Its derivative is a function of the output.
#[derive(Debug)]
pub(super) struct Tanh;

impl Function for Tanh {
    #[allow(clippy::inline_always, reason = "a call in the loop keeps it from vector instructions")]
    #[inline(always)]
    fn evaluate<T: Real>(&self, x: T) -> T {
        x.hyperbolic_tangent()
    }

    #[allow(clippy::inline_always, reason = "a call in the loop keeps it from vector instructions")]
    #[inline(always)]
    fn derivative<T: Real>(&self, y: T) -> T {
        T::one() - y * y
    }
}

/// Returns the number from 0 to `limit` that is closest to `x`. NaN stays NaN.
#[allow(clippy::inline_always, reason = "a call in the loop keeps it from vector instructions")]
#[inline(always)]
fn between<T: Real>(x: T, limit: T) -> T {
    let x = if x < T::zero() { T::zero() } else { x };
    if x > limit { limit } else { x }
}

/// Returns `1 / (1 + exp(-x))`.
#[allow(clippy::inline_always, reason = "a call in the loop keeps it from vector instructions")]
#[inline(always)]
pub(super) fn logistic<T: Real>(x: T) -> T {
    T::one() / (T::one() + (-x).exponential())
}

/// Forward pass of an activation, on the given threads.
#[derive(Debug)]
pub(super) struct ActivationForward<F>(pub(super) F, pub(super) Workers);

impl<T: Real, F: Function> Operation<T> for ActivationForward<F> {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        let ([input], [output]) = operands.into_arrays()?;
        let Self(function, workers) = self;
        workers.chunks(output, GRAIN, |index, output| {
            let input = &input[index * GRAIN..];
            output.iter_mut().zip(input).for_each(|(y, &x)| *y = function.evaluate(x));
        });
        Ok(())
    }
}

/// Backward pass of an activation, from its input or output, on the given threads.
#[derive(Debug)]
pub(super) struct ActivationBackward<F>(pub(super) F, pub(super) Workers);

impl<T: Real, F: Function> Operation<T> for ActivationBackward<F> {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        let ([operand, output_gradient], [input_gradient]) = operands.into_arrays()?;
        let Self(function, workers) = self;
        workers.chunks(input_gradient, GRAIN, |index, input_gradient| {
            let start = index * GRAIN;
            let sources = operand[start..].iter().zip(&output_gradient[start..]);
            for (dx, (&operand, &dy)) in input_gradient.iter_mut().zip(sources) {
                *dx = dy * function.derivative(operand);
            }
        });
        Ok(())
    }
}
