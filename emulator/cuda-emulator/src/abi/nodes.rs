//! Nodes of graphs. A node depends on other nodes of its graph, which execute before it.
#![allow(unsafe_code, non_snake_case)]

use super::{
    graphs::EdgeData,
    pointers::{OutPointer, read_array, read_value, write_list},
};
use crate::state::{Call, CallError, CallResult, Code, Dimensions, Driver, Handle, KernelNode, NodeWork};

/// Memory layout of `CUDA_KERNEL_NODE_PARAMS_v2`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct KernelNodeParameters {
    function: Handle,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    arguments: *const *const u8,
    extra: *const *const u8,
    kernel: Handle,
    context: Handle,
}

/// `CU_LAUNCH_ATTRIBUTE_PRIORITY`.
const PRIORITY: u32 = 8;

/// Writes the `CUgraphNodeType` of a node.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGraphNodeGetType(node: Handle, kind: *mut u32) -> u32 {
    Call::initialised("cuGraphNodeGetType").run(|driver| {
        // SAFETY: the caller's promise.
        let kind = unsafe { OutPointer::new(kind, "type")? };
        kind.set(driver.node_kind(node)?);
        Ok(())
    })
}

/// Writes the nodes that a node depends on.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGraphNodeGetDependencies(
    node: Handle,
    dependencies: *mut Handle,
    count: *mut usize,
) -> u32 {
    Call::initialised("cuGraphNodeGetDependencies").run(|driver| {
        let found: Vec<_> = driver.node_dependencies(node)?.into_iter().map(|before| [before]).collect();
        // SAFETY: the caller's promise.
        unsafe { write_list(&found, [dependencies], count) }
    })
}

/// Writes the nodes that a node depends on, with edge data that are all zero.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGraphNodeGetDependencies_v2(
    node: Handle,
    dependencies: *mut Handle,
    data: *mut EdgeData,
    count: *mut usize,
) -> u32 {
    Call::initialised("cuGraphNodeGetDependencies_v2").run(|driver| {
        let found: Vec<_> = driver.node_dependencies(node)?.into_iter().map(|before| [before, 0]).collect();
        // SAFETY: the caller's promise. An edge's data has the size of a handle and is all zero.
        unsafe { write_list(&found, [dependencies, data.cast()], count) }
    })
}

/// Destroys a node and its edges.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGraphDestroyNode(node: Handle) -> u32 {
    Call::initialised("cuGraphDestroyNode").destroying().run(|driver| driver.destroy_node(node))
}

/// Adds a node without work.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGraphAddEmptyNode(
    node: *mut Handle,
    graph: Handle,
    dependencies: *const Handle,
    count: usize,
) -> u32 {
    Call::initialised("cuGraphAddEmptyNode").run(|driver| {
        // SAFETY: the caller's promise.
        let (node, before) = unsafe {
            (OutPointer::new(node, "phGraphNode")?, read_array(dependencies, count, "dependencies")?)
        };
        node.set(driver.add_node(graph, &before, NodeWork::Empty)?);
        Ok(())
    })
}

/// Adds a kernel node, with a copy of the arguments.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGraphAddKernelNode_v2(
    node: *mut Handle,
    graph: Handle,
    dependencies: *const Handle,
    count: usize,
    parameters: *const KernelNodeParameters,
) -> u32 {
    Call::with_context("cuGraphAddKernelNode_v2").run(|driver| {
        // SAFETY: the caller's promise.
        let (node, before, parameters) = unsafe {
            (
                OutPointer::new(node, "phGraphNode")?,
                read_array(dependencies, count, "dependencies")?,
                read_value(parameters, "nodeParams")?,
            )
        };
        // SAFETY: the caller's promise.
        let kernel = unsafe { kernel(driver, &parameters)? };
        node.set(driver.add_node(graph, &before, NodeWork::Kernel(kernel))?);
        Ok(())
    })
}

/// # Safety
/// The arguments match the parameters of the function.
unsafe fn kernel(driver: &Driver, parameters: &KernelNodeParameters) -> CallResult<KernelNode> {
    let &KernelNodeParameters { function, grid, block, shared_bytes, arguments, extra, kernel, .. } =
        parameters;
    if kernel != 0 {
        return Err(CallError::misuse(Code::NOT_SUPPORTED, "kernels of libraries (`kern`) are not emulated"));
    }
    // SAFETY: the caller's promise.
    let arguments = unsafe { super::launch::copy_arguments(driver, function, arguments, extra)? };
    driver.prepare_launch(function, Dimensions { grid, block, shared_bytes }, arguments)
}

