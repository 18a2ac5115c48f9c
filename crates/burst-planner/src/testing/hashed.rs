//! Arbitrary costs from a hash function.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::{CostModel, NodeId, NodeMemory, ShardSize, SplitCosts, StepTimes, TensorLayout, Values};

/// Costs that depend on all arguments: which ranks, in which order, with which shard size. For
/// comparing time models, not searches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HashedCosts {
    /// Seed of the hash function.
    pub seed: u64,
    /// Whether times are small integers, apart from the factor 1/2 of smaller shards, so that many
    /// events are simultaneous.
    pub integral: bool,
}

impl HashedCosts {
    fn time(&self, question: impl Hash) -> f64 {
        let mut hasher = DefaultHasher::new();
        (self.seed, question).hash(&mut hasher);
        let drawn = hasher.finish() % 1_000;
        if self.integral { (drawn % 7) as f64 } else { drawn as f64 * 0.137 }
    }

    /// Returns the durations of steps that depend on `what`.
    fn steps(&self, what: impl Hash + Copy, shard_size: ShardSize) -> StepTimes {
        // A rank with fewer samples is never slower.
        let part = if shard_size == ShardSize::Larger { 1.0 } else { 0.5 };
        let step = |name: &str| part * self.time((name, what));
        StepTimes {
            forward_us: 1.0 + step("forward"),
            backward_us: step("backward"),
            update_us: step("update"),
        }
    }

    fn bytes(&self, question: impl Hash) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.seed, question).hash(&mut hasher);
        hasher.finish() % 10_000
    }
}

impl CostModel for HashedCosts {
    fn ranks_with_larger_shard(&self, ranks: usize) -> usize {
        1 + (self.seed as usize % 5) % ranks
    }

    fn compute(&self, node: NodeId, ranks: usize, shard_size: ShardSize) -> Option<StepTimes> {
        Some(self.steps((node, ranks), shard_size))
    }

    fn transfer(&self, producer: NodeId, from: &[usize], to: &[usize]) -> f64 {
        self.time(("transfer", producer, from, to))
    }

    fn all_reduce(&self, bytes: u64, ranks: &[usize]) -> f64 {
        self.time(("reduce", bytes, ranks))
    }

    fn splits(&self) -> Option<&dyn SplitCosts> {
        Some(self)
    }
}

impl SplitCosts for HashedCosts {
    fn compute(&self, node: NodeId, split: usize, ranks: usize, shard_size: ShardSize) -> Option<StepTimes> {
        Some(self.steps((node, split, ranks), shard_size))
    }

    fn memory(&self, node: NodeId, split: usize, ranks: usize, shard_size: ShardSize) -> NodeMemory {
        let bytes = |kind: &str| self.bytes((kind, node, split, ranks, shard_size));
        NodeMemory {
            held_bytes: bytes("held"),
            samples_bytes: 0,
            saved_bytes: bytes("saved"),
            step_bytes: bytes("step"),
            output_bytes: 0,
        }
    }

    fn transfer(&self, producer: NodeId, from: TensorLayout<'_>, to: TensorLayout<'_>) -> f64 {
        self.time(("transfer", producer, from, to))
    }

    fn output_bytes(
        &self,
        producer: NodeId,
        ranks: usize,
        parts: usize,
        values: Values,
        shard_size: ShardSize,
    ) -> u64 {
        self.bytes(("output", producer, ranks, parts, values, shard_size))
    }
}
