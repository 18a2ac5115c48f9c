//! Multi-head attention. A position of the input holds the query, the key and the value of each
//! head.

use std::ops::Range;

use super::Real;
use super::gemm::{Matrix, MatrixMut, Update, multiply};
use super::operation::{Operands, Operation};
use super::softmax::normalise;
use super::sums::sum_of_pairs;
use super::workers::Workers;
use crate::{EngineError, LaunchContext};

/// Number of queries in a block, which is compared with all keys. The weights of a block stay in
/// the cache.
const QUERY_BLOCK: usize = 64;

/// Pass of an attention layer, by its results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttentionPass {
    /// Computes the output, and saves a number for each query for the backward pass.
    Forward,
    /// Computes the output only.
    Infer,
    /// Computes the gradient of the input.
    Backward,
}

/// Sizes of an attention layer.
#[derive(Debug, Clone, Copy)]
pub(super) struct AttentionSizes {
    /// Number of samples.
    pub(super) samples: usize,
    /// Number of positions of a sequence.
    pub(super) positions: usize,
    /// Number of attention heads.
    pub(super) heads: usize,
    /// Number of features of the query, the key or the value of a head.
    pub(super) width: usize,
    /// Whether a position attends only to itself and to earlier positions.
    pub(super) causal: bool,
}

impl AttentionSizes {
    /// Returns the number of features of an output position. An input position has three times as
    /// many: query, key and value.
    fn features(&self) -> usize {
        self.heads * self.width
    }

    fn scale<T: Real>(&self) -> T {
        T::narrow(1.0 / (self.width as f64).sqrt())
    }

    /// Returns the ranges of the blocks of queries.
    fn blocks(self) -> impl Iterator<Item = Range<usize>> {
        let starts = (0..self.positions).step_by(QUERY_BLOCK);
        starts.map(move |start| start..(start + QUERY_BLOCK).min(self.positions))
    }

    /// Returns the number of keys that a block of queries is compared with.
    fn keys_of_block(&self, queries: &Range<usize>) -> usize {
        if self.causal { queries.end } else { self.positions }
    }

    /// Returns the number of keys that a query attends to.
    fn keys_of_query(&self, query: usize) -> usize {
        if self.causal { query + 1 } else { self.positions }
    }
}

/// Scaled dot-product attention, one head of one sample at a time.
///
/// Saves the logarithm of the sum of exponentials of each query (`samples x heads x positions`).
/// The backward pass recomputes the weights from it, so the matrix of weights is never stored as a
/// whole (`FlashAttention`; Dao et al., 2022).
#[derive(Debug)]
pub(super) struct Attention<T> {
    sizes: AttentionSizes,
    pass: AttentionPass,
    workers: Workers,
    workspaces: Vec<HeadWorkspace<T>>,
}

/// Workspace for one head.
#[derive(Debug)]
struct HeadWorkspace<T> {
    /// Attention weights of a block of queries.
    weights: Vec<T>,
    /// Gradients of the weights.
    weight_gradients: Vec<T>,
    /// Output of the head, or gradients of its queries, keys and values, by position.
    result: Vec<T>,
    /// Logarithm of the sum of exponentials of each query.
    log_sums: Vec<T>,
}

/// Queries, keys and values of a head within its sample.
struct Head<'a, T> {
    sizes: AttentionSizes,
    /// The input from the first query of the head on.
    data: &'a [T],
}

