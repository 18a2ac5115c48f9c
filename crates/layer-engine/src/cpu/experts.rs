//! Mixtures of experts. A *choice* is a position and one of its experts. Choices that are not
//! dropped have a row each; the rows of an expert follow each other, in the order of positions.

use std::ops::Range;

use layer_graph::{ExpertActivation, ExpertSizes, Layer, MixtureOfExperts};

use super::Real;
use super::activation::{Function, NormalGate, SigmoidGate, TanhGate};
use super::elementwise::GRAIN;
use super::gemm::{Matrix, MatrixMut, Update, multiply};
use super::operation::{Operands, Operation, SavingPass};
use super::softmax::{normalise, rows_grain};
use super::sums::{sum, sum_of_pairs};
use super::workers::Workers;
use crate::{EngineError, LaunchContext, Pass};

/// Number of rows that one thread computes together. It does not depend on the number of threads,
/// so that results do not.
const ROWS: usize = 64;

/// Pass of a mixture of experts.
///
/// Saves the results of the first product of each row.
#[derive(Debug)]
pub(super) struct Experts<T> {
    rule: Rule,
    pass: SavingPass,
    workers: Workers,
    routing: Routing<T>,
    /// Values of all rows, as [`RowLayout`] says.
    scratch: Vec<T>,
    /// Results of the first product in evaluation.
    inner: Vec<T>,
}

/// Hyper-parameters and sizes of a mixture of experts.
#[derive(Debug)]
struct Rule {
    mixture: MixtureOfExperts,
    sizes: ExpertSizes,
}

/// Choices of experts for all positions, and their weights.
#[derive(Debug)]
struct Routing<T> {
    /// Softmax of the scores: `positions x experts`.
    shares: Vec<T>,
    /// Expert of each choice: `positions x chosen`.
    experts: Vec<usize>,
    /// Weight of each choice.
    weights: Vec<T>,
    /// Row of each choice. `None` if the position exceeds the expert's capacity.
    rows: Vec<Option<usize>>,
    /// Choice of each row.
    choices: Vec<usize>,
    /// First row of each expert, then the number of rows.
    starts: Vec<usize>,
    /// Number of rows of each expert: of a sample, then of all samples before the current one.
    counts: [Vec<usize>; 2],
}

impl<T: Real> Routing<T> {
    fn new(rule: &Rule, samples: usize) -> Self {
        let positions = samples * rule.sizes.positions;
        let choices = positions * rule.mixture.chosen;
        let experts = rule.mixture.experts;
        Self {
            shares: vec![T::zero(); positions * experts],
            experts: vec![0; choices],
            weights: vec![T::zero(); choices],
            rows: vec![None; choices],
            choices: vec![0; samples * rule.sizes.pairs],
            starts: vec![0; experts + 1],
            counts: [vec![0; experts], vec![0; experts]],
        }
    }

    /// Chooses the experts of all positions.
    fn choose(&mut self, rule: &Rule, scores: &[T], workers: &Workers) {
        let MixtureOfExperts { experts, chosen, normalised, .. } = rule.mixture;
        let grain = rows_grain(experts);
        workers.chunks(&mut self.shares, grain, |index, shares| {
            shares.copy_from_slice(&scores[index * grain..][..shares.len()]);
            shares.chunks_exact_mut(experts).for_each(|row| {
                normalise(row, T::one());
            });
        });
        let choices = self.experts.chunks_exact_mut(chosen).zip(self.weights.chunks_exact_mut(chosen));
        let rows = scores.chunks_exact(experts).zip(self.shares.chunks_exact(experts));
        for ((of_position, weights), (scores, shares)) in choices.zip(rows) {
            largest(scores, of_position);
            weights.iter_mut().zip(&*of_position).for_each(|(weight, &expert)| *weight = shares[expert]);
            if normalised {
                let factor = T::narrow(1.0 / sum(weights, T::widen));
                for weight in weights {
                    *weight *= factor;
                }
            }
        }
        self.place(rule);
    }

