//! Graphs (`CUgraph`): creation, cloning, dependencies and destruction. A memory node is one that
//! allocates or frees memory.

use super::Driver;
use crate::state::{
    CallError, CallResult, Code, Handle,
    graphs::{Graph, Node},
    handles::HandleKind,
    nodes::NodeWork,
};
use std::collections::HashMap;

impl Driver {
    /// Returns the graph with a handle. A null, destroyed or unknown handle is an error.
    pub(super) fn graph(&self, handle: Handle) -> CallResult<&Graph> {
        self.handles.check(HandleKind::Graph, handle)?;
        self.graphs.get(&handle).ok_or_else(|| CallError::plain(Code::INVALID_HANDLE))
    }

    /// Implements `cuGraphCreate`: creates an empty graph.
    pub(crate) fn create_graph(&mut self) -> Handle {
        self.insert_graph(Graph::default())
    }

    /// Adds a graph and returns its new handle.
    pub(super) fn insert_graph(&mut self, graph: Graph) -> Handle {
        let handle = self.handles.create(HandleKind::Graph);
        self.graphs.insert(handle, graph);
        handle
    }

    /// Implements `cuGraphDestroy`. A child graph is refused.
    pub(crate) fn destroy_graph(&mut self, handle: Handle) -> CallResult<()> {
        if self.graph(handle)?.parent.is_some() {
            return Err(CallError::value(format!(
                "{} belongs to a node and goes with it",
                self.handles.name(handle)
            )));
        }
        self.drop_graph(handle);
        Ok(())
    }

    /// Destroys a graph with its nodes and child graphs, without checks.
    pub(super) fn drop_graph(&mut self, handle: Handle) {
        self.handles.destroy(handle);
        let graph = self.graphs.remove(&handle).unwrap_or_default();
        graph.nodes.into_iter().for_each(|node| self.drop_node(node));
    }

    /// Implements `cuGraphClone`: returns a copy of a graph and its child graphs. Graphs with
    /// memory nodes are refused.
    pub(crate) fn clone_graph(&mut self, original: Handle) -> CallResult<Handle> {
        self.graph(original)?;
        self.refuse_memory_nodes(original, "be cloned")?;
        Ok(self.copy_graph(original))
    }

    fn copy_graph(&mut self, original: Handle) -> Handle {
        let clone = self.insert_graph(Graph::default());
        let nodes = self.graphs.get(&original).map_or(Vec::new(), |graph| graph.nodes.clone());
        let mut clones = HashMap::new();
        for &node in &nodes {
            let Some(Node { work, .. }) = self.nodes.get(&node) else { continue };
            let mut work = work.clone();
            if let NodeWork::Child(child) = work {
                work = NodeWork::Child(self.copy_graph(child));
            }
            clones.insert(node, self.append_node(clone, Vec::new(), work));
        }
        for node in &nodes {
            let before = self.nodes.get(node).map_or(Vec::new(), |node| {
                node.dependencies.iter().filter_map(|before| clones.get(before).copied()).collect()
            });
            if let Some(node) = clones.get(node).and_then(|clone| self.nodes.get_mut(clone)) {
                node.dependencies = before;
            }
        }
        if let Some(graph) = self.graphs.get_mut(&clone) {
            graph.clones = clones;
        }
        clone
    }

    /// Implements `cuGraphNodeFindInClone`: returns the copy of a node in the graph `clone`. It is
    /// an error if there is none.
    pub(crate) fn find_in_clone(&self, node: Handle, clone: Handle) -> CallResult<Handle> {
        self.handles.check(HandleKind::Node, node)?;
        let found = self.graph(clone)?.clones.get(&node).copied();
        found.filter(|node| self.nodes.contains_key(node)).ok_or_else(|| {
            let (node, clone) = (self.handles.name(node), self.handles.name(clone));
            CallError::value(format!("{clone} has no clone of {node}"))
        })
    }

