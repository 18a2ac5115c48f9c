//! Numbers that an attention adds to the products of queries and keys, by their distance.

use layer_graph::{LinearBiases, RelativePositions};

use super::AttentionRule;
use crate::cpu::Real;

/// Numbers that an attention adds to the scaled products of queries and keys.
#[derive(Debug)]
pub(super) struct Biases<T> {
    /// Number of heads.
    heads: usize,
    /// Number of distances between a key and a query.
    distances: usize,
    /// Bucket of each distance, in order. Empty if the numbers are not learned.
    buckets: Vec<usize>,
    /// The number of each distance, head after head, divided by the factor of the products.
    values: Vec<T>,
}

/// Numbers of one head.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeadBiases<'a, T> {
    /// Bucket of each distance between a key and a query, in order. Empty if the numbers are not
    /// learned.
    pub(super) buckets: &'a [usize],
    /// The number of each distance, divided by the factor of the products.
    pub(super) values: &'a [T],
}

impl<T: Real> Biases<T> {
    /// Creates numbers that are parameters.
    pub(super) fn learned(rule: &AttentionRule, relative: RelativePositions) -> Self {
        let heads = rule.sizes.heads;
        let buckets = relative.buckets_of_distances(&rule.sizes, rule.window.is_some());
        let values = vec![T::zero(); heads * buckets.len()];
        Self { heads, distances: buckets.len(), buckets, values }
    }

    /// Creates the numbers of linear biases.
    pub(super) fn linear(rule: &AttentionRule, biases: LinearBiases) -> Self {
        let values = biases.of_distances(&rule.sizes).into_iter().map(|bias| T::narrow(bias / rule.scale));
        let values: Vec<T> = values.collect();
        let heads = rule.sizes.heads;
        Self { heads, distances: values.len() / heads, buckets: Vec::new(), values }
    }

    /// Returns whether the numbers are parameters.
    pub(super) fn are_learned(&self) -> bool {
        !self.buckets.is_empty()
    }

    /// Takes the numbers of a launch from the parameters.
    pub(super) fn set(&mut self, parameters: &[T], scale: f64) {
        let scale = T::narrow(scale);
        for (head, values) in self.values.chunks_exact_mut(self.distances).enumerate() {
            for (value, bucket) in values.iter_mut().zip(&self.buckets) {
                *value = parameters[bucket * self.heads + head] / scale;
            }
        }
    }

    /// Returns the numbers of the head `number`, which counts the heads of all samples.
    pub(super) fn of_head(&self, number: usize) -> HeadBiases<'_, T> {
        let values = &self.values[number % self.heads * self.distances..][..self.distances];
        HeadBiases { buckets: &self.buckets, values }
    }
}
