//! Gaussian error linear units: `x * gate(x)`. Operations hold the gate and the threads that the
//! elements are distributed over.

use super::Real;
use super::elementwise::GRAIN;
use super::operation::{Operands, Operation};
use super::workers::Workers;
use crate::{EngineError, LaunchContext};

/// Gate of a Gaussian error linear unit, a function that rises from 0 to 1. Each gate is a type, so
/// that loops over it have no branch.
pub(super) trait Gate: Send + Sync {
    /// Returns the gate at `x`, and its derivative.
    fn evaluate<T: Real>(x: T) -> (T, T);
}

/// Exact gate: the normal distribution `(1 + erf(x / sqrt(2))) / 2`. Its derivative is the density
/// `exp(-x^2 / 2) / sqrt(2 pi)`.
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

/// Approximation by a hyperbolic tangent: `sigmoid(u) = (1 + tanh(u / 2)) / 2` with `u = sqrt(8 /
/// pi) * (x + 0.044715 x^3)`.
#[derive(Debug)]
pub(super) struct TanhGate;

impl Gate for TanhGate {
    #[allow(clippy::inline_always, reason = "a call in the loop keeps it from vector instructions")]
    #[inline(always)]
    fn evaluate<T: Real>(x: T) -> (T, T) {
        let (scale, cubic) = (T::narrow(1.595_769_121_605_730_8), T::narrow(0.044_715));
        let square = x * x;
        let argument = scale * x * (T::one() + cubic * square);
        let gate = T::one() / (T::one() + (-argument).exponential());
        let slope = scale * (T::one() + T::narrow(3.0) * cubic * square);
        (gate, gate * (T::one() - gate) * slope)
    }
}

/// Forward pass of the Gaussian error linear unit with a gate, on the given threads.
#[derive(Debug)]
pub(super) struct GeluForward<G>(pub(super) G, pub(super) Workers);

impl<T: Real, G: Gate> Operation<T> for GeluForward<G> {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        let ([input], [output]) = operands.into_arrays()?;
        self.1.chunks(output, GRAIN, |index, output| {
            let input = &input[index * GRAIN..];
            output.iter_mut().zip(input).for_each(|(y, &x)| *y = x * G::evaluate(x).0);
        });
        Ok(())
    }
}

/// Backward pass of the Gaussian error linear unit with a gate, from its input, on the given
/// threads.
#[derive(Debug)]
pub(super) struct GeluBackward<G>(pub(super) G, pub(super) Workers);

impl<T: Real, G: Gate> Operation<T> for GeluBackward<G> {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        let ([input, output_gradient], [input_gradient]) = operands.into_arrays()?;
        self.1.chunks(input_gradient, GRAIN, |index, input_gradient| {
            let start = index * GRAIN;
            let sources = input[start..].iter().zip(&output_gradient[start..]);
            for (dx, (&x, &dy)) in input_gradient.iter_mut().zip(sources) {
                let (gate, slope) = G::evaluate(x);
                *dx = dy * (gate + x * slope);
            }
        });
        Ok(())
    }
}
