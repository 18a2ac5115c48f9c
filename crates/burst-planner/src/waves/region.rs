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
    /// At least two, sorted by the smallest index of an edge in them.
    pub branches: Vec<Branch>,
    /// Where this region is nested: the index of the enclosing region in the list of [`regions`](crate::regions), and of the branch in its
    /// `branches`; `None` for an outermost region.
    pub parent: Option<(usize, usize)>,
}

/// A way from the fork of a region to its join: `links[0]`, `nodes[0]`, `links[1]`, ..., `nodes[k - 1]`, `links[k]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branch {
    /// The nodes in the branch, from fork to join, without those in nested regions. Empty for a skip connection.
    pub nodes: Vec<NodeId>,
    /// What connects the fork, the nodes and the join, in their order: one more than there are nodes.
    pub links: Vec<Link>,
}

/// What connects a node of a branch, or its fork, with the next one, or its join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// An edge: its index in [`PlanProblem::edges`](crate::PlanProblem::edges).
    Edge(usize),
    /// A nested region: its index in the list of [`regions`](crate::regions).
    Region(usize),
}
