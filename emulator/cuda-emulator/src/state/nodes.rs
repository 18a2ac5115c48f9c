//! The nodes of graphs, and the work that streams and nodes have in common.

use super::{Code, Driver, Fault, Group, Handle, Outcome, handles::Kind, modules::Arguments};
use crate::host::HostSpan;
use std::sync::Arc;

/// One thing to do, in a stream or as a node.
#[derive(Clone)]
pub(crate) enum NodeWork {
    Kernel(KernelNode),
    Copy(CopyNode),
    /// Writes a pattern of 1, 2 or 4 bytes, so many times.
    Fill {
        address: u64,
        pattern: Pattern,
        times: usize,
    },
    Allocate,
    Free {
        address: u64,
    },
    WaitValue {
        address: u64,
        value: u32,
        flags: u32,
    },
    WriteValue {
        address: u64,
        value: u32,
    },
    Child(Handle),
    Empty,
    /// Operations of NCCL, of which a real graph has the kernels.
    Collectives(Group),
}

/// Grid and block, and the block's dynamic shared memory.
#[derive(Clone, Copy, Default)]
pub(crate) struct Dimensions {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
}

impl From<Dimensions> for ptx_emulator::Dimensions {
    fn from(Dimensions { grid, block, shared_bytes }: Dimensions) -> Self {
        Self { grid, block, dynamic_shared_bytes: shared_bytes }
    }
}

/// A launch of a kernel.
#[derive(Clone)]
pub(crate) struct KernelNode {
    pub(crate) function: Handle,
    pub(crate) name: Arc<str>,
    pub(crate) duration_ns: u64,
    pub(crate) dimensions: Dimensions,
    pub(crate) arguments: Arc<Arguments>,
    pub(crate) priority: i32,
    /// The context of the stream that it was launched or captured in.
    pub(crate) context: Option<Handle>,
}

/// What memory is filled with: the lowest bytes of a number.
#[derive(Clone, Copy)]
pub(crate) struct Pattern {
    pub(crate) value: u32,
    pub(crate) bytes: usize,
}

/// A copy between places.
#[derive(Clone)]
pub(crate) struct CopyNode {
    pub(crate) to: Spot,
    pub(crate) from: Spot,
    pub(crate) bytes: usize,
}

/// One end of a copy.
#[derive(Clone)]
pub(crate) enum Spot {
    Device(u64),
    Host(HostSpan),
    /// What the host's memory held at the call.
    Snapshot(Arc<[u8]>),
}

impl NodeWork {
    /// The `CUgraphNodeType`.
    pub(crate) fn kind(&self) -> u32 {
        match self {
            NodeWork::Kernel(_) | NodeWork::Collectives(_) => 0,
            NodeWork::Copy(_) => 1,
            NodeWork::Fill { .. } => 2,
            NodeWork::Child(_) => 4,
            NodeWork::Empty => 5,
            NodeWork::Allocate => 10,
            NodeWork::Free { .. } => 11,
            NodeWork::WaitValue { .. } | NodeWork::WriteValue { .. } => 12,
        }
    }

    pub(super) fn is_of_memory(&self) -> bool {
        matches!(self, NodeWork::Allocate | NodeWork::Free { .. })
    }
}

/// A node of a graph.
pub(crate) struct Node {
    pub(super) graph: Handle,
    pub(super) work: NodeWork,
    pub(super) dependencies: Vec<Handle>,
}

impl Driver {
    pub(super) fn node(&self, handle: Handle) -> Outcome<&Node> {
        self.handles.check(Kind::Node, handle)?;
        self.nodes.get(&handle).ok_or_else(|| Fault::plain(Code::INVALID_HANDLE))
    }

    /// Adds a node.
    pub(crate) fn add_node(
        &mut self,
        graph: Handle,
        dependencies: &[Handle],
        work: NodeWork,
    ) -> Outcome<Handle> {
        self.check_dependencies(graph, dependencies)?;
        Ok(self.append_node(graph, dependencies.to_vec(), work))
    }

