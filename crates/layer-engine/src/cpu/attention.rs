use std::ops::Range;

use super::Real;
use super::gemm::{Matrix, MatrixMut, Update, multiply};
use super::operation::{Operands, Operation};
use super::softmax::normalise;
use super::sums::sum_of_pairs;
use super::workers::Workers;
use crate::{EngineError, LaunchContext};

/// Queries that are compared with all keys at a time: their weights stay in the cache.
const QUERIES: usize = 64;

/// Which of an attention's passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttentionPass {
    Forward,
    Infer,
    Backward,
}

/// The sizes of an attention.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) samples: usize,
    pub(super) positions: usize,
    pub(super) heads: usize,
    /// Features of a head.
    pub(super) width: usize,
    /// Whether a position sees only itself and those before it.
    pub(super) causal: bool,
}

impl Sizes {
    /// Features of a position of the output; one of the input has as many queries, keys and values.
    fn features(&self) -> usize {
        self.heads * self.width
    }

    fn scale<T: Real>(&self) -> T {
        T::narrow(1.0 / (self.width as f64).sqrt())
    }

    /// The queries in blocks.
    fn blocks(self) -> impl Iterator<Item = Range<usize>> {
        let starts = (0..self.positions).step_by(QUERIES);
        starts.map(move |start| start..(start + QUERIES).min(self.positions))
    }

    /// How many keys a block of queries is compared with.
    fn keys_of_block(&self, queries: &Range<usize>) -> usize {
        if self.causal { queries.end } else { self.positions }
    }

    /// How many keys a query sees.
    fn keys_of_query(&self, query: usize) -> usize {
        if self.causal { query + 1 } else { self.positions }
    }
}

/// Scaled dot-product attention, one head of one sample at a time.
///
/// Saves for each query the logarithm of the sum over its keys (`samples x heads x positions`), from which the backward
/// pass computes the weights again: they are never in memory as a whole (as in `FlashAttention`; Dao et al., 2022).
#[derive(Debug)]
pub(super) struct Attention<T> {
    sizes: Sizes,
    pass: AttentionPass,
    workers: Workers,
    slots: Vec<Slot<T>>,
}

/// The workspace for a head.
#[derive(Debug)]
struct Slot<T> {
    /// Weights of a block of queries.
    weights: Vec<T>,
    /// Their gradients.
    weight_gradients: Vec<T>,
    /// The head's results: its output, or the gradients of its queries, keys and values, by position.
    result: Vec<T>,
    /// By query: the logarithm of the sum over its keys.
    log_sums: Vec<T>,
}

/// The queries, keys and values of a head within the sample that holds them.
struct Head<'a, T> {
    sizes: Sizes,
    /// From the head's first query on.
    data: &'a [T],
}

