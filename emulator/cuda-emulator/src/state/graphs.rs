//! Graphs and their nodes.

use super::{Handle, nodes::NodeWork};
use std::collections::HashMap;

/// Nodes with their dependencies.
#[derive(Default)]
pub(crate) struct Graph {
    /// In the order of their creation.
    pub(super) nodes: Vec<Handle>,
    /// The node whose child graph this is.
    pub(super) parent: Option<Handle>,
    /// It is being captured: its handle has not been given out yet.
    pub(super) capturing: bool,
    /// For a clone: the nodes that its nodes are clones of.
    pub(super) clones: HashMap<Handle, Handle>,
}

impl Graph {
    pub(super) fn capturing() -> Self {
        Self { capturing: true, ..Self::default() }
    }

    /// Whether the caller has to destroy it.
    pub(super) fn is_the_callers(&self) -> bool {
        self.parent.is_none() && !self.capturing
    }
}

/// A node of a graph.
pub(crate) struct Node {
    pub(super) graph: Handle,
    pub(super) work: NodeWork,
    pub(super) dependencies: Vec<Handle>,
}