    /// Dependencies have to be nodes of the same graph, each named once.
    pub(super) fn check_dependencies(&self, graph: Handle, dependencies: &[Handle]) -> Outcome<()> {
        self.graph(graph)?;
        for (index, &dependency) in dependencies.iter().enumerate() {
            self.same_graph(graph, dependency)?;
            if dependencies[..index].contains(&dependency) {
                return Err(Fault::value(format!("{} is named twice", self.handles.name(dependency))));
            }
        }
        Ok(())
    }

    pub(super) fn append_node(&mut self, graph: Handle, dependencies: Vec<Handle>, work: NodeWork) -> Handle {
        let handle = self.handles.give(Kind::Node);
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

    pub(super) fn same_graph(&self, graph: Handle, node: Handle) -> Outcome<()> {
        if self.node(node)?.graph == graph {
            return Ok(());
        }
        let text = format!("{} is not a node of {}", self.handles.name(node), self.handles.name(graph));
        Err(Fault::value(text))
    }

    /// `cuGraphNodeGetType`.
    pub(crate) fn node_kind(&self, handle: Handle) -> Outcome<u32> {
        Ok(self.node(handle)?.work.kind())
    }

    /// `cuGraphNodeGetDependencies`.
    pub(crate) fn node_dependencies(&self, handle: Handle) -> Outcome<Vec<Handle>> {
        Ok(self.node(handle)?.dependencies.clone())
    }

    /// The kernel of a kernel node.
    pub(crate) fn kernel_node(&self, handle: Handle) -> Outcome<&KernelNode> {
        match &self.node(handle)?.work {
            NodeWork::Kernel(kernel) => Ok(kernel),
            _ => Err(Fault::value(format!("{} is no kernel node", self.handles.name(handle)))),
        }
    }

    /// `cuGraphKernelNodeSetParams`.
    pub(crate) fn set_kernel_node(&mut self, handle: Handle, kernel: KernelNode) -> Outcome<()> {
        let priority = self.kernel_node(handle)?.priority;
        if let Some(node) = self.nodes.get_mut(&handle) {
            node.work = NodeWork::Kernel(KernelNode { priority, ..kernel });
        }
        Ok(())
    }

    /// Sets a kernel node's priority, as near as the device can.
    pub(crate) fn set_node_priority(&mut self, handle: Handle, priority: i32) -> Outcome<()> {
        if matches!(self.node(handle)?.work, NodeWork::Collectives(_)) {
            return Ok(());
        }
        let context = self.kernel_node(handle)?.context;
        if context.is_some_and(|context| self.green.is_unconverted(context)) {
            let text = "a kernel that was captured in a green context's stream, before cuCtxFromGreenCtx was called for that";
            return Err(Fault::misuse(Code::INVALID_CONTEXT, text));
        }
        let priority = self.clamped_priority(priority);
        if let Some(Node { work: NodeWork::Kernel(kernel), .. }) = self.nodes.get_mut(&handle) {
            kernel.priority = priority;
        }
        Ok(())
    }

    /// `cuGraphDestroyNode`: its edges go with it.
    pub(crate) fn destroy_node(&mut self, handle: Handle) -> Outcome<()> {
        let graph = self.node(handle)?.graph;
        self.without_memory_nodes(graph, "lose a node")?;
        self.drop_node(handle);
        if let Some(graph) = self.graphs.get_mut(&graph) {
            graph.nodes.retain(|&node| node != handle);
        }
        self.nodes.values_mut().for_each(|node| node.dependencies.retain(|&before| before != handle));
        Ok(())
    }

    pub(super) fn drop_node(&mut self, handle: Handle) {
        self.handles.end(handle);
        if let Some(Node { work: NodeWork::Child(child), .. }) = self.nodes.remove(&handle) {
            self.drop_graph(child);
        }
    }
}