impl<'a, T: Real> Head<'a, T> {
    /// Returns rows of the queries (part 0), keys (1) or values (2).
    fn rows(&self, part: usize, rows: Range<usize>) -> Matrix<'a, T> {
        let features = self.sizes.features();
        let data = &self.data[rows.start * 3 * features + part * features..];
        Matrix::with_stride(data, rows.len(), self.sizes.width, 3 * features)
    }

    /// Computes the scalar products of a block of queries with its keys.
    fn scores<'s>(&self, queries: &Range<usize>, weights: &'s mut [T]) -> &'s mut [T] {
        let keys = self.sizes.keys_of_block(queries);
        let scores = &mut weights[..queries.len() * keys];
        let target = MatrixMut::new(&mut *scores, queries.len(), keys);
        let (left, right) = (self.rows(0, queries.clone()), self.rows(1, 0..keys).transposed());
        multiply(target, Update::Overwrite, left, right);
        scores
    }

    fn forward(&self, workspace: &mut HeadWorkspace<T>) {
        let width = self.sizes.width;
        for queries in self.sizes.blocks() {
            let keys = self.sizes.keys_of_block(&queries);
            let weights = self.scores(&queries, &mut workspace.weights);
            for (query, row) in queries.clone().zip(weights.chunks_exact_mut(keys)) {
                let (seen, hidden) = row.split_at_mut(self.sizes.keys_of_query(query));
                workspace.log_sums[query] = T::narrow(normalise(seen, self.sizes.scale()));
                hidden.fill(T::zero());
            }
            let target = &mut workspace.result[queries.start * width..queries.end * width];
            let target = MatrixMut::new(target, queries.len(), width);
            let weights = Matrix::new(weights, queries.len(), keys);
            multiply(target, Update::Overwrite, weights, self.rows(2, 0..keys));
        }
    }

    /// Computes the gradients of one head. `output` and `output_gradient` begin at the first column
    /// of the head; `log_sums` belongs to the head.
    fn backward(
        &self,
        output: &[T],
        log_sums: &[T],
        output_gradient: &[T],
        workspace: &mut HeadWorkspace<T>,
    ) {
        let AttentionSizes { width, .. } = self.sizes;
        let (features, scale) = (self.sizes.features(), self.sizes.scale());
        let HeadWorkspace { weights, weight_gradients, result, .. } = workspace;
        result.fill(T::zero());
        for queries in self.sizes.blocks() {
            let (count, keys) = (queries.len(), self.sizes.keys_of_block(&queries));
            let gradient = &output_gradient[queries.start * features..];
            let gradient = Matrix::with_stride(gradient, count, width, features);
            let weights = self.scores(&queries, weights);
            let slopes = &mut weight_gradients[..count * keys];
            let target = MatrixMut::new(&mut *slopes, count, keys);
            multiply(target, Update::Overwrite, gradient, self.rows(2, 0..keys).transposed());
            let rows = weights.chunks_exact_mut(keys).zip(slopes.chunks_exact_mut(keys));
            for (query, (weights, slopes)) in queries.clone().zip(rows) {
                let seen = self.sizes.keys_of_query(query);
                let row = query * features..query * features + width;
                // Mean of the weights' gradients, weighted by the weights.
                let mean =
                    sum_of_pairs(&output[row.clone()], &output_gradient[row], |y, dy| y.widen() * dy.widen());
                let (mean, log_sum) = (T::narrow(mean), log_sums[query]);
                for (weight, slope) in weights[..seen].iter_mut().zip(&mut slopes[..seen]) {
                    *weight = (*weight * scale - log_sum).exponential();
                    *slope = *weight * (*slope - mean) * scale;
                }
                weights[seen..].fill(T::zero());
                slopes[seen..].fill(T::zero());
            }
            let (weights, slopes) = (Matrix::new(weights, count, keys), Matrix::new(slopes, count, keys));
            let mut add = |part: usize, start: usize, rows: usize, left, right| {
                let target = &mut result[start * 3 * width + part * width..];
                let target = MatrixMut::with_stride(target, rows, width, 3 * width);
                multiply(target, Update::Accumulate, left, right);
            };
            add(0, queries.start, count, slopes, self.rows(1, 0..keys));
            add(1, 0, keys, slopes.transposed(), self.rows(0, queries.clone()));
            add(2, 0, keys, weights.transposed(), gradient);
        }
    }
}

impl<T: Real> Attention<T> {
    /// Creates a pass of an attention layer of these sizes, whose heads are distributed over
    /// `workers`.
    pub(super) fn new(sizes: AttentionSizes, pass: AttentionPass, workers: &Workers) -> Self {
        let AttentionSizes { positions, width, .. } = sizes;
        let block = QUERY_BLOCK.min(positions) * positions;
        let backward = pass == AttentionPass::Backward;
        let workspace = || HeadWorkspace {
            weights: vec![T::zero(); block],
            weight_gradients: vec![T::zero(); if backward { block } else { 0 }],
            result: vec![T::zero(); positions * width * if backward { 3 } else { 1 }],
            log_sums: vec![T::zero(); if backward { 0 } else { positions }],
        };
        let workspaces =
            (0..workers.threads().min(sizes.samples * sizes.heads)).map(|_| workspace()).collect();
        Self { sizes, pass, workers: workers.clone(), workspaces }
    }

