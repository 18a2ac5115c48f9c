//! Graphs and their nodes.

use super::{Handle, nodes::NodeWork};
use std::collections::HashMap;

/// A graph.
#[derive(Default)]
pub(crate) struct Graph {
    /// Nodes in the order of their creation.
    pub(super) nodes: Vec<Handle>,
    /// Node that contains this child graph.
    pub(super) parent: Option<Handle>,
    /// Whether the graph is being captured. Its handle has not been returned yet.
    pub(super) capturing: bool,
    /// Nodes of the original and their clones, if this graph is a clone.
    pub(super) clones: HashMap<Handle, Handle>,
}

impl Graph {
    /// Creates an empty graph that is being captured.
    pub(super) fn capturing() -> Self {
        Self { capturing: true, ..Self::default() }
    }

    /// Whether the caller has to destroy the graph.
    pub(super) fn is_user_owned(&self) -> bool {
        self.parent.is_none() && !self.capturing
    }
}

/// A node of a graph.
pub(crate) struct Node {
    /// Graph that contains the node.
    pub(super) graph: Handle,
    /// Work of the node.
    pub(super) work: NodeWork,
    /// Nodes of the same graph that must complete first.
    pub(super) dependencies: Vec<Handle>,
}
