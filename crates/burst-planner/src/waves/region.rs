//! The regions of a graph, as plain data.

use crate::NodeId;

/// A part of the graph between a fork and a join: two or more branches that can run at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Region {
    /// The node where the branches part. It does not belong to the region.
    pub fork: NodeId,
    /// The node where they meet again. It does not belong to the region.
    pub join: NodeId,
    /// At least two, ordered by the smallest index of an edge in them.
    pub branches: Vec<Branch>,
    /// The region and its branch that this region is a link of; `None` for an outermost region.
    pub parent: Option<(usize, usize)>,
}

/// A way from the fork of a region to its join: `links[0]`, `nodes[0]`, `links[1]`, ..., `nodes[k - 1]`, `links[k]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branch {
    /// The nodes in the branch, from fork to join, without those in nested regions. Empty for a skip connection.
    pub nodes: Vec<NodeId>,
    /// What leads from each to the next; one more than nodes.
    pub links: Vec<Link>,
}

/// What leads from one node of a branch to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// The edge of this index.
    Edge(usize),
    /// The nested region of this index.
    Region(usize),
}
