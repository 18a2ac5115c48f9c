//! Dropout of the weights of an attention.

use layer_graph::{AttentionSizes, Layer, MultiHeadAttention};

use crate::cpu::Real;
use crate::random::{Purpose, RandomStream};
use crate::{LaunchContext, Shard};

/// Dropout of the weights of an attention layer.
#[derive(Debug)]
pub(super) struct WeightDropout {
    /// Name of the layer, part of the key of its random stream.
    layer: String,
    /// Probability that a weight becomes zero.
    probability: f64,
    /// Index of the first sample in the global batch.
    first_sample: usize,
    /// Index of the random number of the first weight of a sample, in the whole layer.
    first: usize,
}

impl WeightDropout {
    /// Creates the dropout of a layer. Returns `None` if it has none.
    pub(super) fn new(layer: &Layer, attention: &MultiHeadAttention, shard: Shard) -> Option<Self> {
        layer.kind().draws_by_element().then(|| Self {
            layer: layer.name().into(),
            probability: attention.dropout,
            first_sample: shard.first,
            // A part has consecutive heads, whose weights are consecutive.
            first: layer.random_box().runs().first().map_or(0, |run| run.start),
        })
    }

    /// Returns the factors of the weights of the head `number`, which counts the heads of all
    /// samples.
    pub(super) fn of_head(&self, sizes: &AttentionSizes, number: usize, context: &LaunchContext) -> HeadMask {
        let &AttentionSizes { positions, key_positions, heads, .. } = sizes;
        let (iteration, sample) = (context.iteration, (self.first_sample + number / heads) as u64);
        HeadMask {
            stream: RandomStream::new(context.seed, Purpose::Dropout, iteration, &self.layer, sample),
            probability: self.probability,
            first: self.first + number % heads * positions * key_positions,
            key_positions,
        }
    }
}

/// Factors of the weights of one head: 0, or `1 / (1 - probability)`.
pub(super) struct HeadMask {
    stream: RandomStream,
    probability: f64,
    /// Index of the random number of the first weight.
    first: usize,
    key_positions: usize,
}

impl HeadMask {
    /// Returns a function that returns the factors of a query's weights in order, from that of the
    /// given key on.
    pub(super) fn factors<T: Real>(&mut self, query: usize, key: usize) -> impl FnMut() -> T {
        self.stream.seek((self.first + query * self.key_positions + key) as u64);
        let (probability, kept) = (self.probability, T::narrow(1.0 / (1.0 - self.probability)));
        let stream = &mut self.stream;
        move || if stream.uniform() < probability { T::zero() } else { kept }
    }
}