impl<'a, T: Real> Head<'a, T> {
    /// Some rows of the queries (0), keys (1) or values (2).
    fn rows(&self, part: usize, rows: Range<usize>) -> Matrix<'a, T> {
        let features = self.sizes.features();
        let data = &self.data[rows.start * 3 * features + part * features..];
        Matrix::with_stride(data, rows.len(), self.sizes.width, 3 * features)
    }

    /// The scalar products of a block of queries with its keys.
    fn scores<'s>(&self, queries: &Range<usize>, weights: &'s mut [T]) -> &'s mut [T] {
        let keys = self.sizes.keys_of_block(queries);
        let scores = &mut weights[..queries.len() * keys];
        let target = MatrixMut::new(&mut *scores, queries.len(), keys);
        let (left, right) = (self.rows(0, queries.clone()), self.rows(1, 0..keys).transposed());
        multiply(target, Update::Overwrite, left, right);
        scores
    }

    fn forward(&self, slot: &mut Slot<T>) {
        let width = self.sizes.width;
        for queries in self.sizes.blocks() {
            let keys = self.sizes.keys_of_block(&queries);
            let weights = self.scores(&queries, &mut slot.weights);
            for (query, row) in queries.clone().zip(weights.chunks_exact_mut(keys)) {
                let (seen, hidden) = row.split_at_mut(self.sizes.keys_of_query(query));
                slot.log_sums[query] = T::narrow(normalise(seen, self.sizes.scale()));
                hidden.fill(T::zero());
            }
            let target = &mut slot.result[queries.start * width..queries.end * width];
            let target = MatrixMut::new(target, queries.len(), width);
            let weights = Matrix::new(weights, queries.len(), keys);
            multiply(target, Update::Overwrite, weights, self.rows(2, 0..keys));
        }
    }

    /// `output` and `output_gradient` begin at the head's first column, `log_sums` is the head's own.
    fn backward(&self, output: &[T], log_sums: &[T], output_gradient: &[T], slot: &mut Slot<T>) {
        let Sizes { width, .. } = self.sizes;
        let (features, scale) = (self.sizes.features(), self.sizes.scale());
        let Slot { weights, weight_gradients, result, .. } = slot;
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
                // The mean gradient of the weights, by the weights.
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
    pub(super) fn new(sizes: Sizes, pass: AttentionPass, workers: &Workers) -> Self {
        let Sizes { positions, width, .. } = sizes;
        let block = QUERIES.min(positions) * positions;
        let backward = pass == AttentionPass::Backward;
        let slot = || Slot {
            weights: vec![T::zero(); block],
            weight_gradients: vec![T::zero(); if backward { block } else { 0 }],
            result: vec![T::zero(); positions * width * if backward { 3 } else { 1 }],
            log_sums: vec![T::zero(); if backward { 0 } else { positions }],
        };
        let slots = (0..workers.threads().min(sizes.samples * sizes.heads)).map(|_| slot()).collect();
        Self { sizes, pass, workers: workers.clone(), slots }
    }

    /// Computes every head of every sample, as many at a time as there are slots, and hands each slot's results on.
    fn heads(
        &mut self,
        input: &[T],
        compute: impl Fn(usize, &Head<'_, T>, &mut Slot<T>) + Sync,
        mut collect: impl FnMut(usize, &Slot<T>),
    ) {
        let Sizes { samples, positions, heads, width, .. } = self.sizes;
        let (sizes, mut first) = (self.sizes, 0);
        while first < samples * heads {
            let round = self.slots.len().min(samples * heads - first);
            let slots = &mut self.slots[..round];
            self.workers.chunks(slots, 1, |index, slot| {
                let number = first + index;
                let start = number / heads * positions * 3 * sizes.features() + number % heads * width;
                compute(number, &Head { sizes, data: &input[start..] }, &mut slot[0]);
            });
            slots.iter().zip(first..).for_each(|(slot, number)| collect(number, slot));
            first += round;
        }
    }

    fn forward(&mut self, input: &[T], output: &mut [T], mut saved: Option<&mut [T]>) {
        let sizes = self.sizes;
        self.heads(
            input,
            |_, head, slot| head.forward(slot),
            |number, slot| {
                let start = head_start(&sizes, number);
                scatter(&slot.result, sizes.width, &mut output[start..], sizes.features());
                if let Some(saved) = &mut saved {
                    let start = number * sizes.positions;
                    saved[start..start + sizes.positions].copy_from_slice(&slot.log_sums);
                }
            },
        );
    }

    fn backward(&mut self, [input, output, saved, output_gradient]: [&[T]; 4], input_gradient: &mut [T]) {
        let sizes = self.sizes;
        self.heads(
            input,
            |number, head, slot| {
                let start = head_start(&sizes, number);
                let log_sums = &saved[number * sizes.positions..][..sizes.positions];
                head.backward(&output[start..], log_sums, &output_gradient[start..], slot);
            },
            |number, slot| {
                let sample = number / sizes.heads * sizes.positions * 3 * sizes.features();
                for part in 0..3 {
                    let start = sample + part * sizes.features() + number % sizes.heads * sizes.width;
                    let result = &slot.result[part * sizes.width..];
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

/// The first element of a head's output.
fn head_start(sizes: &Sizes, number: usize) -> usize {
    number / sizes.heads * sizes.positions * sizes.features() + number % sizes.heads * sizes.width
}

/// Copies rows of `width` elements to the starts of rows that lie `stride` apart.
fn scatter<T: Real>(rows: &[T], width: usize, target: &mut [T], stride: usize) {
    for (row, target) in rows.chunks_exact(width).zip(target.chunks_mut(stride)) {
        target[..width].copy_from_slice(row);
    }
}

impl<T: Real> Operation<T> for Attention<T> {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        match self.pass {
            AttentionPass::Forward => {
                let ([input], [output, saved]) = operands.exactly()?;
                self.forward(input, output, Some(saved));
            }
            AttentionPass::Infer => {
                let ([input], [output]) = operands.exactly()?;
                self.forward(input, output, None);
            }
            AttentionPass::Backward => {
                let (reads, [input_gradient]) = operands.exactly()?;
                self.backward(reads, input_gradient);
            }
        }
        Ok(())
    }
}