/// Replaces the launch of a kernel node. Its priority is kept.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGraphKernelNodeSetParams_v2(
    node: Handle,
    parameters: *const KernelNodeParameters,
) -> u32 {
    Call::with_context("cuGraphKernelNodeSetParams_v2").run(|driver| {
        // SAFETY: the caller's promise.
        let kernel = unsafe { kernel(driver, &read_value(parameters, "nodeParams")?)? };
        driver.set_kernel_node(node, kernel)
    })
}

/// Replaces the launch of a kernel node in an executable graph. Its priority is kept, and so are
/// launches in flight.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGraphExecKernelNodeSetParams_v2(
    exec: Handle,
    node: Handle,
    parameters: *const KernelNodeParameters,
) -> u32 {
    Call::with_context("cuGraphExecKernelNodeSetParams_v2").run(|driver| {
        // SAFETY: the caller's promise.
        let kernel = unsafe { kernel(driver, &read_value(parameters, "nodeParams")?)? };
        driver.set_exec_kernel(exec, node, kernel)
    })
}

/// Writes the launch of a kernel node. The arguments are valid as long as the node has them.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGraphKernelNodeGetParams_v2(
    node: Handle,
    parameters: *mut KernelNodeParameters,
) -> u32 {
    Call::initialised("cuGraphKernelNodeGetParams_v2").run(|driver| {
        // SAFETY: the caller's promise.
        let parameters = unsafe { OutPointer::new(parameters, "nodeParams")? };
        let kernel = driver.kernel_node(node)?;
        let Dimensions { grid, block, shared_bytes } = kernel.dimensions;
        parameters.set(KernelNodeParameters {
            function: kernel.function,
            grid,
            block,
            shared_bytes,
            arguments: kernel.arguments.address() as *const _,
            extra: std::ptr::null(),
            kernel: 0,
            context: driver.get_current_context(),
        });
        Ok(())
    })
}

/// Writes the priority of a kernel node. Other attributes are refused.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGraphKernelNodeGetAttribute(
    node: Handle,
    attribute: u32,
    into: *mut i32,
) -> u32 {
    Call::initialised("cuGraphKernelNodeGetAttribute").run(|driver| {
        // SAFETY: the caller's promise. The priority is the first member of the union.
        let into = unsafe { OutPointer::new(into, "value_out")? };
        check_attribute(attribute)?;
        into.set(driver.kernel_node(node)?.priority);
        Ok(())
    })
}

/// Sets the priority of a kernel node, clamped to the supported range. Other attributes are
/// refused.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGraphKernelNodeSetAttribute(
    node: Handle,
    attribute: u32,
    from: *const i32,
) -> u32 {
    Call::initialised("cuGraphKernelNodeSetAttribute").run(|driver| {
        // SAFETY: the caller's promise. The priority is the first member of the union.
        let priority = unsafe { read_value(from, "value")? };
        check_attribute(attribute)?;
        driver.set_node_priority(node, priority)
    })
}

fn check_attribute(attribute: u32) -> CallResult<()> {
    if attribute == PRIORITY {
        return Ok(());
    }
    Err(CallError::misuse(
        Code::NOT_SUPPORTED,
        format!("attribute {attribute} of kernel nodes is not emulated, only the priority"),
    ))
}

/// Adds a node that executes a copy of the graph `child`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGraphAddChildGraphNode(
    node: *mut Handle,
    graph: Handle,
    dependencies: *const Handle,
    count: usize,
    child: Handle,
) -> u32 {
    Call::initialised("cuGraphAddChildGraphNode").run(|driver| {
        // SAFETY: the caller's promise.
        let (node, before) = unsafe {
            (OutPointer::new(node, "phGraphNode")?, read_array(dependencies, count, "dependencies")?)
        };
        node.set(driver.add_child(graph, &before, child)?);
        Ok(())
    })
}

/// Writes the graph that a child graph node executes.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGraphChildGraphNodeGetGraph(node: Handle, graph: *mut Handle) -> u32 {
    Call::initialised("cuGraphChildGraphNodeGetGraph").run(|driver| {
        // SAFETY: the caller's promise.
        let graph = unsafe { OutPointer::new(graph, "phGraph")? };
        graph.set(driver.child_graph(node)?);
        Ok(())
    })
}
