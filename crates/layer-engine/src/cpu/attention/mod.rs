//! Multi-head attention. One input holds the queries, keys and values of all heads, or each of
//! three.

mod biases;
mod dropout;

use std::mem;
use std::ops::Range;

use layer_graph::{AttentionSizes, Layer, MultiHeadAttention};

use self::biases::{Biases, HeadBiases};
use self::dropout::{HeadMask, WeightDropout};
use super::Real;
use super::gemm::{Matrix, MatrixMut, Update, multiply};
use super::operation::{Operands, Operation, SavingPass, mismatch};
use super::softmax::normalise;
use super::sums::sum_of_pairs;
use super::workers::Workers;
use crate::{EngineError, LaunchContext, Pass, Shard};

/// Number of queries in a block, which is compared with all keys. The weights of a block stay in
/// the cache.
const QUERY_BLOCK: usize = 64;

/// Hyper-parameters and sizes of an attention layer.
#[derive(Debug, Clone, Copy)]
struct AttentionRule {
    /// Number of samples.
    samples: usize,
    /// Sizes of one sample.
    sizes: AttentionSizes,
    /// Whether one input has the queries, keys and values of each position.
    is_fused: bool,
    /// Whether the last input says which keys are padding.
    has_padding: bool,
    /// Number of positions up to its own that a position attends to at most, if it is causal.
    window: Option<usize>,
    /// Factor of the products of queries and keys.
    scale: f64,
}

/// Place of the queries, the keys or the values of one head in the inputs, or of their gradients in
/// the gradients of the inputs.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// Index of the input.
    input: usize,
    /// Index of the first element of the first position.
    start: usize,
    /// Distance between the first elements of two positions.
    stride: usize,
}

impl AttentionRule {
    /// Creates the rule of a layer over `samples` samples. Returns `None` if its inputs do not fit.
    fn new(layer: &Layer, attention: &MultiHeadAttention, samples: usize) -> Option<Self> {
        let sizes = attention.sizes(layer.input_shapes())?;
        let is_fused = attention.is_fused(layer.input_shapes().len());
        let has_padding = attention.padding;
        let scale = attention.scale_for(sizes.width);
        let window = attention.causal_window(&sizes);
        Some(Self { samples, sizes, is_fused, has_padding, window, scale })
    }

    /// Returns the number of features of an output position.
    fn features(&self) -> usize {
        self.sizes.heads * self.sizes.width
    }

    fn scale<T: Real>(&self) -> T {
        T::narrow(self.scale)
    }

    /// Returns the number of heads of the queries (part 0), keys (1) or values (2) of a sample, and
    /// that of their positions.
    fn part(&self, part: usize) -> [usize; 2] {
        let AttentionSizes { positions, key_positions, heads, key_heads, .. } = self.sizes;
        if part == 0 { [heads, positions] } else { [key_heads, key_positions] }
    }

    /// Returns the place of a part of the head `number`, which counts the heads of all samples.
    fn place(&self, part: usize, number: usize) -> Place {
        let AttentionSizes { heads, width, .. } = self.sizes;
        let [part_heads, positions] = self.part(part);
        let features = part_heads * width;
        let (input, offset, stride) =
            if self.is_fused { (0, part * features, 3 * features) } else { (part, 0, features) };
        let head = number % heads / (heads / part_heads);
        Place { input, start: number / heads * positions * stride + offset + head * width, stride }
    }

    /// Returns whether the head `number` is the first one of its sample with its key head.
    fn is_first_of_group(&self, number: usize) -> bool {
        let AttentionSizes { heads, key_heads, .. } = self.sizes;
        number % heads % (heads / key_heads) == 0
    }

    /// Returns the ranges of the blocks of queries.
    fn blocks(self) -> impl Iterator<Item = Range<usize>> {
        let positions = self.sizes.positions;
        let starts = (0..positions).step_by(QUERY_BLOCK);
        starts.map(move |start| start..(start + QUERY_BLOCK).min(positions))
    }

    /// Returns the range of the keys that a block of queries is compared with.
    fn keys_of_block(&self, queries: &Range<usize>) -> Range<usize> {
        self.keys_of_query(queries.start).start..self.keys_of_query(queries.end - 1).end
    }

