//! Product with a constant factor, or with learned ones.

use layer_graph::{Scale, Shape};

use super::Real;
use super::elementwise::{GRAIN, memory_bound_workers};
use super::operation::{Operands, Operation};
use super::sequence::LearnedPass;
use super::sums::sum_of_pairs;
use super::workers::Workers;
use crate::{EngineError, LaunchContext};

/// Number of factors whose gradients a thread computes at a time.
const FACTORS: usize = 64;

/// Scaling of consecutive rows, of which each has its factor, in turn.
#[derive(Debug)]
pub(super) struct Scaling {
    rule: Scale,
    /// Number of learned factors.
    factors: usize,
    /// Number of elements of a row.
    row: usize,
    pass: LearnedPass,
    workers: Workers,
}

impl Scaling {
    /// Creates a pass of a scaling of samples of a shape.
    pub(super) fn new(rule: &Scale, sample: &Shape, pass: LearnedPass, workers: &Workers) -> Self {
        let factors = rule.factors(sample);
        let row = if *rule == Scale::Channels { sample.elements() / factors } else { 1 };
        Self { rule: rule.clone(), factors, row, pass, workers: workers.clone() }
    }

    fn scale<T: Real>(&self, source: &[T], factors: &[T], target: &mut [T]) {
        let workers = memory_bound_workers(&self.workers, target.len());
        if let Scale::Constant(factor) = self.rule {
            let factor = T::narrow(factor);
            workers.chunks(target, GRAIN, |index, target| {
                let source = &source[index * GRAIN..];
                target.iter_mut().zip(source).for_each(|(y, &x)| *y = x * factor);
            });
            return;
        }
        // Each chunk begins with the first factor.
        let grain = GRAIN.next_multiple_of(self.factors * self.row);
        workers.chunks(target, grain, |index, target| {
            let source = &source[index * grain..];
            if self.row == 1 {
                for (target, source) in target.chunks_mut(self.factors).zip(source.chunks(self.factors)) {
                    let pairs = source.iter().zip(factors);
                    target.iter_mut().zip(pairs).for_each(|(y, (&x, &factor))| *y = x * factor);
                }
                return;
            }
            let rows = target.chunks_mut(self.row).zip(source.chunks(self.row));
            for ((target, source), &factor) in rows.zip(factors.iter().cycle()) {
                target.iter_mut().zip(source).for_each(|(y, &x)| *y = x * factor);
            }
        });
    }

    /// Computes the gradients of the factors: the sums of input times output gradient.
    fn gradient<T: Real>(&self, input: &[T], output_gradient: &[T], gradient: &mut [T]) {
        let (row, block) = (self.row, self.factors * self.row);
        self.workers.chunks(gradient, FACTORS, |index, gradient| {
            gradient.fill(T::zero());
            let start = index * FACTORS * row;
            for (x, dy) in input.chunks_exact(block).zip(output_gradient.chunks_exact(block)) {
                let (x, dy) = (&x[start..], &dy[start..]);
                if row == 1 {
                    let pairs = x.iter().zip(dy);
                    gradient.iter_mut().zip(pairs).for_each(|(sum, (&x, &dy))| *sum += x * dy);
                    continue;
                }
                for (sum, (x, dy)) in gradient.iter_mut().zip(x.chunks(row).zip(dy.chunks(row))) {
                    *sum += T::narrow(sum_of_pairs(x, dy, |x, dy| x.widen() * dy.widen()));
                }
            }
        });
    }
}

impl<T: Real> Operation<T> for Scaling {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        if matches!(self.rule, Scale::Constant(_)) {
            let ([source], [target]) = operands.into_arrays()?;
            self.scale(source, &[], target);
            return Ok(());
        }
        match self.pass {
            LearnedPass::Forward => {
                let ([input, factors], [output]) = operands.into_arrays()?;
                self.scale(input, factors, output);
            }
            LearnedPass::Backward => {
                let ([input, factors, output_gradient], [input_gradient, gradient]) =
                    operands.into_arrays()?;
                self.scale(output_gradient, factors, input_gradient);
                self.gradient(input, output_gradient, gradient);
            }
            LearnedPass::BackwardParameters => {
                let ([input, output_gradient], [gradient]) = operands.into_arrays()?;
                self.gradient(input, output_gradient, gradient);
            }
        }
        Ok(())
    }
}
