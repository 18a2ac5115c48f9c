//! Hyper-parameters and sizes of attentions.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::Shape;

/// Hyper-parameters of a multi-head attention.
///
/// ```
/// use layer_graph::{LayerGraph, Linear, MultiHeadAttention, Shape};
///
/// // Eight query heads of 16 features, which share two key heads.
/// let mut network = LayerGraph::new("attention", Shape::sequence(10, 128))?;
/// let queries = network.add("q_proj", Linear::new(8 * 16), [network.input()])?;
/// let keys = network.add("k_proj", Linear::new(2 * 16), [network.input()])?;
/// let values = network.add("v_proj", Linear::new(2 * 16), [network.input()])?;
/// let attention = MultiHeadAttention::new(8, true);
/// let attention = network.add("attention", attention, [queries, keys, values])?;
/// assert_eq!(network.layer(attention).output_shape(), &Shape::sequence(10, 128));
/// # Ok::<(), layer_graph::GraphError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MultiHeadAttention {
    /// Number of heads of the queries and of the output. Divides the number of output features.
    pub heads: usize,
    /// Whether each position attends only to itself and earlier positions.
    pub causal: bool,
    /// Number of positions that each position of a causal attention attends to at most: itself and
    /// those before it. At least 1. By default all earlier positions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<usize>,
    /// Factor of the products of queries and keys, more than 0. By default `1 / sqrt(d)` for heads
    /// of `d` features.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<f64>,
    /// Probability that a weight, the share of a key in the output of a query, becomes zero during
    /// training. It is in `0.0..1.0`. The other weights are divided by `1 - dropout`.
    #[serde(default, skip_serializing_if = "is_none")]
    pub dropout: f64,
    /// Learned numbers that are added to the scaled products of queries and keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relative: Option<RelativePositions>,
    /// Numbers that are not learned and are added to the scaled products instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alibi: Option<LinearBiases>,
    /// Whether the last input, a number for each key position, says which keys are padding: those
    /// with 0, as opposed to 1, as beyond the end of a shorter sequence. No query attends to them.
    /// The output of a query without any other key is zero.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub padding: bool,
}

/// Linear biases of an attention (`ALiBi`; Press, Smith and Lewis, "Train Short, Test Long", 2022):
/// the distance between a key and a query times a negative slope, which is constant for each head.
///
/// The slopes of *n* heads, a power of two, are `-2^(-8/n)`, `-2^(-16/n)` and so on. For another
/// number of heads they are those of the next lower power of two, and then every other one of the
/// next higher.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinearBiases {
    /// Number of heads that determines the slopes: that of the whole attention.
    pub heads: usize,
    /// Index of the first head: 0, but for a part of an attention that is split by heads.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub first: usize,
    /// Factor of all biases: 1 but in networks that scale them with the products, such as Falcon.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub factor: f64,
}

impl LinearBiases {
    /// Creates the biases of an attention of this number of heads.
    #[must_use]
    pub fn new(heads: usize) -> Self {
        Self { heads, first: 0, factor: 1.0 }
    }

    /// Returns the number that a head adds to the scaled product of the key and the query at these
    /// positions.
    #[must_use]
    pub fn bias(&self, head: usize, key: usize, query: usize) -> f64 {
        -self.slope(head) * key.abs_diff(query) as f64
    }

    /// Returns the biases of all heads for each distance in order, head after head: from that of
    /// the first key and the last query to that of the last key and the first query.
    #[must_use]
    pub fn of_distances(&self, sizes: &AttentionSizes) -> Vec<f64> {
        let of_head = |head| {
            let earlier = (1..sizes.positions).rev().map(move |query| self.bias(head, 0, query));
            earlier.chain((0..sizes.key_positions).map(move |key| self.bias(head, key, 0)))
        };
        (0..sizes.heads).flat_map(of_head).collect()
    }

    /// Returns the negative slope of a head.
    fn slope(&self, head: usize) -> f64 {
        let head = self.first.saturating_add(head);
        let lower = 1usize << self.heads.checked_ilog2().unwrap_or(0);
        let exponent = match head.checked_sub(lower) {
            None => (head + 1) as f64 / lower as f64,
            Some(further) => (further as f64 + 0.5) / lower as f64,
        };
        self.factor * (-8.0 * exponent).exp2()
    }

