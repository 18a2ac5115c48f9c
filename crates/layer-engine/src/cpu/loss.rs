use super::Real;
use super::operation::{Operands, Operation};
use crate::{EngineError, LaunchContext};

/// Softmax and cross entropy of each sample. Saves the probabilities.
#[derive(Debug)]
pub(super) struct CrossEntropy {
    /// The layer's name, for errors.
    pub(super) layer: String,
    pub(super) classes: usize,
    pub(super) pass: LossPass,
}

/// Which of the loss layer's passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LossPass {
    Forward,
    Infer,
    Backward,
}

/// The losses of a shard, summed as they come.
#[derive(Debug, Default)]
struct Totals {
    loss: f64,
    correct: f64,
}

impl Totals {
    fn write<T: Real>(&self, metrics: &mut [T]) {
        for (metric, value) in metrics.iter_mut().zip([self.loss, self.correct]) {
            *metric = T::narrow(value);
        }
    }
}

impl CrossEntropy {
    fn label<T: Real>(&self, label: T) -> Result<usize, EngineError> {
        let value = label.widen();
        if value.fract() == 0.0 && (0.0..self.classes as f64).contains(&value) {
            Ok(value as usize)
        } else {
            Err(EngineError::Label { layer: self.layer.clone(), label: value, classes: self.classes })
        }
    }

    /// A sample's loss, by a log-sum-exp that cannot overflow.
    fn sample<T: Real>(
        &self,
        scores: &[T],
        label: T,
        totals: &mut Totals,
    ) -> Result<SampleLoss<T>, EngineError> {
        let label = self.label(label)?;
        let mut best = 0;
        for (class, &score) in scores.iter().enumerate() {
            if score > scores[best] {
                best = class;
            }
        }
        let largest = scores[best];
        let sum = scores.iter().fold(T::zero(), |sum, &score| sum + (score - largest).exp());
        let loss = sum.ln() - (scores[label] - largest);
        totals.loss += loss.widen();
        totals.correct += if best == label { 1.0 } else { 0.0 };
        Ok(SampleLoss { loss, largest, sum })
    }
}

/// A sample's loss, and what its probabilities are made of: `exp(score - largest) / sum`.
struct SampleLoss<T> {
    loss: T,
    largest: T,
    sum: T,
}

impl<T: Real> Operation<T> for CrossEntropy {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        let mut totals = Totals::default();
        match self.pass {
            LossPass::Forward => {
                let ([scores, labels], [losses, saved, metrics]) = operands.exactly()?;
                let samples = scores.chunks_exact(self.classes).zip(saved.chunks_exact_mut(self.classes));
                for ((scores, saved), (&label, loss)) in samples.zip(labels.iter().zip(losses)) {
                    let sample = self.sample(scores, label, &mut totals)?;
                    *loss = sample.loss;
                    for (probability, &score) in saved.iter_mut().zip(scores) {
                        *probability = (score - sample.largest).exp() / sample.sum;
                    }
                }
                totals.write(metrics);
            }
            LossPass::Infer => {
                let ([scores, labels], [losses, metrics]) = operands.exactly()?;
                let samples = scores.chunks_exact(self.classes).zip(labels);
                for ((scores, &label), loss) in samples.zip(losses) {
                    *loss = self.sample(scores, label, &mut totals)?.loss;
                }
                totals.write(metrics);
            }
            LossPass::Backward => {
                let ([saved, labels, output_gradient], [input_gradient]) = operands.exactly()?;
                let samples =
                    saved.chunks_exact(self.classes).zip(input_gradient.chunks_exact_mut(self.classes));
                for ((saved, gradients), (&label, &scale)) in samples.zip(labels.iter().zip(output_gradient))
                {
                    let label = self.label(label)?;
                    for (gradient, &probability) in gradients.iter_mut().zip(saved) {
                        *gradient = scale * probability;
                    }
                    gradients[label] -= scale;
                }
            }
        }
        Ok(())
    }
}
