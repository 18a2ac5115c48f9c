//! Graphs: clones, children, removed nodes, cycles, memory nodes and launches.

use super::cuda::Cuda;
use cuda_emulator::Setting;
use cudarc::driver::sys::CUresult::{
    CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED,
};
use std::ptr;

#[test]
fn removing_nodes_of_a_clone_keeps_the_original() {
    let cuda = Cuda::start();
    let (module, [one, two, three]) = cuda.kernels(["one_1us", "two_2us", "three_3us"]);
    let graph = cuda.captured(&[one, two, three]);
    let clone = cuda.make(|place| cuda.cuGraphClone(place, graph));
    let nodes = cuda.nodes(graph);
    let found = cuda.make(|place| cuda.cuGraphNodeFindInClone(place, nodes[0], clone));
    assert!(cuda.nodes(clone).contains(&found) && !nodes.contains(&found));
    cuda.ok(cuda.cuGraphDestroyNode(found));
    let mut count = 0;
    cuda.ok(cuda.cuGraphGetEdges_v2(
        clone,
        ptr::null_mut(),
        ptr::null_mut(),
        ptr::null_mut(),
        &raw mut count,
    ));
    assert_eq!((cuda.nodes(graph).len(), cuda.nodes(clone).len(), count), (3, 2, 1));

    let (exec, stream) = (cuda.instantiated(clone), cuda.stream(0));
    // The executable graph does not depend on them.
    for graph in [graph, clone] {
        cuda.ok(cuda.cuGraphDestroy(graph));
    }
    cuda.ok(cuda.cuGraphLaunch(exec, stream));
    cuda.ok(cuda.cuGraphExecDestroy(exec));
    cuda.ok(cuda.cuStreamSynchronize(stream));
    assert_eq!(cuda.timeline(), [(0, 2, "two_2us".to_owned()), (2, 5, "three_3us".to_owned())]);
    cuda.ok(cuda.cuStreamDestroy_v2(stream));
    cuda.ok(cuda.cuModuleUnload(module));
    cuda.end();
}

#[test]
fn find_in_clone_returns_only_clones_of_the_node() {
    let cuda = Cuda::start();
    let (graph, other) = (cuda.graph(), cuda.graph());
    let (node, stranger) = (cuda.node(graph, &[]), cuda.node(other, &[]));
    let clone = cuda.make(|place| cuda.cuGraphClone(place, graph));
    let mut found = 0;
    let mut find = |node, graph| cuda.cuGraphNodeFindInClone(&raw mut found, node, graph);
    cuda.ok(find(node, clone));
    cuda.refuses(find(stranger, clone), CUDA_ERROR_INVALID_VALUE, "graph 3 has no clone of graph node 2");
    cuda.refuses(find(node, graph), CUDA_ERROR_INVALID_VALUE, "graph 1 has no clone of graph node 1");
    cuda.ok(cuda.cuGraphDestroyNode(cuda.nodes(clone)[0]));
    cuda.refuses(find(node, clone), CUDA_ERROR_INVALID_VALUE, "graph 3 has no clone of graph node 1");
}

#[test]
fn child_graphs_run_at_their_node() {
    let cuda = Cuda::start();
    let (module, [inner, outer]) = cuda.kernels(["inner_2us", "outer_1us"]);
    let (graph, child) = (cuda.captured(&[outer]), cuda.captured(&[inner, inner]));
    let first = cuda.nodes(graph)[0];
    let node = cuda.make(|place| cuda.cuGraphAddChildGraphNode(place, graph, &raw const first, 1, child));
    let last = cuda.make(|place| {
        cuda.cuGraphAddChildGraphNode(place, graph, &raw const node, 1, graph_of(&cuda, outer))
    });
    assert_eq!(cuda.make(|place| cuda.cuGraphNodeGetType(node, place)), 4);
    let embedded = cuda.make(|place| cuda.cuGraphChildGraphNodeGetGraph(node, place));
    assert_ne!(embedded, child);
    cuda.refuses(cuda.cuGraphDestroy(embedded), CUDA_ERROR_INVALID_VALUE, "belongs to a node");
    let exec = cuda.instantiated(graph);
    let stream = cuda.stream(0);
    cuda.ok(cuda.cuGraphLaunch(exec, stream));
    cuda.ok(cuda.cuStreamSynchronize(stream));
    let names: Vec<_> = cuda.timeline().into_iter().map(|(_, _, name)| name).collect();
    assert_eq!(names, ["outer_1us", "inner_2us", "inner_2us", "outer_1us"]);
    assert_ne!(last, node);
    let mut place = 0;
    let own = cuda.cuGraphAddChildGraphNode(&raw mut place, graph, ptr::null(), 0, graph);
    cuda.refuses(own, CUDA_ERROR_INVALID_VALUE, "its own child");
    cuda.ok(cuda.cuModuleUnload(module));
}

