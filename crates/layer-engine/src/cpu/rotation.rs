//! Rotary position embeddings.

use layer_graph::{RotaryEmbedding, Shape};

use super::Real;
use super::operation::{Operands, Operation};
use super::softmax::rows_grain;
use super::workers::Workers;
use crate::{EngineError, LaunchContext};

/// Rotation of the features of each head by angles that grow with the position, or the inverse
/// rotation, which is its gradient.
#[derive(Debug)]
pub(super) struct Rotation<T> {
    /// Number of elements of a row: of a position of a sample.
    features: usize,
    /// Number of features of a head.
    width: usize,
    /// Cosine and sine of the angle of each pair of features, for one row after the other.
    turns: Vec<[T; 2]>,
    workers: Workers,
}

impl<T: Real> Rotation<T> {
    /// Creates the rotation of inputs of this shape, or its inverse if it is `backward`.
    pub(super) fn new(input: &Shape, rule: &RotaryEmbedding, backward: bool, workers: &Workers) -> Self {
        let (features, half) = (input.innermost(), rule.width / 2);
        let turn = |index: usize| {
            let angle = rule.angle(index / half, index % half);
            [angle.cos(), if backward { -angle.sin() } else { angle.sin() }].map(T::narrow)
        };
        let turns = (0..input.elements() / features * half).map(turn).collect();
        Self { features, width: rule.width, turns, workers: workers.clone() }
    }
}

impl<T: Real> Operation<T> for Rotation<T> {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        let ([from], [to]) = operands.into_arrays()?;
        let (features, half) = (self.features, self.width / 2);
        let grain = rows_grain(features);
        self.workers.chunks(to, grain, |index, to| {
            let from = &from[index * grain..];
            let first = index * grain / features;
            for (row, (to, from)) in
                to.chunks_exact_mut(features).zip(from.chunks_exact(features)).enumerate()
            {
                let turns = &self.turns[(first + row) * half % self.turns.len()..][..half];
                for (to, from) in to.chunks_exact_mut(2 * half).zip(from.chunks_exact(2 * half)) {
                    let ((to_a, to_b), (from_a, from_b)) = (to.split_at_mut(half), from.split_at(half));
                    let pairs = to_a.iter_mut().zip(to_b).zip(from_a.iter().zip(from_b));
                    for (((to_a, to_b), (&a, &b)), &[cosine, sine]) in pairs.zip(turns) {
                        (*to_a, *to_b) = (a * cosine - b * sine, b * cosine + a * sine);
                    }
                }
            }
        });
        Ok(())
    }
}