    /// Computes every head of every sample, in rounds of one head per workspace, and passes each
    /// result to `collect`.
    fn heads(
        &mut self,
        input: &[T],
        compute: impl Fn(usize, &Head<'_, T>, &mut HeadWorkspace<T>) + Sync,
        mut collect: impl FnMut(usize, &HeadWorkspace<T>),
    ) {
        let AttentionSizes { samples, positions, heads, width, .. } = self.sizes;
        let (sizes, mut first) = (self.sizes, 0);
        while first < samples * heads {
            let round = self.workspaces.len().min(samples * heads - first);
            let workspaces = &mut self.workspaces[..round];
            self.workers.chunks(workspaces, 1, |index, workspace| {
                let number = first + index;
                let start = number / heads * positions * 3 * sizes.features() + number % heads * width;
                compute(number, &Head { sizes, data: &input[start..] }, &mut workspace[0]);
            });
            workspaces.iter().zip(first..).for_each(|(workspace, number)| collect(number, workspace));
            first += round;
        }
    }

    fn forward(&mut self, input: &[T], output: &mut [T], mut saved: Option<&mut [T]>) {
        let sizes = self.sizes;
        self.heads(
            input,
            |_, head, workspace| head.forward(workspace),
            |number, workspace| {
                let start = head_start(&sizes, number);
                scatter(&workspace.result, sizes.width, &mut output[start..], sizes.features());
                if let Some(saved) = &mut saved {
                    let start = number * sizes.positions;
                    saved[start..start + sizes.positions].copy_from_slice(&workspace.log_sums);
                }
            },
        );
    }

    fn backward(&mut self, [input, output, saved, output_gradient]: [&[T]; 4], input_gradient: &mut [T]) {
        let sizes = self.sizes;
        self.heads(
            input,
            |number, head, workspace| {
                let start = head_start(&sizes, number);
                let log_sums = &saved[number * sizes.positions..][..sizes.positions];
                head.backward(&output[start..], log_sums, &output_gradient[start..], workspace);
            },
            |number, workspace| {
                let sample = number / sizes.heads * sizes.positions * 3 * sizes.features();
                for part in 0..3 {
                    let start = sample + part * sizes.features() + number % sizes.heads * sizes.width;
                    let result = &workspace.result[part * sizes.width..];
                    let rows = result.chunks(3 * sizes.width);
                    let targets = input_gradient[start..].chunks_mut(3 * sizes.features());
                    for (row, target) in rows.zip(targets).take(sizes.positions) {
                        target[..sizes.width].copy_from_slice(&row[..sizes.width]);
                    }
                }
            },
        );
    }
}

/// Returns the index of the first element of a head's output.
fn head_start(sizes: &AttentionSizes, number: usize) -> usize {
    number / sizes.heads * sizes.positions * sizes.features() + number % sizes.heads * sizes.width
}

/// Copies rows of `width` elements to rows that start `stride` elements apart.
fn scatter<T: Real>(rows: &[T], width: usize, target: &mut [T], stride: usize) {
    for (row, target) in rows.chunks_exact(width).zip(target.chunks_mut(stride)) {
        target[..width].copy_from_slice(row);
    }
}

impl<T: Real> Operation<T> for Attention<T> {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        match self.pass {
            AttentionPass::Forward => {
                let ([input], [output, saved]) = operands.into_arrays()?;
                self.forward(input, output, Some(saved));
            }
            AttentionPass::Infer => {
                let ([input], [output]) = operands.into_arrays()?;
                self.forward(input, output, None);
            }
            AttentionPass::Backward => {
                let (reads, [input_gradient]) = operands.into_arrays()?;
                self.backward(reads, input_gradient);
            }
        }
        Ok(())
    }
}
