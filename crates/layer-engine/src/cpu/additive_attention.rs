//! Additive attention. The sums of queries and keys of all units are never stored: the backward
//! pass computes their hyperbolic tangents again.

use layer_graph::{AdditiveAttention, AdditiveSizes, Layer};

use super::Real;
use super::gemm::{Matrix, MatrixMut, Update, multiply};
use super::operation::{Operands, Operation, SavingPass};
use super::softmax::normalise;
use super::sums::{sum, sum_of_pairs};
use super::workers::Workers;
use crate::{EngineError, LaunchContext, Pass};

/// Pass of an additive attention.
///
/// Saves the weights of the keys, `samples x positions x key positions`.
#[derive(Debug)]
pub(super) struct AdditiveLayer<T> {
    sizes: AdditiveSizes,
    normalised: bool,
    pass: SavingPass,
    workers: Workers,
    /// Factor of each unit: the vector of the parameters, normalised if the layer says so.
    vector: Vec<T>,
    /// Number that is added to each unit.
    bias: Vec<T>,
    /// Weights of all samples in evaluation.
    weights: Vec<T>,
    /// One for each sample that is computed at the same time in a backward pass.
    workspaces: Vec<SampleWorkspace<T>>,
    /// Sums over all samples, of each unit: the gradients of the factors, and those of the biases.
    sums: [Vec<f64>; 2],
}

/// Workspace of the backward pass of one sample.
#[derive(Debug)]
struct SampleWorkspace<T> {
    /// Gradients of the scores.
    slopes: Vec<T>,
    /// Gradients of the queries.
    queries: Vec<T>,
    /// Gradients of the keys.
    keys: Vec<T>,
    /// Gradients of the factors of a query's units.
    row: Vec<T>,
    /// Gradients of the factors.
    sums: Vec<f64>,
}

/// One sample of the inputs.
#[derive(Debug, Clone, Copy)]
struct Sample<'a, T> {
    queries: &'a [T],
    keys: &'a [T],
    values: &'a [T],
}

impl<'a, T> Sample<'a, T> {
    fn new([queries, keys, values]: [&'a [T]; 3], sizes: AdditiveSizes, index: usize) -> Self {
        let AdditiveSizes { positions, key_positions, units, features } = sizes;
        let part = |data: &'a [T], elements: usize| &data[index * elements..][..elements];
        Self {
            queries: part(queries, positions * units),
            keys: part(keys, key_positions * units),
            values: part(values, key_positions * features),
        }
    }
}

impl<T: Real> AdditiveLayer<T> {
    /// Creates a pass of a layer over `samples` samples. Returns `None` if its inputs do not fit.
    pub(super) fn new(
        layer: &Layer,
        attention: &AdditiveAttention,
        samples: usize,
        pass: Pass,
        workers: &Workers,
    ) -> Option<Self> {
        let sizes = attention.sizes(layer.input_shapes())?;
        let AdditiveSizes { positions, key_positions, units, .. } = sizes;
        let zeros = |elements: usize| vec![T::zero(); elements];
        let workspace = || SampleWorkspace {
            slopes: zeros(sizes.weights()),
            queries: zeros(positions * units),
            keys: zeros(key_positions * units),
            row: zeros(units),
            sums: vec![0.0; units],
        };
        let backward = pass.is_backward();
        let at_once = if backward { workers.threads().min(samples) } else { 0 };
        let pass = SavingPass::of(pass);
        let kept = if pass == SavingPass::Infer { samples * sizes.weights() } else { 0 };
        Some(Self {
            sizes,
            normalised: attention.normalised,
            pass,
            workers: workers.clone(),
            vector: zeros(units),
            bias: zeros(units),
            weights: zeros(kept),
            workspaces: (0..at_once).map(|_| workspace()).collect(),
            sums: [0, 1].map(|_| vec![0.0; if backward { units } else { 0 }]),
        })
    }

    /// Sets the factors and biases of the units.
    fn set_parameters(&mut self, parameters: &[T]) {
        let (vector, normal) = parameters.split_at(self.sizes.units);
        self.vector.copy_from_slice(vector);
        if let [factor, bias @ ..] = normal {
            let factor = factor.widen() / norm(vector);
            self.vector.iter_mut().for_each(|value| *value = T::narrow(value.widen() * factor));
            self.bias.copy_from_slice(bias);
        }
    }

