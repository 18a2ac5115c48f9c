//! Numbers of steps and bytes of the algorithms of collectives, from which their times follow. A
//! *step* is a round of messages. A *level* is a set of links with equal parameters, such as those
//! between the hosts of a cluster.

/// Algorithm of an all-reduce among `k` ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// A reduce-scatter and an all-gather on a ring of `k` ranks: `2 (k - 1)` steps that move
    /// `2 (k - 1) / k` of the bytes, which is the minimum. P. Patarasuk, X. Yuan, "Bandwidth
    /// Optimal All-reduce Algorithms for Clusters of Workstations", 2009.
    Ring,
    /// A reduction up two binary trees and a broadcast down both. Each rank is a leaf in one of the
    /// trees, and each tree carries half of the bytes in `q` blocks. Reduction and broadcast take
    /// `2 ceil(log2 k) + 2 q` steps each; `q` is chosen to minimize the time. P. Sanders, J. Speck,
    /// J. L. Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009.
    /// NCCL calls it double binary trees. It has few steps, so it is faster for few bytes among
    /// many ranks.
    Tree,
    /// A reduction in the switch that connects the ranks, which multicasts the sums: NCCL calls it
    /// NVLS (NVLink SHARP). Each rank sends and receives the bytes once, for any number of ranks.
    Switch,
}

/// Steps of an operation on one level of links. Their time is `count * latency + bytes /
/// bandwidth`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Steps {
    /// Number of consecutive steps (rounds of messages).
    pub(super) count: f64,
    /// Bytes that a rank sends or receives over the level's slowest link in all steps.
    pub(super) bytes: f64,
}

impl Steps {
    /// Returns the steps of `rounds` rounds of a ring. A round takes `ranks - 1` steps, each with
    /// an equal part of `bytes`: one round is a reduce-scatter or an all-gather, two are an
    /// all-reduce.
    pub(super) fn ring(ranks: usize, rounds: f64, bytes: f64) -> Self {
        let k = ranks as f64;
        Self { count: rounds * (k - 1.0), bytes: rounds * (k - 1.0) / k * bytes }
    }

    /// Returns the steps of an all-reduce of `bytes` over two trees. `latency` (in seconds) and
    /// `time_per_byte` (in seconds per byte) determine the number of blocks.
    pub(super) fn two_trees(ranks: usize, bytes: f64, latency: f64, time_per_byte: f64) -> Self {
        let depth = depth(ranks);
        // The derivative of the time by the number of blocks is zero at `best`. There are at most
        // as many blocks as bytes, which also bounds `best` if the latency is zero.
        let best = (depth * bytes * time_per_byte / (2.0 * latency)).sqrt();
        let blocks = best.min(bytes / 2.0).round().max(1.0);
        let one_way = 2.0 * depth + 2.0 * blocks;
        Self { count: 2.0 * one_way, bytes: 2.0 * one_way * bytes / (2.0 * blocks) }
    }

    /// Returns the steps of an all-reduce of `bytes` in the switch: one to it and one back. Both
    /// directions transfer at the same time.
    pub(super) fn switch(bytes: f64) -> Self {
        Self { count: 2.0, bytes }
    }

    /// Returns the steps of a broadcast of `bytes` in which every rank that has the bytes forwards
    /// all of them. With 0 bytes, a barrier.
    pub(super) fn binomial_tree(ranks: usize, bytes: f64) -> Self {
        Self { count: depth(ranks), bytes: depth(ranks) * bytes }
    }

    /// Returns the steps of a broadcast of `bytes` in a long message: a scatter on a binomial tree
    /// and an all-gather on a ring.
    pub(super) fn scatter_and_gather(ranks: usize, bytes: f64) -> Self {
        let k = ranks as f64;
        Self { count: depth(ranks) + k - 1.0, bytes: 2.0 * (k - 1.0) / k * bytes }
    }
}

/// Returns the number of levels of a binary tree over the ranks: `ceil(log2 k)`.
pub(super) fn depth(ranks: usize) -> f64 {
    f64::from(usize::BITS - (ranks - 1).leading_zeros())
}