    /// Returns the range of the keys that a query attends to.
    fn keys_of_query(&self, query: usize) -> Range<usize> {
        self.sizes.keys_of_query(query, self.window)
    }

    /// Returns the maximum number of keys that a block of queries is compared with.
    fn max_keys_of_block(&self) -> usize {
        let AttentionSizes { positions, key_positions, .. } = self.sizes;
        self.window.map_or(key_positions, |window| (window + QUERY_BLOCK.min(positions)).min(key_positions))
    }
}

/// Scaled dot-product attention, one head of one sample at a time.
///
/// Saves the logarithm of the sum of exponentials of each query (`samples x heads x positions`).
/// The backward pass recomputes the weights from it, so the matrix of weights is never stored as a
/// whole (`FlashAttention`; Dao et al., 2022). It draws the random numbers of a dropout again, too.
#[derive(Debug)]
pub(super) struct Attention<T> {
    rule: AttentionRule,
    dropout: Option<WeightDropout>,
    biases: Option<Biases<T>>,
    /// Sums of the gradients of the learned numbers, as the parameters are: one for each bucket and
    /// head.
    bias_gradients: Vec<f64>,
    pass: SavingPass,
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
    /// Output of the head, or gradients of its queries, its keys and its values, by position.
    results: [Vec<T>; 3],
    /// Logarithm of the sum of exponentials of each query.
    log_sums: Vec<T>,
    /// Sum of the gradients of the products of each bucket of distances.
    bucket_sums: Vec<f64>,
}