    /// Gives a row to each choice that the capacity of its expert allows.
    fn place(&mut self, rule: &Rule) {
        let of_sample = (rule.sizes.positions * rule.mixture.chosen).max(1);
        let capacity = rule.mixture.capacity.unwrap_or(usize::MAX);
        let [current, before] = &mut self.counts;
        before.fill(0);
        let samples = self.experts.chunks_exact(of_sample).zip(self.rows.chunks_exact_mut(of_sample));
        for (experts, rows) in samples {
            current.fill(0);
            for (&expert, row) in experts.iter().zip(rows) {
                *row = (current[expert] < capacity).then_some(before[expert] + current[expert]);
                current[expert] += usize::from(row.is_some());
            }
            before.iter_mut().zip(&*current).for_each(|(before, current)| *before += current);
        }
        for (expert, count) in before.iter().enumerate() {
            self.starts[expert + 1] = self.starts[expert] + count;
        }
        for (choice, (row, &expert)) in self.rows.iter_mut().zip(&self.experts).enumerate() {
            if let Some(row) = row {
                *row += self.starts[expert];
                self.choices[*row] = choice;
            }
        }
    }

    /// Returns the experts that have some of these rows, with those rows.
    fn segments(&self, rows: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> + '_ {
        let first = self.starts.partition_point(|&start| start <= rows.start).saturating_sub(1);
        let of_expert = move |(index, bounds): (usize, &[usize])| {
            (first + index, bounds[0].max(rows.start)..bounds[1].min(rows.end))
        };
        let all = self.starts[first..].windows(2).enumerate().map(of_expert);
        all.filter(|(_, rows)| !rows.is_empty())
    }

    /// Computes the gradients of the scores of a position from those of the weights of its choices.
    /// `choices` are those of the position.
    fn score_gradient(
        &self,
        rule: &Rule,
        position: usize,
        of_weight: impl Fn(usize) -> T,
        gradient: &mut [T],
    ) {
        let MixtureOfExperts { experts, chosen, normalised, .. } = rule.mixture;
        let choices = position * chosen..(position + 1) * chosen;
        let product = |choice: usize| self.weights[choice].widen() * of_weight(choice).widen();
        let mean = T::narrow(choices.clone().map(product).sum());
        if normalised {
            gradient.fill(T::zero());
        } else {
            let shares = &self.shares[position * experts..][..experts];
            gradient.iter_mut().zip(shares).for_each(|(gradient, &share)| *gradient = -share * mean);
        }
        for choice in choices {
            let weight = self.weights[choice];
            let rest = if normalised { -mean } else { T::zero() };
            gradient[self.experts[choice]] += weight * (of_weight(choice) + rest);
        }
    }
}

/// Fills `chosen` with the indices of the largest scores, in descending order. Of equal scores, the
/// lower index comes first.
fn largest<T: Real>(scores: &[T], chosen: &mut [usize]) {
    for slot in 0..chosen.len() {
        let (before, rest) = chosen.split_at_mut(slot);
        let mut best: Option<usize> = None;
        for (index, &score) in scores.iter().enumerate() {
            let is_larger = best.is_none_or(|best| score > scores[best]);
            if is_larger && !before.contains(&index) {
                best = Some(index);
            }
        }
        rest[0] = best.unwrap_or_default();
    }
}

/// Sizes of the values of a row in the workspace. Each [`ROWS`] rows are next to each other, of
/// which each value is a matrix.
#[derive(Debug, Clone, Copy)]
struct RowLayout<const N: usize>([usize; N]);

impl<const N: usize> RowLayout<N> {
    /// Returns the number of elements of [`ROWS`] rows.
    fn of_chunk(self) -> usize {
        ROWS * self.0.iter().sum::<usize>()
    }

    /// Returns the values of the rows of a chunk.
    fn split<T>(self, mut chunk: &[T]) -> [&[T]; N] {
        self.0.map(|size| {
            let (values, rest) = chunk.split_at(ROWS * size);
            chunk = rest;
            values
        })
    }

