//! Graphs and their nodes.

use super::{Handle, nodes::NodeWork};
use std::collections::HashMap;

/// State of a graph (`CUgraph`).
#[derive(Default)]
pub(crate) struct Graph {
    /// Nodes in the order of their creation.
    pub(super) nodes: Vec<Handle>,
    /// Node that contains this graph as its child graph, or `None`.
    pub(super) parent: Option<Handle>,
    /// Whether the graph is being captured. Its handle has not been returned to the caller yet.
    pub(super) capturing: bool,
    /// For a clone made by `cuGraphClone`: the clone of each node of the original. Empty otherwise.
    pub(super) clones: HashMap<Handle, Handle>,
}

impl Graph {
    /// Creates an empty graph that is being captured.
    pub(super) fn capturing() -> Self {
        Self { capturing: true, ..Self::default() }
    }

    /// Returns whether the caller has to destroy the graph.
    pub(super) fn is_user_owned(&self) -> bool {
        self.parent.is_none() && !self.capturing
    }
}

/// Node of a graph.
pub(crate) struct Node {
    /// Graph that contains the node.
    pub(super) graph: Handle,
    /// Work of the node.
    pub(super) work: NodeWork,
    /// Nodes of the same graph that must complete before it.
    pub(super) dependencies: Vec<Handle>,
}