fn graph_of(cuda: &Cuda, kernel: usize) -> usize {
    cuda.captured(&[kernel])
}

#[test]
fn launches_of_one_executable_graph_are_serialised() {
    // Also if the first launch has not started when the second could.
    for busy in [false, true] {
        let cuda = Cuda::start();
        let (_, [kernel, other]) = cuda.kernels(["spin_10us", "other_1us"]);
        let exec = cuda.instantiated(cuda.captured(&[kernel, kernel]));
        let (low, high) = (cuda.stream(0), cuda.stream(-5));
        if busy {
            cuda.ok(cuda.launch(other, low));
        }
        cuda.ok(cuda.cuGraphLaunch(exec, low));
        cuda.ok(cuda.cuGraphLaunch(exec, high));
        cuda.ok(cuda.launch(other, high));
        cuda.ok(cuda.cuCtxSynchronize());
        let streams: Vec<_> = cuda.emulator.kernels().into_iter().map(|kernel| kernel.stream).collect();
        assert_eq!(
            streams[usize::from(busy)..],
            ["stream-2", "stream-2", "stream-3", "stream-3", "stream-3"]
        );
    }
}

#[test]
fn node_priorities_apply_with_the_flag_only() {
    let cuda = Cuda::start();
    let (_, [kernel, rival]) = cuda.kernels(["piece_10us", "rival_1us"]);
    let graph = cuda.captured(&[kernel, kernel]);
    for node in cuda.nodes(graph) {
        cuda.ok(cuda.cuGraphKernelNodeSetAttribute(node, 8, &[-5; 16]));
    }
    let (background, middle) = (cuda.stream(0), cuda.stream(-2));
    for (flags, expected) in
        [(8, ["piece_10us", "piece_10us", "rival_1us"]), (0, ["piece_10us", "rival_1us", "piece_10us"])]
    {
        let before = cuda.timeline().len();
        let exec = cuda.make(|place| cuda.cuGraphInstantiateWithFlags(place, graph, flags));
        cuda.ok(cuda.cuGraphLaunch(exec, background));
        cuda.ok(cuda.launch(rival, middle));
        cuda.ok(cuda.cuCtxSynchronize());
        let names: Vec<_> = cuda.timeline().into_iter().skip(before).map(|(_, _, name)| name).collect();
        assert_eq!(names, expected);
        for kernel in cuda.emulator.kernels().into_iter().skip(before) {
            let piece = if flags == 8 { -5 } else { 0 };
            let expected = if kernel.name == "rival_1us" { (-2, false) } else { (piece, true) };
            assert_eq!((kernel.priority, kernel.in_graph, kernel.device), (expected.0, expected.1, 0));
            assert!(kernel.enqueued <= kernel.started);
        }
    }
    let mut value = [0; 16];
    let node = cuda.nodes(graph)[0];
    let other = cuda.cuGraphKernelNodeGetAttribute(node, 2, &raw mut value);
    cuda.refuses(other, CUDA_ERROR_NOT_SUPPORTED, "only the priority");
    let empty = cuda.node(graph, &[]);
    let wrong = cuda.cuGraphKernelNodeGetAttribute(empty, 8, &raw mut value);
    cuda.refuses(wrong, CUDA_ERROR_INVALID_VALUE, "not a kernel node");
}

