//! How many steps an algorithm takes, and how many bytes pass a rank in them.

/// How an all-reduce goes about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// A reduce-scatter and an all-gather round a ring: `2 (k - 1)` steps that move `2 (k - 1) / k` of the bytes, the
    /// fewest possible. P. Patarasuk, X. Yuan, "Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations",
    /// 2009.
    Ring,
    /// A reduction up two binary trees, each rank a leaf of one of them, and a broadcast down both. Each tree carries
    /// half of the bytes in `q` blocks: both ways take `2 ceil(log2 k) + 2 q` steps each, and `q` is the best there is.
    /// P. Sanders, J. Speck, J. L. Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009,
    /// which NCCL calls double binary trees. Few steps among many ranks: the faster one when they have few bytes.
    Tree,
}

/// The work of an operation on one level of links.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Steps {
    /// One after another.
    pub(super) count: f64,
    /// That a rank sends or receives in all of them, on one level's slowest link.
    pub(super) bytes: f64,
}

impl Steps {
    /// `rounds` times round a ring, with an equal part of the bytes in each step.
    pub(super) fn ring(ranks: usize, rounds: f64, bytes: f64) -> Self {
        let k = ranks as f64;
        Self { count: rounds * (k - 1.0), bytes: rounds * (k - 1.0) / k * bytes }
    }

    /// An all-reduce over two trees, where a step of one byte takes `latency` + `time_per_byte`.
    pub(super) fn two_trees(ranks: usize, bytes: f64, latency: f64, time_per_byte: f64) -> Self {
        let depth = depth(ranks);
        // Where the time is smallest: its derivative by the number of blocks is zero there. More blocks than bytes are
        // as many as bytes, which also holds where latency is free.
        let best = (depth * bytes * time_per_byte / (2.0 * latency)).sqrt();
        let blocks = best.min(bytes / 2.0).round().max(1.0);
        let one_way = 2.0 * depth + 2.0 * blocks;
        Self { count: 2.0 * one_way, bytes: 2.0 * one_way * bytes / (2.0 * blocks) }
    }

    /// Every rank that has the bytes hands all of them on, until every rank has them.
    pub(super) fn binomial_tree(ranks: usize, bytes: f64) -> Self {
        Self { count: depth(ranks), bytes: depth(ranks) * bytes }
    }

    /// A broadcast of long messages: scattered down a binomial tree, gathered round a ring.
    pub(super) fn scatter_and_gather(ranks: usize, bytes: f64) -> Self {
        let k = ranks as f64;
        Self { count: depth(ranks) + k - 1.0, bytes: 2.0 * (k - 1.0) / k * bytes }
    }
}

/// Levels of a binary tree over the ranks: `ceil(log2 k)`.
fn depth(ranks: usize) -> f64 {
    f64::from(usize::BITS - (ranks - 1).leading_zeros())
}