/// Queries, keys and values of a head.
struct Head<'a, T> {
    rule: AttentionRule,
    /// The inputs from the first query, key and value of the head on, and the distances of two
    /// positions.
    parts: [(&'a [T], usize); 3],
    /// For each key, 0 if it is padding. Empty if none is.
    padding: &'a [T],
    mask: Option<HeadMask>,
    biases: Option<HeadBiases<'a, T>>,
}

impl<'a, T: Real> Head<'a, T> {
    fn new(
        rule: AttentionRule,
        inputs: &[&'a [T]],
        number: usize,
        (mask, biases): (Option<HeadMask>, Option<HeadBiases<'a, T>>),
    ) -> Self {
        let parts = [0, 1, 2].map(|part| {
            let place = rule.place(part, number);
            (&inputs[place.input][place.start..], place.stride)
        });
        let keys = rule.sizes.key_positions;
        let sample = number / rule.sizes.heads;
        let padding = match inputs.last() {
            Some(padding) if rule.has_padding => &padding[sample * keys..][..keys],
            _ => &[],
        };
        Self { rule, parts, padding, mask, biases }
    }

    /// Returns the index of the distance between a key and a query.
    fn distance(&self, key: usize, query: usize) -> usize {
        self.rule.sizes.positions - 1 - query + key
    }

    /// Returns rows of the queries (part 0), keys (1) or values (2).
    fn rows(&self, part: usize, rows: Range<usize>) -> Matrix<'a, T> {
        let (data, stride) = self.parts[part];
        Matrix::with_stride(&data[rows.start * stride..], rows.len(), self.rule.sizes.width, stride)
    }

    /// Computes the scalar products of a block of queries with its keys, with biases. Those with
    /// padding are minus infinity.
    fn scores<'s>(&self, queries: &Range<usize>, weights: &'s mut [T]) -> &'s mut [T] {
        let keys = self.rule.keys_of_block(queries);
        let scores = &mut weights[..queries.len() * keys.len()];
        let target = MatrixMut::new(&mut *scores, queries.len(), keys.len());
        let (left, right) = (self.rows(0, queries.clone()), self.rows(1, keys.clone()).transposed());
        multiply(target, Update::Overwrite, left, right);
        if let Some(biases) = self.biases {
            for (query, row) in queries.clone().zip(scores.chunks_exact_mut(keys.len())) {
                let biases = &biases.values[self.distance(keys.start, query)..];
                row.iter_mut().zip(biases).for_each(|(score, &bias)| *score += bias);
            }
        }
        if !self.padding.is_empty() {
            for row in scores.chunks_exact_mut(keys.len()) {
                for (score, number) in row.iter_mut().zip(&self.padding[keys.clone()]) {
                    if number.widen() <= 0.5 {
                        *score = T::narrow(f64::NEG_INFINITY);
                    }
                }
            }
        }
        scores
    }

    fn forward(&mut self, workspace: &mut HeadWorkspace<T>) {
        let width = self.rule.sizes.width;
        for queries in self.rule.blocks() {
            let keys = self.rule.keys_of_block(&queries);
            let weights = self.scores(&queries, &mut workspace.weights);
            for (query, row) in queries.clone().zip(weights.chunks_exact_mut(keys.len())) {
                let of_query = self.rule.keys_of_query(query);
                let [begin, end] = [of_query.start, of_query.end].map(|key| key - keys.start);
                let seen = &mut row[begin..end];
                let is_padding = |score: &T| score.widen() == f64::NEG_INFINITY;
                if !self.padding.is_empty() && seen.iter().all(is_padding) {
                    // The weights that the backward pass computes from it are zero.
                    workspace.log_sums[query] = T::narrow(f64::INFINITY);
                    row.fill(T::zero());
                    continue;
                }
                workspace.log_sums[query] = T::narrow(normalise(seen, self.rule.scale()));
                if let Some(mask) = &mut self.mask {
                    let mut factor = mask.factors(query, of_query.start);
                    for weight in seen.iter_mut() {
                        *weight *= factor();
                    }
                }
                row[..begin].fill(T::zero());
                row[end..].fill(T::zero());
            }
            let target = &mut workspace.results[0][queries.start * width..queries.end * width];
            let target = MatrixMut::new(target, queries.len(), width);
            let weights = Matrix::new(weights, queries.len(), keys.len());
            multiply(target, Update::Overwrite, weights, self.rows(2, keys));
        }
    }

    /// Computes the gradients of one head. `output` and `output_gradient` begin at the first column
    /// of the head; `log_sums` belongs to the head.
    fn backward(
        &mut self,
        output: &[T],
        log_sums: &[T],
        output_gradient: &[T],
        workspace: &mut HeadWorkspace<T>,
    ) {
        let width = self.rule.sizes.width;
        let (features, scale) = (self.rule.features(), self.rule.scale());
        let HeadWorkspace { weights, weight_gradients, results, bucket_sums, .. } = workspace;
        for result in &mut *results {
            result.fill(T::zero());
        }
        bucket_sums.fill(0.0);
        for queries in self.rule.blocks() {
            let (count, keys) = (queries.len(), self.rule.keys_of_block(&queries));
            let gradient = &output_gradient[queries.start * features..];
            let gradient = Matrix::with_stride(gradient, count, width, features);
            let weights = self.scores(&queries, weights);
            let slopes = &mut weight_gradients[..count * keys.len()];
            let target = MatrixMut::new(&mut *slopes, count, keys.len());
            multiply(target, Update::Overwrite, gradient, self.rows(2, keys.clone()).transposed());
            let rows = weights.chunks_exact_mut(keys.len()).zip(slopes.chunks_exact_mut(keys.len()));
            for (query, (weights, slopes)) in queries.clone().zip(rows) {
                let of_query = self.rule.keys_of_query(query);
                let [begin, end] = [of_query.start, of_query.end].map(|key| key - keys.start);
                let row = query * features..query * features + width;
                // Mean of the weights' gradients, weighted by the weights.
                let mean =
                    sum_of_pairs(&output[row.clone()], &output_gradient[row], |y, dy| y.widen() * dy.widen());
                let (mean, log_sum) = (T::narrow(mean), log_sums[query]);
                let pairs = weights[begin..end].iter_mut().zip(&mut slopes[begin..end]);
                if let Some(mask) = &mut self.mask {
                    let mut next = mask.factors(query, of_query.start);
                    for (weight, slope) in pairs {
                        let factor: T = next();
                        *weight = (*weight * scale - log_sum).exponential();
                        *slope = *weight * (*slope * factor - mean) * scale;
                        *weight *= factor;
                    }
                } else {
                    for (weight, slope) in pairs {
                        *weight = (*weight * scale - log_sum).exponential();
                        *slope = *weight * (*slope - mean) * scale;
                    }
                }
                for row in [weights, &mut *slopes] {
                    row[..begin].fill(T::zero());
                    row[end..].fill(T::zero());
                }
                if let Some(biases) = self.biases.filter(|biases| !biases.buckets.is_empty()) {
                    let buckets = &biases.buckets[self.distance(of_query.start, query)..];
                    let pairs = buckets.iter().zip(&slopes[begin..end]);
                    pairs.for_each(|(&bucket, slope)| bucket_sums[bucket] += slope.widen());
                }
            }
            let [weights, slopes] = [&*weights, &*slopes].map(|rows| Matrix::new(rows, count, keys.len()));
            let mut add = |part: usize, start: usize, rows: usize, left, right| {
                let target = &mut results[part][start * width..(start + rows) * width];
                let target = MatrixMut::new(target, rows, width);
                multiply(target, Update::Accumulate, left, right);
            };
            add(0, queries.start, count, slopes, self.rows(1, keys.clone()));
            add(1, keys.start, keys.len(), slopes.transposed(), self.rows(0, queries.clone()));
            add(2, keys.start, keys.len(), weights.transposed(), gradient);
        }
    }
}