    /// Computes the weights of all queries and the outputs.
    fn forward(&self, inputs: [&[T]; 3], output: &mut [T], weights: &mut [T]) {
        let sizes = self.sizes;
        let AdditiveSizes { positions, key_positions, units, features } = sizes;
        // A query is a unit of work.
        self.workers.chunks(weights, key_positions, |index, weights| {
            let keys = Sample::new(inputs, sizes, index / positions).keys.chunks_exact(units);
            let query = &inputs[0][index * units..][..units];
            for (weight, key) in weights.iter_mut().zip(keys) {
                *weight = T::narrow(score(query, key, &self.bias, &self.vector));
            }
            normalise(weights, T::one());
        });
        let weights = &*weights;
        self.workers.chunks(output, positions * features, |index, output| {
            let weights = Matrix::new(&weights[index * sizes.weights()..], positions, key_positions);
            let values = Matrix::new(Sample::new(inputs, sizes, index).values, key_positions, features);
            multiply(MatrixMut::new(output, positions, features), Update::Overwrite, weights, values);
        });
    }

    /// Computes the gradients of the queries, keys and values if there are operands for them, and
    /// that of the parameters.
    fn backward(
        &mut self,
        inputs: [&[T]; 3],
        [parameters, weights, output_gradient]: [&[T]; 3],
        mut input_gradients: Option<[&mut [T]; 3]>,
        gradient: &mut [T],
    ) {
        let sizes = self.sizes;
        let AdditiveSizes { positions, key_positions, units, features } = sizes;
        let of_weights = |index: usize| &weights[index * sizes.weights()..][..sizes.weights()];
        let of_output = |index: usize| &output_gradient[index * positions * features..];
        if let Some([_, _, values]) = &mut input_gradients {
            self.workers.chunks(values, key_positions * features, |index, values| {
                let weights = Matrix::new(of_weights(index), positions, key_positions).transposed();
                let gradient = Matrix::new(of_output(index), positions, features);
                multiply(
                    MatrixMut::new(values, key_positions, features),
                    Update::Overwrite,
                    weights,
                    gradient,
                );
            });
        }
        let samples = weights.len() / sizes.weights();
        let mut sums = std::mem::take(&mut self.sums);
        for sums in &mut sums {
            sums.fill(0.0);
        }
        let mut workspaces = std::mem::take(&mut self.workspaces);
        let mut first = 0;
        while first < samples {
            let round = workspaces.len().min(samples - first);
            self.workers.chunks(&mut workspaces[..round], 1, |index, workspace| {
                let index = first + index;
                let sample = Sample::new(inputs, sizes, index);
                self.sample_gradients(sample, of_weights(index), of_output(index), &mut workspace[0]);
            });
            for (index, workspace) in (first..).zip(&workspaces[..round]) {
                if let Some([queries, keys, _]) = &mut input_gradients {
                    let of_sample = |elements: usize| index * elements..(index + 1) * elements;
                    queries[of_sample(positions * units)].copy_from_slice(&workspace.queries);
                    keys[of_sample(key_positions * units)].copy_from_slice(&workspace.keys);
                }
                sums[0].iter_mut().zip(&workspace.sums).for_each(|(sum, term)| *sum += term);
                for query in workspace.queries.chunks_exact(units) {
                    sums[1].iter_mut().zip(query).for_each(|(sum, term)| *sum += term.widen());
                }
            }
            first += round;
        }
        self.parameter_gradient(parameters, &sums, gradient);
        (self.sums, self.workspaces) = (sums, workspaces);
    }

    /// Computes the gradients of the queries, the keys and the factors of one sample.
    fn sample_gradients(
        &self,
        sample: Sample<'_, T>,
        weights: &[T],
        output_gradient: &[T],
        workspace: &mut SampleWorkspace<T>,
    ) {
        let AdditiveSizes { positions, key_positions, units, features } = self.sizes;
        let SampleWorkspace { slopes, queries, keys, row, sums } = workspace;
        let gradient = Matrix::new(output_gradient, positions, features);
        let values = Matrix::new(sample.values, key_positions, features).transposed();
        multiply(MatrixMut::new(slopes, positions, key_positions), Update::Overwrite, gradient, values);
        keys.fill(T::zero());
        sums.fill(0.0);
        let rows = slopes.chunks_exact_mut(key_positions).zip(weights.chunks_exact(key_positions));
        let rows = rows.zip(sample.queries.chunks_exact(units).zip(queries.chunks_exact_mut(units)));
        for ((slopes, weights), (query, query_gradient)) in rows {
            let mean =
                T::narrow(sum_of_pairs(slopes, weights, |slope, weight| slope.widen() * weight.widen()));
            slopes.iter_mut().zip(weights).for_each(|(slope, &weight)| *slope = weight * (*slope - mean));
            query_gradient.fill(T::zero());
            row.fill(T::zero());
            let of_keys = sample.keys.chunks_exact(units).zip(keys.chunks_exact_mut(units));
            for (&slope, (key, key_gradient)) in slopes.iter().zip(of_keys) {
                let factors = query.iter().zip(key).zip(self.bias.iter().zip(&self.vector));
                let targets = query_gradient.iter_mut().zip(key_gradient).zip(&mut *row);
                for (((dq, dk), dv), ((&q, &k), (&bias, &factor))) in targets.zip(factors) {
                    let tangent = (q + bias + k).hyperbolic_tangent();
                    let of_sum = slope * factor * (T::one() - tangent * tangent);
                    *dq += of_sum;
                    *dk += of_sum;
                    *dv += slope * tangent;
                }
            }
            sums.iter_mut().zip(&*row).for_each(|(sum, term)| *sum += term.widen());
        }
    }