    /// Returns the values of the rows of a chunk to write.
    fn split_mut<T>(self, chunk: &mut [T]) -> [&mut [T]; N] {
        let mut chunk = chunk;
        self.0.map(|size| {
            let (values, rest) = std::mem::take(&mut chunk).split_at_mut(ROWS * size);
            chunk = rest;
            values
        })
    }
}

impl Rule {
    /// Layout of a row forward: its input, which its output replaces, and the factors of the second
    /// product.
    fn forward_layout(&self) -> RowLayout<2> {
        RowLayout([self.sizes.features, self.mixture.width])
    }

    /// Layout of a row backward: its input, the gradients of its output and of its input, the
    /// factors of the second product with the weight, the gradients of the results of the first
    /// product, and that of the weight.
    fn backward_layout(&self) -> RowLayout<6> {
        let (features, width) = (self.sizes.features, self.mixture.width);
        RowLayout([features, features, features, width, self.mixture.inner_rows(), 1])
    }

    /// Returns both matrices of an expert.
    fn matrices<'a, T>(&self, parameters: &'a [T], expert: usize) -> [&'a [T]; 2] {
        let [first, second] = self.elements();
        let (all_first, all_second) = parameters.split_at(self.mixture.experts * first);
        [&all_first[expert * first..][..first], &all_second[expert * second..][..second]]
    }

    /// Returns the number of elements of both matrices of an expert.
    fn elements(&self) -> [usize; 2] {
        [self.mixture.inner_rows(), self.mixture.width].map(|rows| rows * self.sizes.features)
    }

    /// Computes the factors of the second product from the results of the first one.
    fn activate<T: Real>(&self, inner: &[T], factors: &mut [T]) {
        match self.mixture.activation {
            ExpertActivation::Relu => self.activate_by(&Rectifier, inner, factors),
            ExpertActivation::Gelu => self.activate_by(&NormalGate, inner, factors),
            ExpertActivation::GeluTanh => self.activate_by(&TanhGate, inner, factors),
            ExpertActivation::Silu => self.activate_by(&SigmoidGate, inner, factors),
        }
    }

    fn activate_by<T: Real>(&self, function: &impl Function, inner: &[T], factors: &mut [T]) {
        let width = self.mixture.width;
        let rows = inner.chunks_exact(self.mixture.inner_rows()).zip(factors.chunks_exact_mut(width));
        for (inner, factors) in rows {
            let (arguments, values) = inner.split_at(width);
            factors.iter_mut().zip(arguments).for_each(|(factor, &x)| *factor = function.evaluate(x));
            // Empty without a gate.
            factors.iter_mut().zip(values).for_each(|(factor, &value)| *factor *= value);
        }
    }

    /// Replaces the gradients of a row's factors, which are the last elements of `gradients`, by
    /// those of the results of the first product. They are multiplied by the row's weight.
    fn deactivate<T: Real>(&self, inner: &[T], weight: T, gradients: &mut [T]) {
        match self.mixture.activation {
            ExpertActivation::Relu => self.deactivate_by(&Rectifier, inner, weight, gradients),
            ExpertActivation::Gelu => self.deactivate_by(&NormalGate, inner, weight, gradients),
            ExpertActivation::GeluTanh => self.deactivate_by(&TanhGate, inner, weight, gradients),
            ExpertActivation::Silu => self.deactivate_by(&SigmoidGate, inner, weight, gradients),
        }
    }

    fn deactivate_by<T: Real>(&self, function: &impl Function, inner: &[T], weight: T, gradients: &mut [T]) {
        let (arguments, values) = inner.split_at(self.mixture.width);
        if !self.mixture.gated {
            let pairs = gradients.iter_mut().zip(arguments);
            pairs.for_each(|(gradient, &x)| *gradient *= weight * function.derivative(x));
            return;
        }
        let (of_gate, of_values) = gradients.split_at_mut(self.mixture.width);
        let gates = of_gate.iter_mut().zip(of_values).zip(arguments.iter().zip(values));
        for ((of_gate, of_value), (&x, &value)) in gates {
            let gradient = weight * *of_value;
            *of_gate = gradient * value * function.derivative(x);
            *of_value = gradient * function.evaluate(x);
        }
    }
}

