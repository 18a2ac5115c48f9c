//! Softmax and cross entropy. The *scores* are the inputs of the softmax, one for each class. A
//! *position* is a prediction with its own label: a sample has one, or one for each element of a
//! sequence. The *metrics* are those of `Role::Metrics`.

use layer_graph::{Layer, SoftmaxCrossEntropy};

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
    target: Target,
    /// Label of positions that are ignored.
    ignored: Option<i32>,
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
    /// Probabilities of the classes, minus their weights in the target. They are the gradient but
    /// for a factor: if they are rounded, its relative error does not grow as the loss becomes
    /// small.
    Errors,
}

/// Weights of the classes in the target of a position.
#[derive(Debug, Clone, Copy)]
struct Target {
    /// Weight of the label, without that of each class.
    label: f64,
    /// Weight of each class.
    each: f64,
}

impl Target {
    fn new(rule: &SoftmaxCrossEntropy, classes: usize) -> Self {
        Self { label: 1.0 - rule.label_smoothing, each: rule.label_smoothing / classes as f64 }
    }
}

/// Loss and correctness of the prediction at one position.
#[derive(Debug, Clone, Copy, Default)]
struct PositionResult {
    loss: f64,
    correct: bool,
}

impl CrossEntropy {
    /// Creates a pass of a layer over `samples` samples.
    pub(super) fn new(
        layer: &Layer,
        rule: &SoftmaxCrossEntropy,
        samples: usize,
        pass: LossPass,
        workers: &Workers,
    ) -> Self {
        let (classes, positions) = (layer.input_shapes()[0].innermost(), layer.label_count());
        let is_backward = matches!(pass, LossPass::Backward | LossPass::BackwardInPlace(_));
        let results = vec![PositionResult::default(); if is_backward { 0 } else { samples * positions }];
        Self {
            layer: layer.name().into(),
            classes,
            positions,
            mean_positions: layer.mean_positions(),
            target: Target::new(rule, classes),
            ignored: rule.ignored_label,
            pass,
            workers: workers.clone(),
            results,
        }
    }

    /// Returns the labels of the operand, of which each is checked to be a class or ignored, so
    /// that the computation cannot fail.
    fn labels<'a, T: Real>(&self, values: &'a [T]) -> Result<Labels<'a, T>, EngineError> {
        let is_class = |label: f64| label.fract() == 0.0 && (0.0..self.classes as f64).contains(&label);
        let ignored = self.ignored.map(f64::from);
        let labels = Labels { values, positions: self.positions, ignored };
        let of_samples = values.chunks_exact(labels.stride()).flat_map(|sample| &sample[..self.positions]);
        let is_valid = |&label: &f64| is_class(label) || Some(label) == ignored;
        match of_samples.map(|label| label.widen()).find(|label| !is_valid(label)) {
            Some(label) => {
                Err(EngineError::Label { layer: self.layer.clone(), label, classes: self.classes })
            }
            None => Ok(labels),
        }
    }

    /// Returns the number of positions in a unit of work of one thread.
    fn grain(&self) -> usize {
        rows_grain(self.classes) / self.classes
    }

    /// Computes the results of all positions, and the probabilities (or the values of the pass in
    /// place) in `shares`, which holds the scores if `scores` is `None`.
    fn forward<T: Real>(&mut self, scores: Option<&[T]>, labels: Labels<'_, T>, shares: &mut [T]) {
        let (classes, grain, target) = (self.classes, self.grain(), self.target);
        let errors = self.pass == LossPass::ForwardInPlace(InPlace::Errors);
        let [of_label, of_each] = [target.label, target.each].map(T::narrow);
        let results = (&mut self.results[..], grain);
        self.workers.chunk_pairs((shares, grain * classes), results, |index, shares, results| {
            let start = index * grain;
            copy_part(scores, start * classes, shares);
            let positions = shares.chunks_exact_mut(classes).zip(start..);
            for ((shares, position), result) in positions.zip(results) {
                let (best, label) = (row_max(shares), labels.of(position));
                let prediction = label.map(|label| Prediction::new(shares, label, best, target));
                for share in &mut *shares {
                    *share = (*share - best).exponential();
                }
                let total = sum(shares, T::widen);
                let factor = T::narrow(1.0 / total);
                for share in &mut *shares {
                    *share *= factor;
                }
                match label {
                    Some(label) if errors => {
                        for share in &mut *shares {
                            *share -= of_each;
                        }
                        shares[label] -= of_label;
                    }
                    None if errors => shares.fill(T::zero()),
                    _ => {}
                }
                *result = prediction.map(|prediction| prediction.result(total)).unwrap_or_default();
            }
        });
    }

    fn infer<T: Real>(&mut self, scores: &[T], labels: Labels<'_, T>) {
        let (classes, grain, target) = (self.classes, self.grain(), self.target);
        self.workers.chunks(&mut self.results, grain, |index, results| {
            let start = index * grain;
            let sources = scores[start * classes..].chunks_exact(classes).zip(start..);
            for ((scores, position), result) in sources.zip(results) {
                let Some(label) = labels.of(position) else {
                    *result = PositionResult::default();
                    continue;
                };
                let best = row_max(scores);
                let total = sum(scores, |score| (score - best).exponential().widen());
                *result = Prediction::new(scores, label, best, target).result(total);
            }
        });
    }

    /// Writes the loss of each sample, and as metrics the sum of the losses and the sum of the
    /// fractions of positions that are classified correctly.
    fn summarise<T: Real>(&self, labels: Labels<'_, T>, losses: &mut [T], metrics: &mut [T]) {
        let mut totals = [0.0; 2];
        let count = self.mean_positions as f64;
        let samples = losses.iter_mut().zip(self.results.chunks_exact(self.positions));
        for (sample, (loss, positions)) in samples.enumerate() {
            let weight = labels.weight(sample).widen();
            let mean = weight * positions.iter().map(|position| position.loss).sum::<f64>() / count;
            let correct = positions.iter().filter(|position| position.correct).count();
            *loss = T::narrow(mean);
            totals[0] += mean;
            totals[1] += weight * correct as f64 / count;
        }
        metrics.iter_mut().zip(totals).for_each(|(metric, total)| *metric = T::narrow(total));
    }

    /// Computes the gradient of the scores in `gradients`, which holds the values of the pass in
    /// place if `saved` is `None`.
    fn backward<T: Real>(
        &self,
        saved: Option<&[T]>,
        labels: Labels<'_, T>,
        output_gradient: &[T],
        gradients: &mut [T],
    ) {
        let (classes, grain) = (self.classes, self.grain());
        let share = T::narrow(1.0 / self.mean_positions as f64);
        let errors = self.pass == LossPass::BackwardInPlace(InPlace::Errors);
        let [of_label, of_each] = [self.target.label, self.target.each].map(T::narrow);
        self.workers.chunks(gradients, grain * classes, |index, gradients| {
            let start = index * grain;
            copy_part(saved, start * classes, gradients);
            for (gradients, number) in gradients.chunks_exact_mut(classes).zip(start..) {
                let Some(label) = labels.of(number) else {
                    gradients.fill(T::zero());
                    continue;
                };
                let sample = number / self.positions;
                let scale = output_gradient[sample] * share * labels.weight(sample);
                let each = if errors { T::zero() } else { scale * of_each };
                for gradient in &mut *gradients {
                    *gradient = scale * *gradient - each;
                }
                if !errors {
                    gradients[label] -= scale * of_label;
                }
            }
        });
    }
}

