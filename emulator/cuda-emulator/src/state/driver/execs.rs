//! Executable graphs (`CUgraphExec`), which are instantiated from graphs and launched. A memory
//! node is one that allocates or frees memory.

use super::Driver;
use crate::state::{
    CallError, CallResult, Code, Handle,
    exec_steps::{Exec, ExecSteps},
    handles::HandleKind,
    nodes::{KernelNode, NodeWork},
    work::StreamWork,
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`, `..._UPLOAD` and `..._USE_NODE_PRIORITY`.
const KNOWN_FLAGS: u64 = 1 | 2 | USE_NODE_PRIORITY;
const USE_NODE_PRIORITY: u64 = 8;
const NODE_PRIORITY_SINCE: i64 = 11070;

impl Driver {
    /// Implements `cuGraphInstantiate`: returns an executable graph. It is an error if the graph
    /// has a cycle or invalid functions, or if it has memory nodes and an executable graph already.
    pub(crate) fn instantiate(&mut self, graph: Handle, flags: u64) -> CallResult<Handle> {
        self.graph(graph)?;
        if flags & !KNOWN_FLAGS != 0 {
            return Err(CallError::value(format!("graphs cannot be instantiated with the flags {flags:#x}")));
        }
        if flags & USE_NODE_PRIORITY != 0 && self.settings.driver_version < NODE_PRIORITY_SINCE {
            return Err(CallError::value("driver versions before 11.7 have no node priorities"));
        }
        if self.has_memory_nodes(graph) && self.execs.values().any(|exec| exec.graph == graph) {
            let text =
                format!("{} has memory nodes: it cannot be instantiated twice", self.handles.name(graph));
            return Err(CallError::misuse(Code::NOT_SUPPORTED, text));
        }
        let use_node_priorities = flags & USE_NODE_PRIORITY != 0;
        let mut steps = ExecSteps { list: Vec::new(), step_of_node: HashMap::new(), use_node_priorities };
        self.expand_graph(graph, &[], &mut steps)?;
        let handle = self.handles.create(HandleKind::Exec);
        self.execs.insert(handle, Exec { graph, steps: Arc::new(steps), last: None });
        Ok(handle)
    }

    /// Appends a graph's nodes to `steps`, after the steps with indices `before`. Returns the
    /// indices of the last steps.
    fn expand_graph(&self, graph: Handle, before: &[usize], steps: &mut ExecSteps) -> CallResult<Vec<usize>> {
        let mut indices: HashMap<Handle, usize> = HashMap::new();
        for node in self.topological_order(graph)? {
            let Some(content) = self.nodes.get(&node) else { continue };
            let mut after: Vec<_> =
                content.dependencies.iter().filter_map(|before| indices.get(before).copied()).collect();
            if after.is_empty() {
                after = before.to_vec();
            }
            let index = match &content.work {
                NodeWork::Child(child) => {
                    let ends = self.expand_graph(*child, &after, steps)?;
                    steps.add(NodeWork::Empty, if ends.is_empty() { after } else { ends })
                }
                NodeWork::Kernel(kernel) => {
                    self.function(kernel.function)?;
                    steps.add(content.work.clone(), after)
                }
                work => steps.add(work.clone(), after),
            };
            indices.insert(node, index);
            steps.step_of_node.insert(node, index);
        }
        let mut ends: Vec<_> =
            indices.into_values().filter(|&end| steps.list[end].dependents.is_empty()).collect();
        ends.sort_unstable();
        Ok(ends)
    }

    /// Returns the nodes in a topological order, with ready nodes in the order of their creation.
    fn topological_order(&self, graph: Handle) -> CallResult<Vec<Handle>> {
        let nodes = self.graph_nodes(graph)?;
        let mut left: HashMap<Handle, usize> = nodes
            .iter()
            .map(|node| (*node, self.nodes.get(node).map_or(0, |node| node.dependencies.len())))
            .collect();
        let mut followers: HashMap<Handle, Vec<Handle>> = HashMap::new();
        for (from, to) in self.graph_edges(graph)? {
            followers.entry(from).or_default().push(to);
        }
        let mut order: Vec<_> = nodes.iter().copied().filter(|node| left.get(node) == Some(&0)).collect();
        let mut next = 0;
        while let Some(node) = order.get(next) {
            for follower in followers.get(node).into_iter().flatten() {
                if let Some(left) = left.get_mut(follower) {
                    *left -= 1;
                    if *left == 0 {
                        order.push(*follower);
                    }
                }
            }
            next += 1;
        }
        if order.len() == nodes.len() {
            Ok(order)
        } else {
            Err(CallError::value(format!("{} has a cycle", self.handles.name(graph))))
        }
    }

    fn exec(&self, handle: Handle) -> CallResult<&Exec> {
        self.handles.check(HandleKind::Exec, handle)?;
        self.execs.get(&handle).ok_or_else(|| CallError::plain(Code::INVALID_HANDLE))
    }

    /// Implements `cuGraphExecDestroy`. Launches in flight still complete.
    pub(crate) fn destroy_exec(&mut self, handle: Handle) -> CallResult<()> {
        self.exec(handle)?;
        self.handles.destroy(handle);
        self.execs.remove(&handle);
        Ok(())
    }

    /// Implements `cuGraphExecKernelNodeSetParams`: replaces the launch of a kernel node, except
    /// its priority. Launches in flight keep their parameters.
    pub(crate) fn set_exec_kernel(
        &mut self,
        handle: Handle,
        node: Handle,
        kernel: KernelNode,
    ) -> CallResult<()> {
        self.exec(handle)?;
        self.kernel_node(node)?;
        let name = self.handles.name(node);
        let Some(exec) = self.execs.get_mut(&handle) else { return Ok(()) };
        let Some(&index) = exec.steps.step_of_node.get(&node) else {
            return Err(CallError::value(format!("{name} is not a node of the instantiated graph")));
        };
        let steps = Arc::make_mut(&mut exec.steps);
        if let Some(NodeWork::Kernel(old)) = steps.list.get_mut(index).map(|node| &mut node.work) {
            *old = KernelNode { priority: old.priority, ..kernel };
        }
        Ok(())
    }

    /// Implements `cuGraphUpload`, which takes no time: checks the arguments.
    pub(crate) fn upload(&mut self, handle: Handle, stream: Handle) -> CallResult<()> {
        self.exec(handle)?;
        let stream = self.stream(stream)?;
        self.refuse_if_capturing(stream, "a graph is uploaded")
    }

    /// Implements `cuGraphLaunch`. The launch runs after the earlier work of its stream and after
    /// earlier launches of the same executable graph in any stream.
    pub(crate) fn launch_graph(&mut self, handle: Handle, stream: Handle) -> CallResult<()> {
        let steps = Arc::clone(&self.exec(handle)?.steps);
        let stream = self.stream(stream)?;
        self.refuse_if_capturing(stream, "a graph is launched")?;
        for node in &steps.list {
            if let NodeWork::Kernel(kernel) = &node.work {
                self.function(kernel.function)?;
            }
        }
        let mut batches = BTreeMap::new();
        for (index, node) in steps.list.iter().enumerate() {
            if let NodeWork::Collectives(group) = &node.work {
                batches.insert(index, self.post_group(stream, group));
            }
        }
        if let Some(number) = self.exec(handle)?.last {
            self.enqueue(stream, StreamWork::Wait { number });
        }
        self.enqueue(stream, StreamWork::Graph { steps, batches });
        let number = self.simulation.new_record();
        // A record without an event.
        self.push(stream, StreamWork::Record { event: 0, number }, None);
        if let Some(exec) = self.execs.get_mut(&handle) {
            exec.last = Some(number);
        }
        self.execute_ready_work();
        Ok(())
    }
}