impl<T: Real> Attention<T> {
    /// Creates a pass of an attention layer, whose heads are distributed over `workers`. Returns
    /// `None` if its inputs do not fit.
    pub(super) fn new(
        layer: &Layer,
        attention: &MultiHeadAttention,
        shard: Shard,
        pass: Pass,
        workers: &Workers,
    ) -> Option<Self> {
        let rule = AttentionRule::new(layer, attention, shard.samples)?;
        let learned = attention.relative.map(|relative| Biases::learned(&rule, relative));
        let biases = learned.or_else(|| attention.alibi.map(|biases| Biases::linear(&rule, biases)));
        let is_training = pass != Pass::Infer;
        let dropout = if is_training { WeightDropout::new(layer, attention, shard) } else { None };
        let AttentionSizes { positions, heads, width, .. } = rule.sizes;
        let block = QUERY_BLOCK.min(positions) * rule.max_keys_of_block();
        let backward = pass.is_backward();
        let buckets = attention.relative.filter(|_| backward).map_or(0, |relative| relative.buckets);
        let zeros = |elements: usize, is_used: bool| vec![T::zero(); if is_used { elements } else { 0 }];
        let workspace = || HeadWorkspace {
            weights: zeros(block, true),
            weight_gradients: zeros(block, backward),
            results: [0, 1, 2].map(|part| zeros(rule.part(part)[1] * width, part == 0 || backward)),
            log_sums: zeros(positions, !backward),
            bucket_sums: vec![0.0; buckets],
        };
        let workspaces = (0..workers.threads().min(rule.samples * heads)).map(|_| workspace()).collect();
        let bias_gradients = vec![0.0; buckets * heads];
        let (pass, workers) = (SavingPass::of(pass), workers.clone());
        Some(Self { rule, dropout, biases, bias_gradients, pass, workers, workspaces })
    }

    /// Returns whether the last of the inputs and of the gradients is that of learned numbers.
    fn learns(&self) -> bool {
        self.biases.as_ref().is_some_and(Biases::are_learned)
    }

