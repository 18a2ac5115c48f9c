//! Softmax and cross entropy. The *scores* are the inputs of the softmax, one for each class. A
//! *position* is a prediction with its own label: a sample has one, or one for each element of a
//! sequence. The *metrics* are those of `Role::Metrics`.

use layer_graph::Layer;

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
    /// Number of positions over which the loss of a sample is a mean: more than its labels if the
    /// layer is a part of another one.
    mean_positions: usize,
    pass: LossPass,
    workers: Workers,
    results: Vec<PositionResult>,
}

/// Pass of the loss layer, by its results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LossPass {
    /// Computes the losses and the metrics, and saves the probabilities.
    Forward,
    /// Computes the losses and the metrics, and replaces the scores.
    ForwardInPlace(InPlace),
    /// Computes the losses and the metrics only.
    Infer,
    /// Computes the gradient of the scores.
    Backward,
    /// Replaces what the forward pass left by the gradient of the scores.
    BackwardInPlace(InPlace),
}

/// Values that replace the scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InPlace {
    /// Probabilities of the classes.
    Probabilities,
    /// Probabilities of the classes, minus one for the label. They are the gradient but for a
    /// factor: if they are rounded, its relative error does not grow as the loss becomes small.
    Errors,
}

/// Loss and correctness of the prediction at one position.
#[derive(Debug, Clone, Copy, Default)]
struct PositionResult {
    loss: f64,
    correct: bool,
}

impl CrossEntropy {
    /// Creates a pass of a layer over `samples` samples.
    pub(super) fn new(layer: &Layer, samples: usize, pass: LossPass, workers: &Workers) -> Self {
        let (classes, positions) = (layer.input_shapes()[0].innermost(), layer.label_count());
        let is_backward = matches!(pass, LossPass::Backward | LossPass::BackwardInPlace(_));
        let results = vec![PositionResult::default(); if is_backward { 0 } else { samples * positions }];
        Self {
            layer: layer.name().into(),
            classes,
            positions,
            mean_positions: layer.mean_positions(),
            pass,
            workers: workers.clone(),
            results,
        }
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

    /// Computes the results of all positions, and the probabilities (or the values of the pass in
    /// place) in `shares`, which holds the scores if `scores` is `None`.
    fn forward<T: Real>(&mut self, scores: Option<&[T]>, labels: &[T], shares: &mut [T]) {
        let (classes, grain) = (self.classes, self.grain());
        let errors = self.pass == LossPass::ForwardInPlace(InPlace::Errors);
        let results = (&mut self.results[..], grain);
        self.workers.chunk_pairs((shares, grain * classes), results, |index, shares, results| {
            let start = index * grain;
            copy_part(scores, start * classes, shares);
            let positions = shares.chunks_exact_mut(classes).zip(&labels[start..]);
            for ((shares, label), result) in positions.zip(results) {
                let best = row_max(shares);
                let prediction = Prediction::new(shares, label.widen() as usize, best);
                for share in &mut *shares {
                    *share = (*share - best).exponential();
                }
                let total = sum(shares, T::widen);
                let factor = T::narrow(1.0 / total);
                for share in &mut *shares {
                    *share *= factor;
                }
                if errors {
                    shares[label.widen() as usize] -= T::one();
                }
                *result = prediction.result(total);
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
                *result = Prediction::new(scores, label.widen() as usize, best).result(total);
            }
        });
    }

    /// Writes the loss of each sample, and as metrics the sum of the losses and the sum of the
    /// fractions of positions that are classified correctly.
    fn summarise<T: Real>(&self, losses: &mut [T], metrics: &mut [T]) {
        let mut totals = [0.0; 2];
        let count = self.mean_positions as f64;
        for (loss, positions) in losses.iter_mut().zip(self.results.chunks_exact(self.positions)) {
            let mean = positions.iter().map(|position| position.loss).sum::<f64>() / count;
            let correct = positions.iter().filter(|position| position.correct).count();
            *loss = T::narrow(mean);
            totals[0] += mean;
            totals[1] += correct as f64 / count;
        }
        metrics.iter_mut().zip(totals).for_each(|(metric, total)| *metric = T::narrow(total));
    }

    /// Computes the gradient of the scores in `gradients`, which holds the values of the pass in
    /// place if `saved` is `None`.
    fn backward<T: Real>(
        &self,
        saved: Option<&[T]>,
        [labels, output_gradient]: [&[T]; 2],
        gradients: &mut [T],
    ) {
        let (classes, grain) = (self.classes, self.grain());
        let share = T::narrow(1.0 / self.mean_positions as f64);
        let errors = self.pass == LossPass::BackwardInPlace(InPlace::Errors);
        self.workers.chunks(gradients, grain * classes, |index, gradients| {
            let start = index * grain;
            copy_part(saved, start * classes, gradients);
            for (gradients, number) in gradients.chunks_exact_mut(classes).zip(start..) {
                let scale = output_gradient[number / self.positions] * share;
                for gradient in &mut *gradients {
                    *gradient = scale * *gradient;
                }
                if !errors {
                    gradients[labels[number].widen() as usize] -= scale;
                }
            }
        });
    }
}

/// Fills `target` with the elements of `source` from index `start`. Does nothing without a source.
fn copy_part<T: Copy>(source: Option<&[T]>, start: usize, target: &mut [T]) {
    if let Some(source) = source {
        target.copy_from_slice(&source[start..start + target.len()]);
    }
}

/// Prediction at a position, without the sum over the classes.
struct Prediction {
    /// Score of the label minus the largest score.
    margin: f64,
    correct: bool,
}

impl Prediction {
    /// Determines the prediction from the scores of a position, of which `best` is the largest. The
    /// first of equal scores is the prediction.
    fn new<T: Real>(scores: &[T], label: usize, best: T) -> Self {
        let margin = (scores[label] - best).widen();
        Self { margin, correct: scores.iter().position(|&score| score == best) == Some(label) }
    }

    /// Returns the result of the position. `total` is the sum of `exp(score - best)`.
    fn result(&self, total: f64) -> PositionResult {
        PositionResult { loss: total.ln() - self.margin, correct: self.correct }
    }
}

impl<T: Real> Operation<T> for CrossEntropy {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        match self.pass {
            LossPass::Forward => {
                let ([scores, labels], [losses, saved, metrics]) = operands.into_arrays()?;
                self.check(labels)?;
                self.forward(Some(scores), labels, saved);
                self.summarise(losses, metrics);
            }
            LossPass::ForwardInPlace(_) => {
                let ([labels], [scores, losses, metrics]) = operands.into_arrays()?;
                self.check(labels)?;
                self.forward(None, labels, scores);
                self.summarise(losses, metrics);
            }
            LossPass::Infer => {
                let ([scores, labels], [losses, metrics]) = operands.into_arrays()?;
                self.check(labels)?;
                self.infer(scores, labels);
                self.summarise(losses, metrics);
            }
            LossPass::Backward => {
                let ([saved, labels, output_gradient], [input_gradient]) = operands.into_arrays()?;
                self.check(labels)?;
                self.backward(Some(saved), [labels, output_gradient], input_gradient);
            }
            LossPass::BackwardInPlace(_) => {
                let (reads, [shares]) = operands.into_arrays()?;
                self.check(reads[0])?;
                self.backward(None, reads, shares);
            }
        }
        Ok(())
    }
}