#[test]
fn graphs_with_memory_nodes_cannot_be_cloned_or_cut() {
    let cuda = Cuda::start();
    let stream = cuda.stream(0);
    cuda.ok(cuda.cuStreamBeginCapture_v2(stream, 1));
    let address = cuda.make(|place| cuda.cuMemAllocAsync(place, 64, stream));
    cuda.ok(cuda.cuMemsetD32Async(address, 7, 16, stream));
    cuda.ok(cuda.cuMemFreeAsync(address, stream));
    let graph = cuda.make(|place| cuda.cuStreamEndCapture(stream, place));
    let nodes = cuda.nodes(graph);
    let kinds: Vec<_> =
        nodes.iter().map(|&node| cuda.make(|place| cuda.cuGraphNodeGetType(node, place))).collect();
    assert_eq!(kinds, [10, 2, 11]);
    let mut place = 0;
    cuda.refuses(cuda.cuGraphClone(&raw mut place, graph), CUDA_ERROR_NOT_SUPPORTED, "it cannot be cloned");
    cuda.refuses(cuda.cuGraphDestroyNode(nodes[1]), CUDA_ERROR_NOT_SUPPORTED, "it cannot lose a node");
    let parent = cuda.graph();
    let child = cuda.cuGraphAddChildGraphNode(&raw mut place, parent, ptr::null(), 0, graph);
    cuda.refuses(child, CUDA_ERROR_NOT_SUPPORTED, "it cannot be a child");
    let exec = cuda.instantiated(graph);
    let second = cuda.cuGraphInstantiateWithFlags(&raw mut place, graph, 0);
    cuda.refuses(second, CUDA_ERROR_NOT_SUPPORTED, "cannot be instantiated twice");
    cuda.ok(cuda.cuGraphLaunch(exec, stream));
    cuda.ok(cuda.cuStreamSynchronize(stream));
    let reports = cuda.emulator.leaks().join("\n");
    assert!(!reports.contains("allocation"), "the graph's own memory is nobody's to free: {reports}");
}

#[test]
fn invalid_edges_and_cycles_are_refused() {
    let cuda = Cuda::start();
    let (graph, other) = (cuda.graph(), cuda.graph());
    let first = cuda.node(graph, &[]);
    let second = cuda.node(graph, &[first]);
    let stranger = cuda.node(other, &[]);
    let link = |from: usize, to: usize| cuda.cuGraphAddDependencies(graph, &raw const from, &raw const to, 1);
    cuda.refuses(link(first, second), CUDA_ERROR_INVALID_VALUE, "already depends on graph node 1");
    cuda.refuses(link(first, first), CUDA_ERROR_INVALID_VALUE, "or both are the same node");
    cuda.refuses(link(first, stranger), CUDA_ERROR_INVALID_VALUE, "graph node 3 is not a node of graph 1");
    let mut node = 0;
    let twice = cuda.cuGraphAddEmptyNode(&raw mut node, graph, [first, first].as_ptr(), 2);
    cuda.refuses(twice, CUDA_ERROR_INVALID_VALUE, "named twice");
    cuda.ok(link(second, first));
    let mut exec = 0;
    let cyclic = cuda.cuGraphInstantiateWithFlags(&raw mut exec, graph, 0);
    cuda.refuses(cyclic, CUDA_ERROR_INVALID_VALUE, "graph 1 has a cycle");
    let unknown = cuda.cuGraphInstantiateWithFlags(&raw mut exec, other, 1 << 20);
    cuda.refuses(unknown, CUDA_ERROR_INVALID_VALUE, "cannot be instantiated with the flags");
}

#[test]
fn unloading_a_module_destroys_its_kernels() {
    let cuda = Cuda::start();
    let (module, [kernel]) = cuda.kernels(["spin_5us"]);
    let graph = cuda.captured(&[kernel]);
    let (exec, stream) = (cuda.instantiated(graph), cuda.stream(0));
    cuda.ok(cuda.cuGraphLaunch(exec, stream));
    cuda.ok(cuda.cuModuleUnload(module));
    assert_eq!(cuda.timeline().len(), 1, "the kernel has ended");
    cuda.refuses(
        cuda.cuGraphLaunch(exec, stream),
        CUDA_ERROR_INVALID_HANDLE,
        "function 1 after it was destroyed",
    );
    let mut place = 0;
    let stale = cuda.cuGraphInstantiateWithFlags(&raw mut place, graph, 0);
    cuda.refuses(stale, CUDA_ERROR_INVALID_HANDLE, "function 1 after it was destroyed");
}

#[test]
fn nodes_can_be_listed_in_reverse_order() {
    let cuda = Cuda::start();
    let graph = cuda.graph();
    let first = cuda.node(graph, &[]);
    let second = cuda.node(graph, &[first]);
    assert_eq!(cuda.nodes(graph), [first, second]);
    cuda.emulator.set(Setting::ReverseNodeOrder, 1);
    assert_eq!(cuda.nodes(graph), [second, first]);
}

#[test]
fn node_priorities_require_version_11_7() {
    for (version, known) in [(11_060, false), (11_070, true)] {
        let cuda = Cuda::start();
        cuda.emulator.set(Setting::DriverVersion, version);
        let (graph, mut exec) = (cuda.graph(), 0);
        let code = cuda.cuGraphInstantiateWithFlags(&raw mut exec, graph, 8);
        if known {
            cuda.ok(code);
        } else {
            cuda.refuses(code, CUDA_ERROR_INVALID_VALUE, "no node priorities");
        }
    }
}