    /// Implements `cuGraphGetNodes`: returns the nodes in the order of their creation, or in
    /// reverse order if the settings say so.
    pub(crate) fn graph_nodes(&self, handle: Handle) -> CallResult<Vec<Handle>> {
        let mut nodes = self.graph(handle)?.nodes.clone();
        if self.settings.reverse_node_order != 0 {
            nodes.reverse();
        }
        Ok(nodes)
    }

    /// Implements `cuGraphGetEdges`: returns pairs of a node and a node that depends on it.
    pub(crate) fn graph_edges(&self, handle: Handle) -> CallResult<Vec<(Handle, Handle)>> {
        let nodes = self.graph(handle)?.nodes.iter();
        let with_dependencies = nodes.filter_map(|node| Some((*node, self.nodes.get(node)?)));
        Ok(with_dependencies
            .flat_map(|(handle, node)| node.dependencies.iter().map(move |before| (*before, handle)))
            .collect())
    }

    /// Implements `cuGraphAddDependencies`: adds edges, pairs of a node and a node that depends on
    /// it. Cycles are detected when the graph is instantiated.
    pub(crate) fn add_dependencies(&mut self, graph: Handle, edges: &[(Handle, Handle)]) -> CallResult<()> {
        self.graph(graph)?;
        for &(from, to) in edges {
            self.check_same_graph(graph, from)?;
            self.check_same_graph(graph, to)?;
            let known = self.nodes.get(&to).is_some_and(|node| node.dependencies.contains(&from));
            if known || from == to {
                let (from, to) = (self.handles.name(from), self.handles.name(to));
                return Err(CallError::value(format!(
                    "{to} already depends on {from}, or both are the same node"
                )));
            }
        }
        for (from, to) in edges {
            if let Some(node) = self.nodes.get_mut(to) {
                node.dependencies.push(*from);
            }
        }
        Ok(())
    }

    /// Implements `cuGraphAddChildGraphNode`: adds a node that executes a copy of the graph
    /// `child`, and returns its handle.
    pub(crate) fn add_child(
        &mut self,
        graph: Handle,
        dependencies: &[Handle],
        child: Handle,
    ) -> CallResult<Handle> {
        self.graph(child)?;
        self.refuse_memory_nodes(child, "be a child")?;
        if graph == child {
            return Err(CallError::value("a graph cannot be its own child"));
        }
        self.check_dependencies(graph, dependencies)?;
        let copy = self.copy_graph(child);
        Ok(self.append_node(graph, dependencies.to_vec(), NodeWork::Child(copy)))
    }

    /// Implements `cuGraphChildGraphNodeGetGraph`: returns the graph that a child graph node
    /// executes. Other nodes are refused.
    pub(crate) fn child_graph(&self, node: Handle) -> CallResult<Handle> {
        match self.node(node)?.work {
            NodeWork::Child(child) => Ok(child),
            _ => Err(CallError::value(format!("{} is not a child graph node", self.handles.name(node)))),
        }
    }

    /// Checks that a graph has no memory nodes. `what` completes the sentence "the graph cannot" in
    /// the error. The manual does not specify the error code.
    pub(super) fn refuse_memory_nodes(&self, graph: Handle, what: &str) -> CallResult<()> {
        if self.has_memory_nodes(graph) {
            let text = format!("{} has memory nodes: it cannot {what}", self.handles.name(graph));
            return Err(CallError::misuse(Code::NOT_SUPPORTED, text));
        }
        Ok(())
    }

    /// Returns whether a graph has memory nodes. Child graphs are not searched.
    pub(super) fn has_memory_nodes(&self, graph: Handle) -> bool {
        let nodes = self.graphs.get(&graph).map_or(&[][..], |graph| &graph.nodes);
        nodes.iter().filter_map(|node| self.nodes.get(node)).any(|node| node.work.is_memory_node())
    }
}