/// `max(x, 0)`.
struct Rectifier;

impl Function for Rectifier {
    fn evaluate<T: Real>(&self, x: T) -> T {
        if x < T::zero() { T::zero() } else { x }
    }

    fn derivative<T: Real>(&self, x: T) -> T {
        if x > T::zero() { T::one() } else { T::zero() }
    }
}

impl<T: Real> Experts<T> {
    /// Creates a pass of a layer over `samples` samples. Returns `None` if its inputs do not fit.
    pub(super) fn new(
        layer: &Layer,
        mixture: &MixtureOfExperts,
        samples: usize,
        pass: Pass,
        workers: &Workers,
    ) -> Option<Self> {
        let rule = Rule { mixture: mixture.clone(), sizes: mixture.sizes(layer.input_shapes())? };
        let pass = SavingPass::of(pass);
        let rows = samples * rule.sizes.pairs;
        let of_chunk = match pass {
            SavingPass::Forward | SavingPass::Infer => rule.forward_layout().of_chunk(),
            SavingPass::Backward | SavingPass::BackwardParameters => rule.backward_layout().of_chunk(),
        };
        let inner = if pass == SavingPass::Infer { rows * mixture.inner_rows() } else { 0 };
        let zeros = |elements: usize| vec![T::zero(); elements];
        Some(Self {
            pass,
            workers: workers.clone(),
            routing: Routing::new(&rule, samples),
            scratch: zeros(rows.div_ceil(ROWS) * of_chunk),
            inner: zeros(inner),
            rule,
        })
    }

    /// Computes the outputs. `inner` receives the results of the first product of each row.
    fn forward(&mut self, [input, scores, parameters]: [&[T]; 3], output: &mut [T], inner: &mut [T]) {
        let Self { rule, routing, workers, scratch, .. } = self;
        let ExpertSizes { features, .. } = rule.sizes;
        let (inner_rows, chosen, layout) =
            (rule.mixture.inner_rows(), rule.mixture.chosen, rule.forward_layout());
        routing.choose(rule, scores, workers);
        let (rule, routing) = (&*rule, &*routing);
        let chunks = (&mut scratch[..], layout.of_chunk());
        workers.chunk_pairs((inner, ROWS * inner_rows), chunks, |index, inner, scratch| {
            let [values, factors] = layout.split_mut(scratch);
            for (expert, rows) in routing.segments(index * ROWS..(index + 1) * ROWS) {
                let [first, second] = rule.matrices(parameters, expert);
                let (count, local) = (rows.len(), rows.start - index * ROWS);
                let values = &mut values[local * features..][..count * features];
                for (row, value) in rows.zip(values.chunks_exact_mut(features)) {
                    let position = routing.choices[row] / chosen;
                    value.copy_from_slice(&input[position * features..][..features]);
                }
                let inner = &mut inner[local * inner_rows..][..count * inner_rows];
                let factors = &mut factors[local * rule.mixture.width..][..count * rule.mixture.width];
                let left = Matrix::new(values, count, features);
                let right = Matrix::new(first, inner_rows, features).transposed();
                multiply(MatrixMut::new(inner, count, inner_rows), Update::Overwrite, left, right);
                rule.activate(inner, factors);
                let left = Matrix::new(factors, count, rule.mixture.width);
                let right = Matrix::new(second, features, rule.mixture.width).transposed();
                multiply(MatrixMut::new(values, count, features), Update::Overwrite, left, right);
            }
        });
        let scratch = &*scratch;
        sum_choices(routing, chosen, features, workers, output, |choice, row| {
            let chunk = &scratch[row / ROWS * layout.of_chunk()..][..layout.of_chunk()];
            (&layout.split(chunk)[0][row % ROWS * features..][..features], routing.weights[choice])
        });
    }