    /// Computes the gradients of the parameters from the sums of those of the factors and biases.
    fn parameter_gradient(
        &self,
        parameters: &[T],
        [of_factors, of_biases]: &[Vec<f64>; 2],
        gradient: &mut [T],
    ) {
        let units = self.sizes.units;
        let vector = &parameters[..units];
        let (of_vector, normal) = gradient.split_at_mut(units);
        if !self.normalised {
            of_vector.iter_mut().zip(of_factors).for_each(|(target, &sum)| *target = T::narrow(sum));
            return;
        }
        // With u = v / |v|: the gradient of the factor g is u dw, and that of v is
        // g / |v| (dw - u (u dw)) for the gradients dw of the factors g u.
        let norm = norm(vector);
        let along: f64 = vector.iter().zip(of_factors).map(|(v, dw)| v.widen() / norm * dw).sum();
        let scale = parameters[units].widen() / norm;
        for ((target, v), dw) in of_vector.iter_mut().zip(vector).zip(of_factors) {
            *target = T::narrow(scale * (dw - v.widen() / norm * along));
        }
        if let [of_scale, biases @ ..] = normal {
            *of_scale = T::narrow(along);
            biases.iter_mut().zip(of_biases).for_each(|(target, &sum)| *target = T::narrow(sum));
        }
    }
}

/// Returns the Euclidean norm.
fn norm<T: Real>(vector: &[T]) -> f64 {
    sum_of_pairs(vector, vector, |a, b| a.widen() * b.widen()).sqrt()
}

/// Returns the score of a key for a query. All have as many units.
fn score<T: Real>(query: &[T], key: &[T], bias: &[T], vector: &[T]) -> f64 {
    /// Number of units whose products are stored before they are added, so that the compiler can
    /// vectorise the loop.
    const BLOCK: usize = 64;
    let mut products = [T::zero(); BLOCK];
    let blocks = query.chunks(BLOCK).zip(key.chunks(BLOCK)).zip(bias.chunks(BLOCK).zip(vector.chunks(BLOCK)));
    let mut total = 0.0;
    for ((query, key), (bias, vector)) in blocks {
        let products = &mut products[..query.len()];
        let terms = query.iter().zip(key).zip(bias.iter().zip(vector));
        for (product, ((&q, &k), (&bias, &factor))) in products.iter_mut().zip(terms) {
            *product = factor * (q + bias + k).hyperbolic_tangent();
        }
        total += sum(products, T::widen);
    }
    total
}

impl<T: Real> Operation<T> for AdditiveLayer<T> {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        match self.pass {
            SavingPass::Forward => {
                let ([queries, keys, values, parameters], [output, saved]) = operands.into_arrays()?;
                self.set_parameters(parameters);
                self.forward([queries, keys, values], output, saved);
            }
            SavingPass::Infer => {
                let ([queries, keys, values, parameters], [output]) = operands.into_arrays()?;
                self.set_parameters(parameters);
                let mut weights = std::mem::take(&mut self.weights);
                self.forward([queries, keys, values], output, &mut weights);
                self.weights = weights;
            }
            SavingPass::Backward => {
                let (reads, [of_queries, of_keys, of_values, gradient]) = operands.into_arrays()?;
                let [queries, keys, values, parameters, saved, output_gradient] = reads;
                self.set_parameters(parameters);
                let input_gradients = Some([of_queries, of_keys, of_values]);
                let reads = [parameters, saved, output_gradient];
                self.backward([queries, keys, values], reads, input_gradients, gradient);
            }
            SavingPass::BackwardParameters => {
                let (reads, [gradient]) = operands.into_arrays()?;
                let [queries, keys, values, parameters, saved, output_gradient] = reads;
                self.set_parameters(parameters);
                self.backward([queries, keys, values], [parameters, saved, output_gradient], None, gradient);
            }
        }
        Ok(())
    }
}