    /// Returns whether an attention of this number of heads has slopes, and numbers to multiply
    /// them by.
    #[must_use]
    pub fn is_valid(&self, heads: usize) -> bool {
        self.first.checked_add(heads).is_some_and(|end| end <= self.heads) && self.factor.is_finite()
    }
}

fn one() -> f64 {
    1.0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
#[allow(clippy::float_cmp, reason = "a factor that does not change anything is exactly 1")]
fn is_one(factor: &f64) -> bool {
    *factor == 1.0
}

/// Learned numbers of an attention, one for each head and bucket of distances between a key and a
/// query (Raffel et al., "Exploring the Limits of Transfer Learning", 2020).
///
/// Near distances have a bucket each; the further ones share buckets whose width grows with the
/// logarithm of the distance. A causal attention has buckets of earlier keys only. Otherwise half
/// of the buckets are those of later keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelativePositions {
    /// Number of buckets: at least 2 in a causal attention, and 4 in others.
    pub buckets: usize,
    /// Distance from which on all keys have the same number, more than half of the number of
    /// buckets in its direction.
    pub max_distance: usize,
}

impl RelativePositions {
    /// Creates numbers for the given buckets.
    #[must_use]
    pub fn new(buckets: usize, max_distance: usize) -> Self {
        Self { buckets, max_distance }
    }

    /// Returns the number of buckets in one direction.
    fn of_one_direction(&self, causal: bool) -> usize {
        if causal { self.buckets } else { self.buckets / 2 }
    }

    /// Returns whether there are enough buckets, and distances beyond those with a bucket each.
    #[must_use]
    pub fn is_valid(&self, causal: bool) -> bool {
        let buckets = self.of_one_direction(causal);
        buckets >= 2 && self.max_distance > buckets / 2
    }

    /// Returns the bucket of the key and the query at these positions. In causal attentions, the
    /// bucket of later keys is that of the query's own position. The result has no meaning if the
    /// numbers are not [valid](Self::is_valid).
    ///
    /// Logarithms are in single precision, as in `transformers`.
    #[must_use]
    pub fn bucket(&self, key: usize, query: usize, causal: bool) -> usize {
        let buckets = self.of_one_direction(causal);
        let first = if key > query && !causal { buckets } else { 0 };
        let distance = if causal { query.saturating_sub(key) } else { query.abs_diff(key) };
        let exact = buckets / 2;
        if distance < exact {
            return first + distance;
        }
        let powers = (distance as f32 / exact as f32).ln();
        let all = (self.max_distance as f64 / exact as f64).ln() as f32;
        let further = (powers / all * (buckets - exact) as f32) as usize;
        first + exact.saturating_add(further).min(buckets.saturating_sub(1))
    }