    /// Computes the gradients of the rows, and from them those of the parameters.
    fn backward(&mut self, reads: [&[T]; 5], gradient: &mut [T]) {
        let [input, scores, parameters, saved, output_gradient] = reads;
        let Self { rule, routing, workers, scratch, pass, .. } = self;
        let ExpertSizes { features, .. } = rule.sizes;
        let MixtureOfExperts { width, chosen, .. } = rule.mixture;
        let (inner_rows, layout) = (rule.mixture.inner_rows(), rule.backward_layout());
        let needs_input_gradient = *pass == SavingPass::Backward;
        routing.choose(rule, scores, workers);
        let (rule, routing) = (&*rule, &*routing);
        workers.chunks(scratch, layout.of_chunk(), |index, scratch| {
            let [inputs, upstream, input_gradients, factors, gradients, of_weights] =
                layout.split_mut(scratch);
            for (expert, rows) in routing.segments(index * ROWS..(index + 1) * ROWS) {
                let [first, second] = rule.matrices(parameters, expert);
                let (count, local) = (rows.len(), rows.start - index * ROWS);
                let range = |size: usize| local * size..(local + count) * size;
                let (inputs, upstream) = (&mut inputs[range(features)], &mut upstream[range(features)]);
                let values = inputs.chunks_exact_mut(features).zip(upstream.chunks_exact_mut(features));
                for (row, (value, gradient)) in rows.clone().zip(values) {
                    let position = routing.choices[row] / chosen;
                    value.copy_from_slice(&input[position * features..][..features]);
                    gradient.copy_from_slice(&output_gradient[position * features..][..features]);
                }
                let saved = &saved[rows.start * inner_rows..rows.end * inner_rows];
                let factors = &mut factors[range(width)];
                rule.activate(saved, factors);
                // The gradients of the factors are the last elements of a row.
                let gradients = &mut gradients[range(inner_rows)];
                let target = &mut gradients[inner_rows - width..];
                let target = MatrixMut::with_stride(target, count, width, inner_rows);
                let left = Matrix::new(upstream, count, features);
                multiply(target, Update::Overwrite, left, Matrix::new(second, features, width));
                let values = factors.chunks_exact_mut(width).zip(gradients.chunks_exact_mut(inner_rows));
                let values = values.zip(saved.chunks_exact(inner_rows)).zip(&mut of_weights[range(1)]);
                for (row, (((factors, gradients), saved), of_weight)) in rows.zip(values) {
                    let weight = routing.weights[routing.choices[row]];
                    let products =
                        sum_of_pairs(factors, &gradients[inner_rows - width..], |a, b| a.widen() * b.widen());
                    *of_weight = T::narrow(products);
                    rule.deactivate(saved, weight, gradients);
                    for factor in factors {
                        *factor *= weight;
                    }
                }
                if needs_input_gradient {
                    let target = MatrixMut::new(&mut input_gradients[range(features)], count, features);
                    let left = Matrix::new(gradients, count, inner_rows);
                    multiply(target, Update::Overwrite, left, Matrix::new(first, inner_rows, features));
                }
            }
        });
        let scratch = &*scratch;
        // Of each expert, the chunks and the local rows in them.
        let parts = |expert: usize| {
            let rows = routing.starts[expert]..routing.starts[expert + 1];
            let chunks = if rows.is_empty() { 0..0 } else { rows.start / ROWS..(rows.end - 1) / ROWS + 1 };
            chunks.map(move |chunk| {
                let local = rows.start.max(chunk * ROWS) - chunk * ROWS
                    ..rows.end.min((chunk + 1) * ROWS) - chunk * ROWS;
                (layout.split(&scratch[chunk * layout.of_chunk()..][..layout.of_chunk()]), local)
            })
        };
        let [first_elements, _] = rule.elements();
        let (of_first, of_second) = gradient.split_at_mut(rule.mixture.experts * first_elements);
        // The gradient of the first matrix is that of its results times the input; of the second
        // one, that of the output times the weighted factors.
        for (target, (left, left_size), (right, right_size)) in
            [(of_first, (4, inner_rows), (0, features)), (of_second, (1, features), (3, width))]
        {
            // All of them belong to one expert.
            let rows = (1..=left_size.min(ROWS)).rev().find(|rows| left_size % rows == 0).unwrap_or(1);
            workers.chunks(target, rows * right_size, |index, target| {
                let (expert, row) = (index * rows / left_size, index * rows % left_size);
                target.fill(T::zero());
                for (values, local) in parts(expert) {
                    let lefts = &values[left][local.start * left_size + row..];
                    let lefts = Matrix::with_stride(lefts, local.len(), rows, left_size).transposed();
                    let rights = &values[right][local.start * right_size..];
                    let rights = Matrix::new(rights, local.len(), right_size);
                    multiply(
                        MatrixMut::new(&mut *target, rows, right_size),
                        Update::Accumulate,
                        lefts,
                        rights,
                    );
                }
            });
        }
    }

