#![allow(unsafe_code)]

use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use super::Raw;
use super::context::Context;
use super::stream::{Priority, Stream};
use crate::cuda::error::Result;
use crate::cuda::result::{Driver, written};
use crate::cuda::sys::{self, ExecutableOf, GraphOf, NodeOf};

/// Captured work that has not been executed: nodes (kernels, copies, graphs) and the dependencies between them.
///
/// It is for one thread at a time, which CUDA demands of graphs even where they are only read:
///
/// ```compile_fail,E0277
/// fn shared_by_threads<T: Sync>() {}
/// shared_by_threads::<gpu_mux::cuda::CapturedGraph>();
/// ```
#[derive(Debug)]
pub struct CapturedGraph {
    context: Context,
    raw: Raw<GraphOf>,
}

/// A node of a graph.
pub(in crate::cuda) type Node = Raw<NodeOf>;

impl CapturedGraph {
    /// Takes over a graph that another library has captured, a `CUgraph` or `cudaGraph_t`.
    ///
    /// # Safety
    /// The graph is alive, was captured in this context, and has no other owner. What its nodes use has to stay
    /// as long as the graph and what is made from it.
    #[must_use]
    pub unsafe fn from_raw(context: &Context, graph: *mut c_void) -> Self {
        // SAFETY: as the caller promises.
        unsafe { Self::own(context.clone(), graph.cast()) }
    }

    /// # Safety
    /// As [`from_raw`](Self::from_raw).
    pub(super) unsafe fn own(context: Context, graph: *mut GraphOf) -> Self {
        Self { context, raw: Raw(graph) }
    }

    /// An empty graph.
    pub(in crate::cuda) fn empty(context: &Context) -> Result<Self> {
        context.bind()?;
        // SAFETY: the graph is written.
        let raw = written(|graph| unsafe { context.driver().graph_create(graph, 0) })?;
        // SAFETY: it is new.
        Ok(unsafe { Self::own(context.clone(), raw) })
    }

    /// How many nodes it has; a graph inside counts as one.
    pub fn node_count(&self) -> Result<usize> {
        // SAFETY: there is no place for nodes, so that they are counted.
        written(|count| unsafe { self.driver().graph_nodes(self.raw.0, std::ptr::null_mut(), count) })
    }

    /// Makes it launchable. Its kernels run with the priorities that they were captured with or have been
    /// [given](Self::set_priority).
    pub fn instantiate(&self) -> Result<Executable> {
        self.context.bind()?;
        // Older drivers refuse the flag, and have no priorities of nodes.
        let flags = if self.context.has_node_priority() { sys::USE_NODE_PRIORITY } else { 0 };
        // SAFETY: the executable graph is written; this graph is alive.
        let raw =
            written(|executable| unsafe { self.driver().graph_instantiate(executable, self.raw.0, flags) })?;
        Ok(Executable { context: self.context.clone(), raw: Mutex::new(Raw(raw)) })
    }

    /// Gives all kernels of the graph a priority of their own; those of graphs inside it too.
    ///
    /// # Errors
    /// [`Error::Lacking`](crate::cuda::Error::Lacking) where the driver has no priorities of nodes; what CUDA reports.
    pub fn set_priority(&self, priority: Priority) -> Result<()> {
        let number = priority.number(self.context())?;
        // SAFETY: the graph is alive.
        unsafe { set_priority(self.driver(), self.raw.0, number) }
    }

    pub(in crate::cuda) fn context(&self) -> &Context {
        &self.context
    }

    /// Its nodes, in CUDA's order.
    pub(in crate::cuda) fn nodes(&self) -> Result<Vec<Node>> {
        // SAFETY: the graph is alive.
        unsafe { nodes(self.driver(), self.raw.0) }
    }

    /// Pairs of nodes of which the second has to wait for the first.
    pub(in crate::cuda) fn edges(&self) -> Result<Vec<(Node, Node)>> {
        let (driver, graph, none) = (self.driver(), self.raw.0, std::ptr::null_mut());
        // SAFETY: there is no place for edges, so that they are counted.
        let mut count = written(|count| unsafe { driver.graph_edges(graph, none, none, count) })?;
        let (mut from, mut to) = (vec![std::ptr::null_mut(); count], vec![std::ptr::null_mut(); count]);
        if count > 0 {
            // SAFETY: there is place for as many as were counted.
            unsafe { driver.graph_edges(graph, from.as_mut_ptr(), to.as_mut_ptr(), &raw mut count) }?;
        }
        Ok(from.into_iter().map(Raw).zip(to.into_iter().map(Raw)).collect())
    }

    /// How many nodes allocate or free memory, also in graphs inside it.
    pub(in crate::cuda) fn memory_nodes(&self) -> Result<usize> {
        // SAFETY: the graph is alive.
        unsafe { memory_nodes(self.driver(), self.raw.0) }
    }

