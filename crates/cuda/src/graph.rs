//! Captured graphs and their executable form. Functions that return a `Result` also return the
//! error of a failed call of the CUDA driver (a *CUDA error*).

#![allow(unsafe_code)]

use std::any::Any;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::{
    self, CUgraph_st, CUgraphExec_st, CUgraphNode_st, CUgraphNodeType, CUlaunchAttributeID,
    CUlaunchAttributeValue,
};

use crate::driver::{Driver, cu, written};
use crate::handle::Raw;
use crate::memory::{Kept, check_not_captured_elsewhere, keep_while_captured};
use crate::{Context, Error, Priority, Result, Stream};

/// `CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY`, which is a macro of cuda.h.
const USE_NODE_PRIORITY: u64 = 8;

/// Name of the technique *node priority* in errors.
const NODE_PRIORITY: &str = "a priority of nodes in a graph";

/// Type of a node that launches a kernel.
const KERNEL: u32 = CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL as u32;
/// Type of a node that contains a graph.
const CHILD_GRAPH: u32 = CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH as u32;
/// Type of a node that allocates memory.
const ALLOCATES: u32 = CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_ALLOC as u32;
/// Type of a node that frees memory.
const FREES: u32 = CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_FREE as u32;

/// Graph of captured work that has not been executed: nodes (kernels, copies, graphs) and the
/// dependencies between them. It keeps the buffers and modules that its nodes use, and so do the
/// graphs made from it.
///
/// It is used by one thread at a time, which CUDA requires even for reading a graph:
/// ```compile_fail,E0277
/// fn shared_by_threads<T: Sync>() {}
/// shared_by_threads::<cuda::CapturedGraph>();
/// ```
#[derive(Debug)]
pub struct CapturedGraph {
    context: Context,
    raw: Raw<CUgraph_st>,
    /// Buffers and modules that the nodes use.
    kept: Arc<Vec<Kept>>,
}

/// Handle of a node of a graph.
pub(crate) type Node = Raw<CUgraphNode_st>;

impl CapturedGraph {
    /// Takes ownership of a graph that another library has captured, a `CUgraph` (`cudaGraph_t`).
    ///
    /// # Safety
    /// The graph must be valid, captured in this context, and have no other owner. Everything that
    /// its nodes use must be alive as long as `keeps`, which the graph and the graphs made from it
    /// keep.
    #[must_use]
    pub unsafe fn from_raw(context: &Context, graph: *mut c_void, keeps: Arc<dyn Any + Send + Sync>) -> Self {
        // SAFETY: as the caller promises.
        unsafe { Self::own(context.clone(), graph.cast(), Arc::new(vec![keeps])) }
    }

    /// Takes ownership of a captured graph.
    ///
    /// # Safety
    ///
    /// As [`from_raw`](Self::from_raw).
    pub(crate) unsafe fn own(context: Context, graph: *mut CUgraph_st, kept: Arc<Vec<Kept>>) -> Self {
        Self { context, raw: Raw(graph), kept }
    }

    /// Creates an empty graph, to which graphs that keep `kept` are appended.
    pub(crate) fn empty(context: &Context, kept: Arc<Vec<Kept>>) -> Result<Self> {
        context.bind()?;
        // SAFETY: the graph is written.
        let raw = written(|graph| unsafe { cu!(context.driver(), cuGraphCreate(graph, 0)) })?;
        // SAFETY: it is new.
        Ok(unsafe { Self::own(context.clone(), raw, kept) })
    }

    /// Returns the number of nodes. A child graph counts as one.
    pub fn node_count(&self) -> Result<usize> {
        // SAFETY: with a null array, the nodes are only counted.
        written(|count| unsafe {
            cu!(self.driver(), cuGraphGetNodes(self.raw.0, std::ptr::null_mut(), count))
        })
    }

    /// Instantiates the graph for launching. Its kernels run with the priorities that they were
    /// captured with or [given](Self::set_priority).
    pub fn instantiate(&self) -> Result<Executable> {
        self.context.bind()?;
        // Older drivers refuse the flag and have no node priorities.
        let flags = if self.context.has_node_priority() { USE_NODE_PRIORITY } else { 0 };
        // SAFETY: the executable graph is written; this graph is alive.
        let raw = written(|executable| unsafe {
            cu!(self.driver(), cuGraphInstantiateWithFlags(executable, self.raw.0, flags))
        })?;
        let (context, kept) = (self.context.clone(), Arc::clone(&self.kept));
        Ok(Executable { context, raw: Mutex::new(Raw(raw)), kept })
    }