    /// Returns the bucket of each distance in order, from that of the first key and the last query
    /// to that of the last key and the first query.
    #[must_use]
    pub fn buckets_of_distances(&self, sizes: &AttentionSizes, causal: bool) -> Vec<usize> {
        let earlier = (1..sizes.positions).rev().map(|query| self.bucket(0, query, causal));
        earlier.chain((0..sizes.key_positions).map(|key| self.bucket(key, 0, causal))).collect()
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_none(probability: &f64) -> bool {
    *probability == 0.0
}

impl MultiHeadAttention {
    /// Creates an attention with the given number of query heads, the default scale and no dropout.
    #[must_use]
    pub fn new(heads: usize, causal: bool) -> Self {
        Self {
            heads,
            causal,
            window: None,
            scale: None,
            dropout: 0.0,
            relative: None,
            alibi: None,
            padding: false,
        }
    }

    /// Limits a causal attention to a window (Beltagy, Peters and Cohan, "Longformer", 2020): each
    /// position attends to itself and to `window - 1` positions before it.
    #[must_use]
    pub fn with_window(mut self, window: usize) -> Self {
        self.window = Some(window);
        self
    }

    /// Sets the probability that a weight becomes zero during training.
    #[must_use]
    pub fn with_dropout(mut self, probability: f64) -> Self {
        self.dropout = probability;
        self
    }

    /// Sets the factor of the products of queries and keys.
    #[must_use]
    pub fn scaled_by(mut self, scale: f64) -> Self {
        self.scale = Some(scale);
        self
    }

    /// Adds learned numbers to the scaled products of queries and keys, by their distance.
    #[must_use]
    pub fn with_relative_positions(mut self, relative: RelativePositions) -> Self {
        self.relative = Some(relative);
        self
    }

    /// Adds a slope of each head times the distance to the scaled products of queries and keys.
    #[must_use]
    pub fn with_alibi(mut self, biases: LinearBiases) -> Self {
        self.alibi = Some(biases);
        self
    }

    /// Adds an input that says which keys are padding.
    #[must_use]
    pub fn with_padding(mut self) -> Self {
        self.padding = true;
        self
    }

    /// Returns whether the first of a number of inputs has the queries, the keys and the values.
    #[must_use]
    pub fn is_fused(&self, inputs: usize) -> bool {
        inputs == 1 + usize::from(self.padding)
    }

    /// Returns the sizes of an attention with inputs of the given shapes, or `None` if it cannot be
    /// applied to them.
    #[must_use]
    pub fn sizes(&self, inputs: &[Shape]) -> Option<AttentionSizes> {
        if self.padding {
            let (padding, others) = inputs.split_last()?;
            let sizes = Self { padding: false, ..self.clone() }.sizes(others)?;
            return Some(sizes).filter(|sizes| padding.dims() == [sizes.key_positions]);
        }
        let sequences: Option<Vec<_>> = inputs.iter().map(Shape::as_sequence).collect();
        let ([positions, key_positions], [query_features, key_features]) = match sequences?[..] {
            [(positions, features)] if features % 3 == 0 => ([positions; 2], [features / 3; 2]),
            [(positions, queries), keys, values] if keys == values => {
                ([positions, keys.0], [queries, keys.1])
            }
            _ => return None,
        };
        let divides = |divisor: usize, number: usize| divisor > 0 && number % divisor == 0;
        let width = query_features.checked_div(self.heads)?;
        let fits = divides(self.heads, query_features)
            && divides(width, key_features)
            && divides(key_features / width, self.heads)
            && (!self.causal || positions == key_positions);
        fits.then(|| AttentionSizes {
            positions,
            key_positions,
            heads: self.heads,
            key_heads: key_features / width,
            width,
        })
    }

    /// Returns the maximum number of keys that a query attends to.
    #[must_use]
    pub fn max_keys(&self, sizes: &AttentionSizes) -> usize {
        self.window.map_or(sizes.key_positions, |window| window.min(sizes.key_positions))
    }

    /// Returns the number of positions up to its own that a query attends to at most, or `None` if
    /// the attention is not causal.
    #[must_use]
    pub fn causal_window(&self, sizes: &AttentionSizes) -> Option<usize> {
        self.causal.then(|| self.max_keys(sizes))
    }

    /// Returns the factor of the products of queries and keys for heads of `width` features.
    #[must_use]
    pub fn scale_for(&self, width: usize) -> f64 {
        self.scale.unwrap_or(1.0 / (width as f64).sqrt())
    }
}

/// Sizes of an attention for one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionSizes {
    /// Number of positions of the queries and of the output.
    pub positions: usize,
    /// Number of positions of the keys and values.
    pub key_positions: usize,
    /// Number of heads of the queries and of the output.
    pub heads: usize,
    /// Number of heads of the keys and values, a divisor of `heads`. Query head `h` attends to key
    /// head `h / (heads / key_heads)`.
    pub key_heads: usize,
    /// Number of features of a query, a key or a value of one head.
    pub width: usize,
}

impl AttentionSizes {
    /// Returns the dimensions of the tensor of weights: heads, positions, key positions.
    #[must_use]
    pub fn weights(&self) -> [usize; 3] {
        [self.heads, self.positions, self.key_positions]
    }

    /// Returns the range of the keys that the query at a position attends to: all, or those of a
    /// [`causal_window`](MultiHeadAttention::causal_window).
    #[must_use]
    pub fn keys_of_query(&self, query: usize, window: Option<usize>) -> Range<usize> {
        match window {
            Some(window) => (query + 1).saturating_sub(window)..query + 1,
            None => 0..self.key_positions,
        }
    }
}
