//! Learned numbers of relative positions.

use layer_graph::RelativePositions;

use super::AttentionRule;
use crate::cpu::Real;

/// Learned numbers of an attention, which it adds to the scaled products of queries and keys.
#[derive(Debug)]
pub(super) struct Biases<T> {
    /// Number of heads.
    heads: usize,
    /// Bucket of each distance between a key and a query, in order.
    buckets: Vec<usize>,
    /// The number of each distance, head after head, divided by the factor of the products.
    values: Vec<T>,
}

/// Learned numbers of one head.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeadBiases<'a, T> {
    /// Bucket of each distance between a key and a query, in order.
    pub(super) buckets: &'a [usize],
    /// The number of each distance, divided by the factor of the products.
    pub(super) values: &'a [T],
}

impl<T: Real> Biases<T> {
    pub(super) fn new(rule: &AttentionRule, relative: RelativePositions) -> Self {
        let heads = rule.sizes.heads;
        let buckets = relative.buckets_of_distances(&rule.sizes, rule.window.is_some());
        let values = vec![T::zero(); heads * buckets.len()];
        Self { heads, buckets, values }
    }

    /// Takes the numbers of a launch from the parameters.
    pub(super) fn set(&mut self, parameters: &[T], scale: f64) {
        let scale = T::narrow(scale);
        for (head, values) in self.values.chunks_exact_mut(self.buckets.len()).enumerate() {
            for (value, bucket) in values.iter_mut().zip(&self.buckets) {
                *value = parameters[bucket * self.heads + head] / scale;
            }
        }
    }

    /// Returns the numbers of the head `number`, which counts the heads of all samples.
    pub(super) fn of_head(&self, number: usize) -> HeadBiases<'_, T> {
        let distances = self.buckets.len();
        let values = &self.values[number % self.heads * distances..][..distances];
        HeadBiases { buckets: &self.buckets, values }
    }
}