    /// A copy without the nodes that are not in `kept`; the second value has the copies of `kept`, in its order.
    pub(in crate::cuda) fn part(
        &self,
        nodes: &[Node],
        kept: &std::ops::Range<usize>,
    ) -> Result<(Self, Vec<Node>)> {
        self.context.bind()?;
        let driver = self.driver();
        // SAFETY: the clone is written.
        let raw = written(|clone| unsafe { driver.graph_clone(clone, self.raw.0) })?;
        // SAFETY: it is new.
        let clone = unsafe { Self::own(self.context().clone(), raw) };
        let mut copies = Vec::with_capacity(kept.len());
        for (index, node) in nodes.iter().enumerate() {
            // SAFETY: the node is one of the graph that was cloned.
            let copy = written(|copy| unsafe { driver.node_find_in_clone(copy, node.0, clone.raw.0) })?;
            if kept.contains(&index) {
                copies.push(Raw(copy));
            } else {
                // SAFETY: the copy is alive, and is not used again.
                unsafe { driver.node_destroy(copy) }?;
            }
        }
        Ok((clone, copies))
    }

    /// Adds a graph as one node, which waits for `after`. The graph is copied.
    pub(in crate::cuda) fn append(&self, child: &Self, after: Option<Node>) -> Result<Node> {
        self.context.bind()?;
        let after: &[*mut NodeOf] = &after.map_or_else(Vec::new, |node| vec![node.0]);
        // SAFETY: the node is written; both graphs and the node before it are alive.
        written(|node| unsafe {
            self.driver().graph_add_child(node, self.raw.0, after.as_ptr(), after.len(), child.raw.0)
        })
        .map(Raw)
    }

    fn driver(&self) -> &Driver {
        self.context.driver()
    }
}

/// # Safety
/// The graph is alive.
unsafe fn nodes(driver: &Driver, graph: *mut GraphOf) -> Result<Vec<Node>> {
    // SAFETY: there is no place for nodes, so that they are counted.
    let mut count = written(|count| unsafe { driver.graph_nodes(graph, std::ptr::null_mut(), count) })?;
    let mut nodes = vec![std::ptr::null_mut(); count];
    if count > 0 {
        // SAFETY: there is place for as many as were counted.
        unsafe { driver.graph_nodes(graph, nodes.as_mut_ptr(), &raw mut count) }?;
    }
    Ok(nodes.into_iter().map(Raw).collect())
}

/// # Safety
/// The node is alive.
unsafe fn kind(driver: &Driver, node: Node) -> Result<u32> {
    // SAFETY: the type is written.
    written(|kind| unsafe { driver.node_type(node.0, kind) })
}

/// The graph inside a node. It belongs to the node.
///
/// # Safety
/// The node is alive, and a graph's.
unsafe fn child(driver: &Driver, node: Node) -> Result<*mut GraphOf> {
    // SAFETY: the graph is written.
    written(|graph| unsafe { driver.node_child(node.0, graph) })
}

/// # Safety
/// The graph is alive.
unsafe fn memory_nodes(driver: &Driver, graph: *mut GraphOf) -> Result<usize> {
    let mut found = 0;
    // SAFETY: as the caller promises, and the nodes are the graph's own.
    for node in unsafe { nodes(driver, graph) }? {
        found += match unsafe { kind(driver, node) }? {
            sys::NODE_ALLOCATES | sys::NODE_FREES => 1,
            sys::NODE_GRAPH => unsafe { memory_nodes(driver, child(driver, node)?) }?,
            _ => 0,
        };
    }
    Ok(found)
}

/// # Safety
/// The graph is alive.
unsafe fn set_priority(driver: &Driver, graph: *mut GraphOf, priority: i32) -> Result<()> {
    let value = sys::AttributeValue { priority };
    // SAFETY: as the caller promises, and the nodes are the graph's own.
    for node in unsafe { nodes(driver, graph) }? {
        match unsafe { kind(driver, node) }? {
            sys::NODE_KERNEL => {
                unsafe { driver.node_set_attribute(node.0, sys::ATTRIBUTE_PRIORITY, &raw const value) }
                    .map_err(|error| error.of("a priority of nodes in a graph"))?;
            }
            sys::NODE_GRAPH => unsafe { set_priority(driver, child(driver, node)?, priority) }?,
            _ => {}
        }
    }
    Ok(())
}

impl Drop for CapturedGraph {
    fn drop(&mut self) {
        // SAFETY: it is destroyed once; what was made from it has copies.
        self.context.destroy(|| unsafe { self.driver().graph_destroy(self.raw.0) });
    }
}

/// A graph that can be launched, again and again: one call of the host for all its nodes.
#[derive(Debug)]
pub struct Executable {
    context: Context,
    /// For one thread at a time.
    raw: Mutex<Raw<ExecutableOf>>,
}

impl Executable {
    /// Puts the graph into a stream. It does not run beside itself: a second launch waits for the first.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        stream.context().bind()?;
        let raw = self.raw.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: both are alive, and no other thread uses the graph.
        stream.named(unsafe { stream.driver().executable_launch(raw.0, stream.raw()) })
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        let driver = self.context.driver();
        let raw = self.raw.get_mut().unwrap_or_else(PoisonError::into_inner).0;
        // SAFETY: it is destroyed once; CUDA puts it off while it runs.
        self.context.destroy(|| unsafe { driver.executable_destroy(raw) });
    }
}