    /// Sets the priority of all kernels of the graph, including those of child graphs.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the driver has no node priorities; CUDA errors.
    pub fn set_priority(&self, priority: Priority) -> Result<()> {
        if !self.context.has_node_priority() {
            let reason = "drivers before CUDA 11.7 have none".to_owned();
            return Err(Error::Unsupported { technique: NODE_PRIORITY, reason });
        }
        let number = priority.number(self.context())?;
        // SAFETY: the graph is alive.
        unsafe { set_priority(self.driver(), self.raw.0, number) }
    }

    /// Returns the context that the graph belongs to.
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Returns what the graph keeps alive.
    pub(crate) fn kept(&self) -> &Arc<Vec<Kept>> {
        &self.kept
    }

    /// Returns the nodes in the order in which CUDA lists them.
    pub(crate) fn nodes(&self) -> Result<Vec<Node>> {
        // SAFETY: the graph is alive.
        unsafe { nodes(self.driver(), self.raw.0) }
    }

    /// Returns the edges as pairs of nodes, of which the second depends on the first.
    pub(crate) fn edges(&self) -> Result<Vec<(Node, Node)>> {
        let (driver, graph, none) = (self.driver(), self.raw.0, std::ptr::null_mut());
        // SAFETY: with null arrays, the edges are only counted.
        let mut count = written(|count| unsafe { driver.graph_edges(graph, none, none, count) })?;
        let (mut from, mut to) = (vec![std::ptr::null_mut(); count], vec![std::ptr::null_mut(); count]);
        if count > 0 {
            // SAFETY: the arrays have room for as many edges as were counted.
            unsafe { driver.graph_edges(graph, from.as_mut_ptr(), to.as_mut_ptr(), &raw mut count) }?;
        }
        Ok(from.into_iter().map(Raw).zip(to.into_iter().map(Raw)).collect())
    }

    /// Returns the number of nodes that allocate or free memory, including those of child graphs.
    pub(crate) fn memory_nodes(&self) -> Result<usize> {
        // SAFETY: the graph is alive.
        unsafe { memory_nodes(self.driver(), self.raw.0) }
    }

    /// Returns a copy of the graph with a part of its nodes, and the copied nodes in order. `nodes`
    /// has all nodes of the graph, `kept` is the range of their indices that remain.
    pub(crate) fn part(&self, nodes: &[Node], kept: &std::ops::Range<usize>) -> Result<(Self, Vec<Node>)> {
        self.context.bind()?;
        let driver = self.driver();
        // SAFETY: the clone is written.
        let raw = written(|clone| unsafe { cu!(driver, cuGraphClone(clone, self.raw.0)) })?;
        // SAFETY: it is new.
        let clone = unsafe { Self::own(self.context().clone(), raw, Arc::clone(&self.kept)) };
        let mut copies = Vec::with_capacity(kept.len());
        for (index, node) in nodes.iter().enumerate() {
            // SAFETY: the node is one of the graph that was cloned.
            let copy =
                written(|copy| unsafe { cu!(driver, cuGraphNodeFindInClone(copy, node.0, clone.raw.0)) })?;
            if kept.contains(&index) {
                copies.push(Raw(copy));
            } else {
                // SAFETY: the copy is alive, and is not used again.
                unsafe { cu!(driver, cuGraphDestroyNode(copy)) }?;
            }
        }
        Ok((clone, copies))
    }

    /// Adds a copy of `child` as one node that depends on `after`, or on nothing for `None`, and
    /// returns that node.
    pub(crate) fn append(&self, child: &Self, after: Option<Node>) -> Result<Node> {
        self.context.bind()?;
        let after: &[*mut CUgraphNode_st] = &after.map_or_else(Vec::new, |node| vec![node.0]);
        let (graph, count, after) = (self.raw.0, after.len(), after.as_ptr());
        // SAFETY: the node is written; both graphs and the node before it are alive.
        written(|node| unsafe {
            cu!(self.driver(), cuGraphAddChildGraphNode(node, graph, after, count, child.raw.0))
        })
        .map(Raw)
    }

