//! Losses of each element against a number. The *metrics* are those of `Role::Metrics`.

use layer_graph::{ElementwiseLoss, Layer};

use super::Real;
use super::elementwise::{GRAIN, memory_bound_workers};
use super::operation::{Operands, Operation};
use super::workers::Workers;
use crate::{EngineError, LaunchContext};

/// Loss of each element of a sample against its label.
#[derive(Debug)]
pub(super) struct ElementwiseLosses {
    loss: ElementwiseLoss,
    /// Number of elements of a sample.
    elements: usize,
    is_backward: bool,
    workers: Workers,
    /// Mean of the losses of each sample, and the share of the elements that are right.
    results: Vec<[f64; 2]>,
}

impl ElementwiseLosses {
    /// Creates a pass of a layer over `samples` samples.
    pub(super) fn new(
        layer: &Layer,
        loss: ElementwiseLoss,
        samples: usize,
        is_backward: bool,
        workers: &Workers,
    ) -> Self {
        let results = vec![[0.0; 2]; if is_backward { 0 } else { samples }];
        Self { loss, elements: layer.label_count(), is_backward, workers: workers.clone(), results }
    }

    fn forward<T: Real>(&mut self, [input, labels]: [&[T]; 2]) {
        let (loss, elements) = (self.loss, self.elements);
        let workers = memory_bound_workers(&self.workers, input.len());
        workers.chunks(&mut self.results, 1, |sample, result| {
            let range = sample * elements..(sample + 1) * elements;
            let (mut sum, mut right) = (0.0, 0usize);
            for (x, label) in input[range.clone()].iter().zip(&labels[range]) {
                let (x, label) = (x.widen(), label.widen());
                sum += value(loss, x, label);
                right += usize::from(is_right(loss, x, label));
            }
            result[0] = [sum / elements as f64, right as f64 / elements as f64];
        });
    }

    fn backward<T: Real>(&self, [input, labels, output_gradient]: [&[T]; 3], gradients: &mut [T]) {
        let (loss, elements) = (self.loss, self.elements);
        memory_bound_workers(&self.workers, input.len()).chunks(gradients, GRAIN, |index, gradients| {
            for (place, gradient) in (index * GRAIN..).zip(gradients) {
                let slope = slope(loss, input[place].widen(), labels[place].widen());
                *gradient = T::narrow(output_gradient[place / elements].widen() / elements as f64 * slope);
            }
        });
    }
}

/// Returns the loss of an element.
fn value(loss: ElementwiseLoss, x: f64, label: f64) -> f64 {
    match loss {
        ElementwiseLoss::MeanSquaredError => (x - label).powi(2),
        ElementwiseLoss::BinaryCrossEntropy => x.max(0.0) - label * x + (-x.abs()).exp().ln_1p(),
    }
}

/// Returns the derivative of the loss of an element.
fn slope(loss: ElementwiseLoss, x: f64, label: f64) -> f64 {
    match loss {
        ElementwiseLoss::MeanSquaredError => 2.0 * (x - label),
        ElementwiseLoss::BinaryCrossEntropy => 1.0 / (1.0 + (-x).exp()) - label,
    }
}

/// Returns whether a probability is on the right side of one half.
fn is_right(loss: ElementwiseLoss, x: f64, label: f64) -> bool {
    loss == ElementwiseLoss::BinaryCrossEntropy && (x > 0.0) == (label > 0.5)
}

impl<T: Real> Operation<T> for ElementwiseLosses {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        if self.is_backward {
            let (reads, [gradients]) = operands.into_arrays()?;
            self.backward(reads, gradients);
            return Ok(());
        }
        let (reads, [losses, metrics]) = operands.into_arrays()?;
        self.forward(reads);
        losses.iter_mut().zip(&self.results).for_each(|(target, [loss, _])| *target = T::narrow(*loss));
        for (index, metric) in metrics.iter_mut().enumerate() {
            *metric = T::narrow(self.results.iter().map(|result| result[index]).sum());
        }
        Ok(())
    }
}
