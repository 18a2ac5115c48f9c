//! Normalisations over the features of each row: layer normalisation and root-mean-square
//! normalisation. A *row* is a vector that is normalised: a sample, or a position of a sequence.

use super::Real;
use super::operation::{Normalisation, Operands, Operation, SavingPass, run_normalisation};
use super::softmax::rows_grain;
use super::workers::Workers;
use crate::{EngineError, LaunchContext, Pass};

/// Maximum number of pieces into which the rows are divided for the gradient of the parameters. The
/// sums of the pieces are rounded separately and added in order, so the division must not depend on
/// the number of threads.
const MAX_PIECES: usize = 16;

/// Normalisation of one row.
pub(super) trait RowRule: Send + Sync + 'static {
    /// Number of statistics that are saved for each row.
    const SAVED: usize;
    /// Number of parameters of each feature. The first one is the weight.
    const PARAMETERS: usize;

    /// Normalises a row. Returns its statistics.
    fn normalise<T: Real>(&self, input: &[T], parameters: &[T], output: &mut [T]) -> impl AsRef<[T]>;

    /// Computes the gradient of a row. `reads` are the input, the parameters, the statistics and
    /// the output gradient of the row.
    fn input_gradient<T: Real>(&self, reads: [&[T]; 4], input_gradient: &mut [T]);

    /// Adds the share of a row to the gradients of the parameters, `sums`. `reads` are the input,
    /// the statistics and the output gradient of the row.
    fn add_parameter_gradients<T: Real>(&self, reads: [&[T]; 3], sums: &mut [f64]);
}

/// Pass of a normalisation over the features of each row. Saves the statistics of each row.
#[derive(Debug)]
pub(super) struct RowNormalisation<R> {
    rule: R,
    features: usize,
    rows: usize,
    pass: SavingPass,
    workers: Workers,
    /// Gradients of the parameters of each piece of the rows.
    partials: Vec<f64>,
}

impl<R: RowRule> RowNormalisation<R> {
    /// Creates a layer's pass over `rows` rows of `features` elements.
    pub(super) fn new(rule: R, features: usize, rows: usize, pass: Pass, workers: &Workers) -> Self {
        let pieces = if pass.is_backward() { rows.min(MAX_PIECES) } else { 0 };
        let pass = SavingPass::of(pass);
        let partials = vec![0.0; pieces * R::PARAMETERS * features];
        Self { rule, features, rows, pass, workers: workers.clone(), partials }
    }
}

impl<T: Real, R: RowRule> Normalisation<T> for RowNormalisation<R> {
    fn forward(&self, [input, parameters]: [&[T]; 2], [output, saved]: [&mut [T]; 2]) {
        let (features, grain) = (self.features, rows_grain(self.features));
        let saved = (saved, grain / features * R::SAVED);
        self.workers.chunk_pairs((output, grain), saved, |index, output, saved| {
            let inputs = input[index * grain..].chunks_exact(features);
            let rows = output.chunks_exact_mut(features).zip(inputs);
            for ((output, input), saved) in rows.zip(saved.chunks_exact_mut(R::SAVED)) {
                saved.copy_from_slice(self.rule.normalise(input, parameters, output).as_ref());
            }
        });
    }

    fn infer(&self, input: &[T], parameters: &[T], output: &mut [T]) {
        let (features, grain) = (self.features, rows_grain(self.features));
        self.workers.chunks(output, grain, |index, output| {
            let inputs = input[index * grain..].chunks_exact(features);
            for (output, input) in output.chunks_exact_mut(features).zip(inputs) {
                self.rule.normalise(input, parameters, output);
            }
        });
    }

    fn input_gradient(
        &self,
        [input, parameters, saved, output_gradient]: [&[T]; 4],
        input_gradient: &mut [T],
    ) {
        let (features, grain) = (self.features, rows_grain(self.features));
        self.workers.chunks(input_gradient, grain, |index, input_gradient| {
            let start = index * grain;
            let inputs = input[start..].chunks_exact(features);
            let gradients = output_gradient[start..].chunks_exact(features);
            let saved = saved[start / features * R::SAVED..].chunks_exact(R::SAVED);
            let rows = input_gradient.chunks_exact_mut(features).zip(inputs.zip(gradients.zip(saved)));
            for (target, (input, (gradients, saved))) in rows {
                self.rule.input_gradient([input, parameters, saved, gradients], target);
            }
        });
    }

    fn parameter_gradient(&mut self, [input, saved, output_gradient]: [&[T]; 3], gradient: &mut [T]) {
        let features = self.features;
        let piece = self.rows.div_ceil(MAX_PIECES);
        self.workers.chunks(&mut self.partials, R::PARAMETERS * features, |index, partial| {
            partial.fill(0.0);
            let start = (index * piece * features).min(input.len());
            let inputs = input[start..].chunks_exact(features);
            let gradients = output_gradient[start..].chunks_exact(features);
            let saved = saved[start / features * R::SAVED..].chunks_exact(R::SAVED);
            for (input, (gradients, saved)) in inputs.zip(gradients.zip(saved)).take(piece) {
                self.rule.add_parameter_gradients([input, saved, gradients], partial);
            }
        });
        for (index, sum) in gradient.iter_mut().enumerate() {
            let parts = self.partials.iter().skip(index).step_by(R::PARAMETERS * features);
            *sum = T::narrow(parts.sum());
        }
    }
}

impl<T: Real, R: RowRule> Operation<T> for RowNormalisation<R> {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        run_normalisation(self, self.pass, operands)
    }
}