/// Labels of each sample, with its weight behind them if one is ignored.
#[derive(Clone, Copy)]
struct Labels<'a, T> {
    values: &'a [T],
    /// Number of labels of a sample.
    positions: usize,
    /// Label of positions that are ignored.
    ignored: Option<f64>,
}

impl<T: Real> Labels<'_, T> {
    /// Returns the number of values of a sample.
    fn stride(&self) -> usize {
        self.positions + usize::from(self.ignored.is_some())
    }

    /// Returns the class of a position; `None` if it is ignored.
    fn of(&self, position: usize) -> Option<usize> {
        let label =
            self.values[position / self.positions * self.stride() + position % self.positions].widen();
        (Some(label) != self.ignored).then_some(label as usize)
    }

    /// Returns the factor of the loss of a sample.
    fn weight(&self, sample: usize) -> T {
        match self.ignored {
            Some(_) => self.values[sample * self.stride() + self.positions],
            None => T::one(),
        }
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
    /// Mean of the scores minus the largest one, weighted by the target.
    margin: f64,
    correct: bool,
}

impl Prediction {
    /// Determines the prediction from the scores of a position, of which `best` is the largest. The
    /// first of equal scores is the prediction.
    fn new<T: Real>(scores: &[T], label: usize, best: T, target: Target) -> Self {
        let mut margin = target.label * (scores[label] - best).widen();
        if target.each > 0.0 {
            margin += target.each * sum(scores, |score| (score - best).widen());
        }
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
                let labels = self.labels(labels)?;
                self.forward(Some(scores), labels, saved);
                self.summarise(labels, losses, metrics);
            }
            LossPass::ForwardInPlace(_) => {
                let ([labels], [scores, losses, metrics]) = operands.into_arrays()?;
                let labels = self.labels(labels)?;
                self.forward(None, labels, scores);
                self.summarise(labels, losses, metrics);
            }
            LossPass::Infer => {
                let ([scores, labels], [losses, metrics]) = operands.into_arrays()?;
                let labels = self.labels(labels)?;
                self.infer(scores, labels);
                self.summarise(labels, losses, metrics);
            }
            LossPass::Backward => {
                let ([saved, labels, output_gradient], [input_gradient]) = operands.into_arrays()?;
                let labels = self.labels(labels)?;
                self.backward(Some(saved), labels, output_gradient, input_gradient);
            }
            LossPass::BackwardInPlace(_) => {
                let ([labels, output_gradient], [shares]) = operands.into_arrays()?;
                let labels = self.labels(labels)?;
                self.backward(None, labels, output_gradient, shares);
            }
        }
        Ok(())
    }
}
