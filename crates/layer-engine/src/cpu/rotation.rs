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
    /// Number of features of a head, and of those that are rotated.
    width: usize,
    rotated: usize,
    /// Whether neighbouring features are rotated together, instead of those that are half of the
    /// rotated features apart.
    interleaved: bool,
    /// Cosine and sine of the angle of each pair of features, for one row after the other.
    turns: Vec<[T; 2]>,
    workers: Workers,
}

impl<T: Real> Rotation<T> {
    /// Creates the rotation of inputs of this shape, or its inverse if it is `backward`.
    pub(super) fn new(input: &Shape, rule: &RotaryEmbedding, backward: bool, workers: &Workers) -> Self {
        let (features, rotated) = (input.innermost(), rule.rotated_features());
        let half = rotated / 2;
        let turn = |index: usize| {
            let angle = rule.angle(index / half, index % half);
            [angle.cos(), if backward { -angle.sin() } else { angle.sin() }].map(T::narrow)
        };
        let turns = (0..input.elements() / features * half).map(turn).collect();
        let (width, interleaved) = (rule.width, rule.interleaved);
        Self { features, width, rotated, interleaved, turns, workers: workers.clone() }
    }
}

impl<T: Real> Operation<T> for Rotation<T> {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        let ([from], [to]) = operands.into_arrays()?;
        let (features, half) = (self.features, self.rotated / 2);
        let grain = rows_grain(features);
        self.workers.chunks(to, grain, |index, to| {
            let from = &from[index * grain..];
            let first = index * grain / features;
            for (row, (to, from)) in
                to.chunks_exact_mut(features).zip(from.chunks_exact(features)).enumerate()
            {
                let turns = &self.turns[(first + row) * half % self.turns.len()..][..half];
                for (to, from) in to.chunks_exact_mut(self.width).zip(from.chunks_exact(self.width)) {
                    let ((to, rest), (from, unchanged)) =
                        (to.split_at_mut(self.rotated), from.split_at(self.rotated));
                    rest.copy_from_slice(unchanged);
                    let turned =
                        |a: T, b: T, [cosine, sine]: [T; 2]| [a * cosine - b * sine, b * cosine + a * sine];
                    if self.interleaved {
                        let pairs = to.chunks_exact_mut(2).zip(from.chunks_exact(2));
                        for ((to, from), &turn) in pairs.zip(turns) {
                            to.copy_from_slice(&turned(from[0], from[1], turn));
                        }
                        continue;
                    }
                    let ((to_a, to_b), (from_a, from_b)) = (to.split_at_mut(half), from.split_at(half));
                    let pairs = to_a.iter_mut().zip(to_b).zip(from_a.iter().zip(from_b));
                    for (((to_a, to_b), (&a, &b)), &turn) in pairs.zip(turns) {
                        [*to_a, *to_b] = turned(a, b, turn);
                    }
                }
            }
        });
        Ok(())
    }
}
