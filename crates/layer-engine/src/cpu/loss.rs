//! Softmax and cross entropy. The *scores* are the inputs of the softmax, one for each class. A
//! *position* is a prediction with its own label: a sample has one, or one for each element of a
//! sequence. The *metrics* are those of `Role::Metrics`.

use super::Real;
use super::operation::{Operands, Operation};
use super::softmax::rows_grain;
use super::sums::{row_max, sum};
use super::workers::Workers;
use crate::{EngineError, LaunchContext};

/// Softmax and cross entropy. The loss of a sample is the mean over its positions. Saves the
/// probabilities of the classes. Fails with `EngineError::Label` if a label is not a class.
#[derive(Debug)]
pub(super) struct CrossEntropy {
    /// Name of the layer, for error messages.
    layer: String,
    classes: usize,
    /// Number of labels of a sample.
    positions: usize,
    pass: LossPass,
    workers: Workers,
    results: Vec<PositionResult>,
}

/// Pass of the loss layer, by its results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LossPass {
    /// Computes the losses and the metrics, and saves the probabilities.
    Forward,
    /// Computes the losses and the metrics only.
    Infer,
    /// Computes the gradient of the scores.
    Backward,
}

/// Loss and correctness of the prediction at one position.
#[derive(Debug, Clone, Copy, Default)]
struct PositionResult {
    loss: f64,
    correct: bool,
}

impl CrossEntropy {
    /// Creates a pass over `samples` samples of `positions` positions with `classes` scores each.
    /// `layer` is the name of the layer, for error messages.
    pub(super) fn new(
        layer: &str,
        classes: usize,
        positions: usize,
        samples: usize,
        pass: LossPass,
        workers: &Workers,
    ) -> Self {
        let count = if pass == LossPass::Backward { 0 } else { samples * positions };
        let results = vec![PositionResult::default(); count];
        Self { layer: layer.into(), classes, positions, pass, workers: workers.clone(), results }
    }

    /// Checks that every label is a class, so that the computation cannot fail.
    fn check<T: Real>(&self, labels: &[T]) -> Result<(), EngineError> {
        let is_class = |label: f64| label.fract() == 0.0 && (0.0..self.classes as f64).contains(&label);
        match labels.iter().map(|label| label.widen()).find(|&label| !is_class(label)) {
            Some(label) => {
                Err(EngineError::Label { layer: self.layer.clone(), label, classes: self.classes })
            }
            None => Ok(()),
        }
    }

    /// Returns the number of positions in a unit of work of one thread.
    fn grain(&self) -> usize {
        rows_grain(self.classes) / self.classes
    }

    fn forward<T: Real>(&mut self, scores: &[T], labels: &[T], saved: &mut [T]) {
        let (classes, grain) = (self.classes, self.grain());
        let results = (&mut self.results[..], grain);
        self.workers.chunk_pairs((saved, grain * classes), results, |index, saved, results| {
            let start = index * grain;
            let sources = scores[start * classes..].chunks_exact(classes).zip(&labels[start..]);
            let targets = saved.chunks_exact_mut(classes).zip(results);
            for ((scores, label), (saved, result)) in sources.zip(targets) {
                let best = row_max(scores);
                for (share, &score) in saved.iter_mut().zip(scores) {
                    *share = (score - best).exponential();
                }
                let total = sum(saved, T::widen);
                let factor = T::narrow(1.0 / total);
                for share in &mut *saved {
                    *share *= factor;
                }
                *result = position_result(scores, label.widen() as usize, best, total);
            }
        });
    }

    fn infer<T: Real>(&mut self, scores: &[T], labels: &[T]) {
        let (classes, grain) = (self.classes, self.grain());
        self.workers.chunks(&mut self.results, grain, |index, results| {
            let start = index * grain;
            let sources = scores[start * classes..].chunks_exact(classes).zip(&labels[start..]);
            for ((scores, label), result) in sources.zip(results) {
                let best = row_max(scores);
                let total = sum(scores, |score| (score - best).exponential().widen());
                *result = position_result(scores, label.widen() as usize, best, total);
            }
        });
    }

    /// Writes the loss of each sample, and as metrics the sum of the losses and the sum of the
    /// fractions of positions that are classified correctly.
    fn summarise<T: Real>(&self, losses: &mut [T], metrics: &mut [T]) {
        let mut totals = [0.0; 2];
        let count = self.positions as f64;
        for (loss, positions) in losses.iter_mut().zip(self.results.chunks_exact(self.positions)) {
            let mean = positions.iter().map(|position| position.loss).sum::<f64>() / count;
            let correct = positions.iter().filter(|position| position.correct).count();
            *loss = T::narrow(mean);
            totals[0] += mean;
            totals[1] += correct as f64 / count;
        }
        metrics.iter_mut().zip(totals).for_each(|(metric, total)| *metric = T::narrow(total));
    }

    fn backward<T: Real>(&self, [saved, labels, output_gradient]: [&[T]; 3], input_gradient: &mut [T]) {
        let (classes, grain) = (self.classes, self.grain());
        let share = T::narrow(1.0 / self.positions as f64);
        self.workers.chunks(input_gradient, grain * classes, |index, input_gradient| {
            let start = index * grain;
            let sources = saved[start * classes..].chunks_exact(classes).zip(start..);
            for (gradients, (saved, number)) in input_gradient.chunks_exact_mut(classes).zip(sources) {
                let scale = output_gradient[number / self.positions] * share;
                for (gradient, &probability) in gradients.iter_mut().zip(saved) {
                    *gradient = scale * probability;
                }
                gradients[labels[number].widen() as usize] -= scale;
            }
        });
    }
}

/// Computes the loss and the prediction at a position. `best` is the largest score; `total` is the
/// sum of `exp(score - best)`. The first of equal scores is the prediction.
fn position_result<T: Real>(scores: &[T], label: usize, best: T, total: f64) -> PositionResult {
    let loss = total.ln() - (scores[label] - best).widen();
    PositionResult { loss, correct: scores.iter().position(|&score| score == best) == Some(label) }
}

impl<T: Real> Operation<T> for CrossEntropy {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        match self.pass {
            LossPass::Forward => {
                let ([scores, labels], [losses, saved, metrics]) = operands.into_arrays()?;
                self.check(labels)?;
                self.forward(scores, labels, saved);
                self.summarise(losses, metrics);
            }
            LossPass::Infer => {
                let ([scores, labels], [losses, metrics]) = operands.into_arrays()?;
                self.check(labels)?;
                self.infer(scores, labels);
                self.summarise(losses, metrics);
            }
            LossPass::Backward => {
                let (reads, [input_gradient]) = operands.into_arrays()?;
                let [_, labels, _] = reads;
                self.check(labels)?;
                self.backward(reads, input_gradient);
            }
        }
        Ok(())
    }
}