    /// Computes the gradients of the input and of the scores from those of the rows.
    fn input_gradients(&self, input_gradient: &mut [T], score_gradient: &mut [T]) {
        let Self { rule, routing, workers, scratch, .. } = self;
        let ExpertSizes { features, .. } = rule.sizes;
        let MixtureOfExperts { experts, chosen, .. } = rule.mixture;
        let layout = rule.backward_layout();
        let values =
            |row: usize| layout.split(&scratch[row / ROWS * layout.of_chunk()..][..layout.of_chunk()]);
        sum_choices(routing, chosen, features, workers, input_gradient, |_, row| {
            (&values(row)[2][row % ROWS * features..][..features], T::one())
        });
        let of_weight =
            |choice: usize| routing.rows[choice].map_or(T::zero(), |row| values(row)[5][row % ROWS]);
        let grain = rows_grain(experts);
        workers.chunks(score_gradient, grain, |index, gradient| {
            for (row, gradient) in gradient.chunks_exact_mut(experts).enumerate() {
                routing.score_gradient(rule, index * grain / experts + row, of_weight, gradient);
            }
        });
    }
}

/// Sums the values of each position's rows into `target`. `values` returns those of a choice and
/// its row, and their factor.
fn sum_choices<'a, T: Real>(
    routing: &Routing<T>,
    chosen: usize,
    features: usize,
    workers: &Workers,
    target: &mut [T],
    values: impl Fn(usize, usize) -> (&'a [T], T) + Sync,
) {
    let positions = (GRAIN / features).max(1);
    workers.chunks(target, positions * features, |index, target| {
        for (row, target) in target.chunks_exact_mut(features).enumerate() {
            target.fill(T::zero());
            let first = (index * positions + row) * chosen;
            for choice in first..first + chosen {
                let Some(row) = routing.rows[choice] else { continue };
                let (values, factor) = values(choice, row);
                target.iter_mut().zip(values).for_each(|(sum, &value)| *sum += factor * value);
            }
        }
    });
}

impl<T: Real> Operation<T> for Experts<T> {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        match self.pass {
            SavingPass::Forward => {
                let (reads, [output, saved]) = operands.into_arrays()?;
                self.forward(reads, output, saved);
            }
            SavingPass::Infer => {
                let (reads, [output]) = operands.into_arrays()?;
                let mut inner = std::mem::take(&mut self.inner);
                self.forward(reads, output, &mut inner);
                self.inner = inner;
            }
            SavingPass::Backward => {
                let (reads, [input_gradient, score_gradient, gradient]) = operands.into_arrays()?;
                self.backward(reads, gradient);
                self.input_gradients(input_gradient, score_gradient);
            }
            SavingPass::BackwardParameters => {
                let (reads, [gradient]) = operands.into_arrays()?;
                self.backward(reads, gradient);
            }
        }
        Ok(())
    }
}