    fn driver(&self) -> &Driver {
        self.context.driver()
    }
}

/// # Safety
/// The graph is alive.
unsafe fn nodes(driver: &Driver, graph: *mut CUgraph_st) -> Result<Vec<Node>> {
    // SAFETY: with a null array, the nodes are only counted.
    let mut count =
        written(|count| unsafe { cu!(driver, cuGraphGetNodes(graph, std::ptr::null_mut(), count)) })?;
    let mut nodes = vec![std::ptr::null_mut(); count];
    if count > 0 {
        // SAFETY: the array has room for as many nodes as were counted.
        unsafe { cu!(driver, cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count)) }?;
    }
    Ok(nodes.into_iter().map(Raw).collect())
}

/// # Safety
/// The node is alive.
unsafe fn kind(driver: &Driver, node: Node) -> Result<u32> {
    // SAFETY: the type is written.
    written(|kind: *mut u32| unsafe { cu!(driver, cuGraphNodeGetType(node.0, kind.cast())) })
}

/// Returns the child graph of a node. The node owns it.
///
/// # Safety
/// The node is alive and is a child graph node.
unsafe fn child(driver: &Driver, node: Node) -> Result<*mut CUgraph_st> {
    // SAFETY: the graph is written.
    written(|graph| unsafe { cu!(driver, cuGraphChildGraphNodeGetGraph(node.0, graph)) })
}

/// # Safety
/// The graph is alive.
unsafe fn memory_nodes(driver: &Driver, graph: *mut CUgraph_st) -> Result<usize> {
    let mut found = 0;
    // SAFETY: as the caller promises, and the nodes are the graph's own.
    for node in unsafe { nodes(driver, graph) }? {
        found += match unsafe { kind(driver, node) }? {
            ALLOCATES | FREES => 1,
            CHILD_GRAPH => unsafe { memory_nodes(driver, child(driver, node)?) }?,
            _ => 0,
        };
    }
    Ok(found)
}

/// # Safety
/// The graph is alive.
unsafe fn set_priority(driver: &Driver, graph: *mut CUgraph_st, priority: i32) -> Result<()> {
    let attribute = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY;
    let value = CUlaunchAttributeValue { priority };
    // SAFETY: as the caller promises, and the nodes are the graph's own.
    for node in unsafe { nodes(driver, graph) }? {
        match unsafe { kind(driver, node) }? {
            KERNEL => {
                unsafe { cu!(driver, cuGraphKernelNodeSetAttribute(node.0, attribute, &raw const value)) }
                    .map_err(|error| error.unsupported_as(NODE_PRIORITY))?;
            }
            CHILD_GRAPH => unsafe { set_priority(driver, child(driver, node)?, priority) }?,
            _ => {}
        }
    }
    Ok(())
}

impl Drop for CapturedGraph {
    fn drop(&mut self) {
        // SAFETY: it is destroyed once; graphs made from it are copies.
        self.context.destroy(|| unsafe { cu!(self.driver(), cuGraphDestroy(self.raw.0)) });
    }
}

/// Instantiated graph. Each launch is one host call for all its nodes.
#[derive(Debug)]
pub struct Executable {
    context: Context,
    /// Used by one thread at a time.
    raw: Mutex<Raw<CUgraphExec_st>>,
    /// Buffers and modules that the nodes use. Dropped after the graph.
    kept: Arc<Vec<Kept>>,
}

impl Executable {
    /// Enqueues a launch of the graph into a stream. Launches of the same graph do not overlap: a
    /// second one waits for the first.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        check_not_captured_elsewhere(stream)?;
        keep_while_captured(&self.kept);
        stream.context().bind()?;
        let raw = self.raw.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: both are alive, and no other thread uses the graph.
        stream.with_technique(unsafe { cu!(stream.driver(), cuGraphLaunch(raw.0, stream.raw())) })
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        let driver = self.context.driver();
        let raw = self.raw.get_mut().unwrap_or_else(PoisonError::into_inner).0;
        // SAFETY: it is destroyed once; CUDA defers the destruction while the graph runs.
        self.context.destroy(|| unsafe { cu!(driver, cuGraphExecDestroy(raw)) });
    }
}