    /// Computes every head of every sample, in rounds of one head per workspace, and passes each
    /// result to `collect`, in order.
    fn heads(
        &mut self,
        inputs: &[&[T]],
        context: &LaunchContext,
        compute: impl Fn(usize, &mut Head<'_, T>, &mut HeadWorkspace<T>) + Sync,
        mut collect: impl FnMut(usize, &HeadWorkspace<T>),
    ) {
        let (rule, dropout, biases, mut first) = (self.rule, self.dropout.as_ref(), self.biases.as_ref(), 0);
        let count = rule.samples * rule.sizes.heads;
        while first < count {
            let round = self.workspaces.len().min(count - first);
            let workspaces = &mut self.workspaces[..round];
            self.workers.chunks(workspaces, 1, |index, workspace| {
                let number = first + index;
                let mask = dropout.map(|dropout| dropout.of_head(&rule.sizes, number, context));
                let biases = biases.map(|biases| biases.of_head(number));
                compute(number, &mut Head::new(rule, inputs, number, (mask, biases)), &mut workspace[0]);
            });
            workspaces.iter().zip(first..).for_each(|(workspace, number)| collect(number, workspace));
            first += round;
        }
    }

    fn forward(
        &mut self,
        inputs: &[&[T]],
        context: &LaunchContext,
        output: &mut [T],
        mut saved: Option<&mut [T]>,
    ) {
        let rule = self.rule;
        let AttentionSizes { positions, width, .. } = rule.sizes;
        self.heads(
            inputs,
            context,
            |_, head, workspace| head.forward(workspace),
            |number, workspace| {
                let targets = output[head_start(&rule, number)..].chunks_mut(rule.features());
                for (row, target) in workspace.results[0].chunks_exact(width).zip(targets) {
                    target[..width].copy_from_slice(row);
                }
                if let Some(saved) = &mut saved {
                    saved[number * positions..][..positions].copy_from_slice(&workspace.log_sums);
                }
            },
        );
    }

    fn backward(
        &mut self,
        inputs: &[&[T]],
        context: &LaunchContext,
        [output, saved, output_gradient]: [&[T]; 3],
        gradients: &mut [&mut [T]],
    ) {
        let rule = self.rule;
        let AttentionSizes { positions, width, heads, .. } = rule.sizes;
        let (input_gradients, parameter_gradient) =
            gradients.split_at_mut(gradients.len() - usize::from(self.learns()));
        if let Some(of_padding) = input_gradients.last_mut().filter(|_| rule.has_padding) {
            of_padding.fill(T::zero());
        }
        let mut sums = mem::take(&mut self.bias_gradients);
        sums.fill(0.0);
        self.heads(
            inputs,
            context,
            |number, head, workspace| {
                let start = head_start(&rule, number);
                let log_sums = &saved[number * positions..][..positions];
                head.backward(&output[start..], log_sums, &output_gradient[start..], workspace);
            },
            |number, workspace| {
                for (bucket, sum) in workspace.bucket_sums.iter().enumerate() {
                    sums[bucket * heads + number % heads] += sum;
                }
                if input_gradients.is_empty() {
                    return;
                }
                for (part, result) in workspace.results.iter().enumerate() {
                    let Place { input, start, stride } = rule.place(part, number);
                    let targets = input_gradients[input][start..].chunks_mut(stride);
                    for (row, target) in result.chunks_exact(width).zip(targets) {
                        let target = &mut target[..width];
                        if part == 0 || rule.is_first_of_group(number) {
                            target.copy_from_slice(row);
                        } else {
                            target.iter_mut().zip(row).for_each(|(sum, &term)| *sum += term);
                        }
                    }
                }
            },
        );
        if let [gradient] = parameter_gradient {
            let scale = rule.scale;
            gradient.iter_mut().zip(&sums).for_each(|(gradient, &sum)| *gradient = T::narrow(sum / scale));
        }
        self.bias_gradients = sums;
    }
}

/// Returns the index of the first element of a head's output.
fn head_start(rule: &AttentionRule, number: usize) -> usize {
    let AttentionSizes { positions, heads, width, .. } = rule.sizes;
    number / heads * positions * rule.features() + number % heads * width
}

impl<T: Real> Operation<T> for Attention<T> {
    fn run(&mut self, operands: Operands<'_, '_, T>, context: &LaunchContext) -> Result<(), EngineError> {
        let Operands { kernel, reads, writes } = operands;
        let inputs = if self.rule.is_fused { 1 } else { 3 } + usize::from(self.rule.has_padding);
        let (inputs, reads) = reads.split_at(inputs);
        let reads = match (&mut self.biases, reads) {
            (Some(biases), [parameters, rest @ ..]) if biases.are_learned() => {
                biases.set(parameters, self.rule.scale);
                rest
            }
            (_, reads) => reads,
        };
        match (self.pass, reads, writes) {
            (SavingPass::Forward, [], [output, saved]) => self.forward(inputs, context, output, Some(saved)),
            (SavingPass::Infer, [], [output]) => self.forward(inputs, context, output, None),
            (_, &[output, saved, output_gradient], gradients) => {
                self.backward(inputs, context, [output, saved, output_gradient], gradients);
            }
            (_, reads, _) => return Err(mismatch(kernel, "reads", 3, reads.len())),
        }
        Ok(())
    }
}
