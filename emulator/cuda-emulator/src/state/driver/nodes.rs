//! Nodes of graphs: creation, parameters and destruction. The dependencies of a node are the nodes
//! that must complete before it. A memory node is one that allocates or frees memory.

use super::Driver;
use crate::state::{
    CallError, CallResult, Code, Handle,
    graphs::Node,
    handles::HandleKind,
    nodes::{KernelNode, NodeWork},
};

impl Driver {
    /// Returns the node with a handle. A null, destroyed or unknown handle is an error.
    pub(super) fn node(&self, handle: Handle) -> CallResult<&Node> {
        self.handles.check(HandleKind::Node, handle)?;
        self.nodes.get(&handle).ok_or_else(|| CallError::plain(Code::INVALID_HANDLE))
    }

    /// Adds a node to a graph and returns its handle. Dependencies that are not distinct nodes of
    /// the graph are refused.
    pub(crate) fn add_node(
        &mut self,
        graph: Handle,
        dependencies: &[Handle],
        work: NodeWork,
    ) -> CallResult<Handle> {
        self.check_dependencies(graph, dependencies)?;
        Ok(self.append_node(graph, dependencies.to_vec(), work))
    }

    /// Checks that dependencies are distinct nodes of the graph.
    pub(super) fn check_dependencies(&self, graph: Handle, dependencies: &[Handle]) -> CallResult<()> {
        self.graph(graph)?;
        for (index, &dependency) in dependencies.iter().enumerate() {
            self.check_same_graph(graph, dependency)?;
            if dependencies[..index].contains(&dependency) {
                return Err(CallError::value(format!("{} is named twice", self.handles.name(dependency))));
            }
        }
        Ok(())
    }

    /// Adds a node to a graph without checks and returns its handle.
    pub(super) fn append_node(&mut self, graph: Handle, dependencies: Vec<Handle>, work: NodeWork) -> Handle {
        let handle = self.handles.create(HandleKind::Node);
        if let NodeWork::Child(child) = work {
            if let Some(child) = self.graphs.get_mut(&child) {
                child.parent = Some(handle);
            }
        }
        self.nodes.insert(handle, Node { graph, work, dependencies });
        if let Some(graph) = self.graphs.get_mut(&graph) {
            graph.nodes.push(handle);
        }
        handle
    }

    /// Checks that `node` is a node of the graph.
    pub(super) fn check_same_graph(&self, graph: Handle, node: Handle) -> CallResult<()> {
        if self.node(node)?.graph == graph {
            return Ok(());
        }
        let text = format!("{} is not a node of {}", self.handles.name(node), self.handles.name(graph));
        Err(CallError::value(text))
    }

    /// Implements `cuGraphNodeGetType`: returns a `CUgraphNodeType`.
    pub(crate) fn node_kind(&self, handle: Handle) -> CallResult<u32> {
        Ok(self.node(handle)?.work.kind())
    }

    /// Implements `cuGraphNodeGetDependencies`: returns the dependencies of a node.
    pub(crate) fn node_dependencies(&self, handle: Handle) -> CallResult<Vec<Handle>> {
        Ok(self.node(handle)?.dependencies.clone())
    }

    /// Returns the launch of a kernel node. Other nodes are refused.
    pub(crate) fn kernel_node(&self, handle: Handle) -> CallResult<&KernelNode> {
        match &self.node(handle)?.work {
            NodeWork::Kernel(kernel) => Ok(kernel),
            _ => Err(CallError::value(format!("{} is not a kernel node", self.handles.name(handle)))),
        }
    }

    /// Implements `cuGraphKernelNodeSetParams`: replaces the launch of a kernel node, except its
    /// priority.
    pub(crate) fn set_kernel_node(&mut self, handle: Handle, kernel: KernelNode) -> CallResult<()> {
        let priority = self.kernel_node(handle)?.priority;
        if let Some(node) = self.nodes.get_mut(&handle) {
            node.work = NodeWork::Kernel(KernelNode { priority, ..kernel });
        }
        Ok(())
    }

    /// Sets the priority of a kernel node, clamped to the supported range. It has no effect on a
    /// node of NCCL operations.
    pub(crate) fn set_node_priority(&mut self, handle: Handle, priority: i32) -> CallResult<()> {
        if matches!(self.node(handle)?.work, NodeWork::Collectives(_)) {
            return Ok(());
        }
        let context = self.kernel_node(handle)?.context;
        if context.is_some_and(|context| self.green.is_unconverted(context)) {
            let text = "the kernel was captured in a stream of a green context before cuCtxFromGreenCtx was \
                        called for the context";
            return Err(CallError::misuse(Code::INVALID_CONTEXT, text));
        }
        let priority = self.clamped_priority(priority);
        if let Some(Node { work: NodeWork::Kernel(kernel), .. }) = self.nodes.get_mut(&handle) {
            kernel.priority = priority;
        }
        Ok(())
    }

    /// Implements `cuGraphDestroyNode`: destroys a node and its edges. Nodes of a graph with memory
    /// nodes are refused.
    pub(crate) fn destroy_node(&mut self, handle: Handle) -> CallResult<()> {
        let graph = self.node(handle)?.graph;
        self.refuse_memory_nodes(graph, "lose a node")?;
        self.drop_node(handle);
        if let Some(graph) = self.graphs.get_mut(&graph) {
            graph.nodes.retain(|&node| node != handle);
        }
        self.nodes.values_mut().for_each(|node| node.dependencies.retain(|&before| before != handle));
        Ok(())
    }

    /// Destroys a node, with its child graph if it has one. The graph's list of nodes is unchanged.
    pub(super) fn drop_node(&mut self, handle: Handle) {
        self.handles.destroy(handle);
        if let Some(Node { work: NodeWork::Child(child), .. }) = self.nodes.remove(&handle) {
            self.drop_graph(child);
        }
    }
}
