//! Graphs (`CUgraph`). An edge leads from a node to one that depends on it. Lists are returned as
//! by CUDA: if the pointers to the items are null, the number of items is written to `count`.
#![allow(unsafe_code, non_snake_case)]

use super::pointers::{OutPointer, read_array, write_list};
use crate::state::{Call, CallResult, Handle, only_zero};

/// Memory layout of `CUgraphEdgeData`. It is all zero for a plain dependency, the only kind that is
/// supported.
pub(super) type EdgeData = [u8; 8];

/// Creates an empty graph. The flags must be 0.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGraphCreate(graph: *mut Handle, flags: u32) -> u32 {
    Call::initialised("cuGraphCreate").run(|driver| {
        // SAFETY: the caller's promise.
        let graph = unsafe { OutPointer::new(graph, "phGraph")? };
        only_zero(flags, "flags")?;
        graph.set(driver.create_graph());
        Ok(())
    })
}

/// Destroys a graph with its nodes and child graphs.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGraphDestroy(graph: Handle) -> u32 {
    Call::initialised("cuGraphDestroy").destroying().run(|driver| driver.destroy_graph(graph))
}

/// Creates a copy of a graph and its child graphs. A graph with nodes that allocate or free memory
/// is refused.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGraphClone(clone: *mut Handle, original: Handle) -> u32 {
    Call::initialised("cuGraphClone").run(|driver| {
        // SAFETY: the caller's promise.
        let clone = unsafe { OutPointer::new(clone, "phGraphClone")? };
        clone.set(driver.clone_graph(original)?);
        Ok(())
    })
}

/// Writes the node of the graph `clone` that is the copy of `node`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGraphNodeFindInClone(
    found: *mut Handle,
    node: Handle,
    clone: Handle,
) -> u32 {
    Call::initialised("cuGraphNodeFindInClone").run(|driver| {
        // SAFETY: the caller's promise.
        let found = unsafe { OutPointer::new(found, "phNode")? };
        found.set(driver.find_in_clone(node, clone)?);
        Ok(())
    })
}

/// Writes the nodes of a graph in the order of their creation, or in reverse order if the settings
/// say so.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGraphGetNodes(graph: Handle, nodes: *mut Handle, count: *mut usize) -> u32 {
    Call::initialised("cuGraphGetNodes").run(|driver| {
        let found: Vec<_> = driver.graph_nodes(graph)?.into_iter().map(|node| [node]).collect();
        // SAFETY: the caller's promise.
        unsafe { write_list(&found, [nodes], count) }
    })
}

/// Writes the edges of a graph.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGraphGetEdges(
    graph: Handle,
    from: *mut Handle,
    to: *mut Handle,
    count: *mut usize,
) -> u32 {
    Call::initialised("cuGraphGetEdges").run(|driver| {
        let edges: Vec<_> = driver.graph_edges(graph)?.into_iter().map(|(from, to)| [from, to]).collect();
        // SAFETY: the caller's promise.
        unsafe { write_list(&edges, [from, to], count) }
    })
}

/// Writes the edges of a graph, with edge data that are all zero.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGraphGetEdges_v2(
    graph: Handle,
    from: *mut Handle,
    to: *mut Handle,
    data: *mut EdgeData,
    count: *mut usize,
) -> u32 {
    Call::initialised("cuGraphGetEdges_v2").run(|driver| {
        let edges: Vec<_> = driver.graph_edges(graph)?.into_iter().map(|(from, to)| [from, to, 0]).collect();
        // SAFETY: the caller's promise. An edge's data has the size of a handle and is all zero.
        unsafe { write_list(&edges, [from, to, data.cast()], count) }
    })
}

/// Adds edges to a graph. Cycles are detected when the graph is instantiated.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGraphAddDependencies(
    graph: Handle,
    from: *const Handle,
    to: *const Handle,
    count: usize,
) -> u32 {
    Call::initialised("cuGraphAddDependencies").run(|driver| {
        // SAFETY: the caller's promise.
        let edges = unsafe { pairs(from, to, count)? };
        driver.add_dependencies(graph, &edges)
    })
}

/// Adds edges to a graph. Edge data that are not zero are refused.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGraphAddDependencies_v2(
    graph: Handle,
    from: *const Handle,
    to: *const Handle,
    data: *const EdgeData,
    count: usize,
) -> u32 {
    Call::initialised("cuGraphAddDependencies_v2").run(|driver| {
        // SAFETY: the caller's promise. Null stands for plain dependencies.
        let (edges, data) = unsafe {
            (pairs(from, to, count)?, read_array(data, if data.is_null() { 0 } else { count }, "edgeData")?)
        };
        data.into_iter().try_for_each(|data| only_zero(u64::from_ne_bytes(data), "an edge's data"))?;
        driver.add_dependencies(graph, &edges)
    })
}

/// # Safety
/// Both pointers are null or hold `count` handles.
unsafe fn pairs(from: *const Handle, to: *const Handle, count: usize) -> CallResult<Vec<(Handle, Handle)>> {
    // SAFETY: the caller's promise.
    let (from, to) = unsafe { (read_array(from, count, "from")?, read_array(to, count, "to")?) };
    Ok(from.into_iter().zip(to).collect())
}
