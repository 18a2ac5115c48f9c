//! Products as work of streams and nodes of graphs.

use super::{COMPUTE_32F, Found, Lt, Product};
use crate::rules::cuda::zeros;
use cuda_emulator::Setting;
use cudarc::driver::sys::{CUDA_KERNEL_NODE_PARAMS, CUresult};
use std::{ptr, time::Duration};

/// `CU_LAUNCH_ATTRIBUTE_PRIORITY`.
const PRIORITY: u32 = 8;
/// `CU_GRAPH_NODE_TYPE_KERNEL`.
const KERNEL: u32 = 0;

/// Returns an algorithm with a workspace.
fn split(lt: &Lt, product: &Product) -> Found {
    *product.algorithms(lt).iter().find(|found| found.workspace > 0).unwrap()
}

/// Captures the products in sequence.
fn captured(lt: &Lt, products: &[&Product], priority: i32) -> usize {
    let stream = lt.cuda.stream(priority);
    lt.cuda.ok(lt.cuda.cuStreamBeginCapture_v2(stream, 1));
    for product in products {
        lt.cuda.ok(product.enqueue(lt, None, stream));
    }
    let graph = lt.cuda.make(|place| lt.cuda.cuStreamEndCapture(stream, place));
    lt.cuda.ok(lt.cuda.cuStreamDestroy_v2(stream));
    graph
}

fn launch(lt: &Lt, graph: usize) {
    let exec = lt.cuda.instantiated(graph);
    lt.cuda.ok(lt.cuda.cuGraphLaunch(exec, 0));
    lt.cuda.ok(lt.cuda.cuCtxSynchronize());
    lt.cuda.ok(lt.cuda.cuGraphExecDestroy(exec));
}

#[test]
fn captured_product_is_computed_at_each_launch() {
    let lt = Lt::start();
    let product = Product::plain(&lt, COMPUTE_32F, [32, 16, 64]);
    let algorithm = split(&lt, &product).algorithm;
    lt.cuda.ok(product.enqueue(&lt, Some(&algorithm), 0));
    let first = product.d.read(&lt);
    let stream = lt.cuda.stream(0);
    lt.cuda.ok(lt.cuda.cuStreamBeginCapture_v2(stream, 1));
    lt.cuda.ok(product.enqueue(&lt, Some(&algorithm), stream));
    let graph = lt.cuda.make(|place| lt.cuda.cuStreamEndCapture(stream, place));
    lt.cuda.ok(lt.cuda.cuMemsetD32Async(product.d.address, 0, first.len(), 0));
    assert!(product.d.read(&lt).iter().all(|value| *value == 0.0), "the capture computed the product");
    launch(&lt, graph);
    assert_eq!(product.d.read(&lt), first);
    // Factors were read at the call, operands are read at the launch.
    lt.cuda.ok(lt.cuda.cuMemsetD32Async(product.a.address, 0, product.a.values.len(), 0));
    launch(&lt, graph);
    assert!(product.d.read(&lt).iter().all(|value| *value == 0.0));
    lt.cuda.ok(lt.cuda.cuGraphDestroy(graph));
    lt.cuda.ok(lt.cuda.cuStreamDestroy_v2(stream));
    product.end(&lt);
    lt.cuda.end();
}

#[test]
fn products_are_kernel_nodes_that_are_cut_and_merged() {
    let lt = Lt::start();
    let products = [16, 24, 32].map(|k| Product::plain(&lt, COMPUTE_32F, [16, 16, k]));
    let graph = captured(&lt, &products.each_ref(), -1);
    let results = || products.each_ref().map(|product| product.d.read(&lt));
    let clear = || {
        for product in &products {
            lt.cuda.ok(lt.cuda.cuMemsetD32Async(product.d.address, 0, product.d.values.len(), 0));
        }
    };
    clear();
    let cleared = results();
    launch(&lt, graph);
    let whole = results();
    assert!(whole.iter().zip(&cleared).all(|(one, other)| one != other));

    let nodes = lt.cuda.nodes(graph);
    assert_eq!(nodes.len(), 3);
    for &node in &nodes {
        assert_eq!(lt.cuda.make(|place| lt.cuda.cuGraphNodeGetType(node, place)), KERNEL);
        let value: [i32; 16] =
            lt.cuda.make(|place| lt.cuda.cuGraphKernelNodeGetAttribute(node, PRIORITY, place));
        assert_eq!(value[0], -1);
        let parameters: CUDA_KERNEL_NODE_PARAMS =
            lt.cuda.make(|place| lt.cuda.cuGraphKernelNodeGetParams_v2(node, place));
        let name = lt.cuda.text(|place| lt.cuda.cuFuncGetName(place, parameters.func as usize));
        assert!(name.starts_with("cublaslt_f32_"), "{name}");
        // The arguments of a library's kernel are opaque.
        let mut copy = zeros();
        let code =
            lt.cuda.cuGraphAddKernelNode_v2(&raw mut copy, graph, ptr::null(), 0, &raw const parameters);
        lt.cuda.refuses(code, CUresult::CUDA_ERROR_NOT_SUPPORTED, "of a library, whose arguments are opaque");
    }

    // The first product alone, then a chain of the other two.
    clear();
    let keep = |kept: &[usize]| {
        let clone = lt.cuda.make(|place| lt.cuda.cuGraphClone(place, graph));
        for (index, node) in nodes.iter().enumerate().filter(|(index, _)| !kept.contains(index)) {
            let copy = lt.cuda.make(|place| lt.cuda.cuGraphNodeFindInClone(place, *node, clone));
            assert!(!kept.contains(&index));
            lt.cuda.ok(lt.cuda.cuGraphDestroyNode(copy));
        }
        clone
    };
    let pieces = [keep(&[0]), keep(&[1]), keep(&[2])];
    launch(&lt, pieces[0]);
    assert_eq!(results(), [whole[0].clone(), cleared[1].clone(), cleared[2].clone()]);
    let chain = lt.cuda.graph();
    let second =
        lt.cuda.make(|place| lt.cuda.cuGraphAddChildGraphNode(place, chain, ptr::null(), 0, pieces[1]));
    let third =
        lt.cuda.make(|place| lt.cuda.cuGraphAddChildGraphNode(place, chain, &raw const second, 1, pieces[2]));
    assert_ne!(second, third);
    launch(&lt, chain);
    assert_eq!(results(), whole);

    pieces.into_iter().chain([chain, graph]).for_each(|graph| lt.cuda.ok(lt.cuda.cuGraphDestroy(graph)));
    for product in products {
        product.end(&lt);
    }
    lt.cuda.ok(lt.cuda.cuDevicePrimaryCtxRelease_v2(0));
    assert_eq!(lt.cuda.emulator.leaks(), Vec::<String>::new());
}

#[test]
fn kernels_of_products_have_durations_and_priorities() {
    let lt = Lt::start();
    let product = Product::plain(&lt, COMPUTE_32F, [16, 16, 16]);
    let [low, high] = [0, -2].map(|priority| lt.cuda.stream(priority));
    lt.cuda.ok(product.enqueue(&lt, None, low));
    lt.cuda.ok(lt.cuda.cuCtxSynchronize());
    let name = lt.cuda.timeline()[0].2.clone();
    lt.cuda.emulator.set_kernel_time(&name, Duration::from_micros(70));
    for stream in [low, low, high] {
        lt.cuda.ok(product.enqueue(&lt, None, stream));
    }
    lt.cuda.ok(lt.cuda.cuCtxSynchronize());
    // One at a time; the one of high priority before the second of low priority.
    let kernels = lt.cuda.emulator.kernels();
    let runs: Vec<_> =
        kernels.iter().map(|run| (run.started.as_micros(), run.ended.as_micros(), run.priority)).collect();
    assert_eq!(runs, [(0, 10, 0), (10, 80, 0), (80, 150, -2), (150, 220, 0)]);
    for stream in [low, high] {
        lt.cuda.ok(lt.cuda.cuStreamDestroy_v2(stream));
    }
    product.end(&lt);
    lt.cuda.end();
}

#[test]
fn order_check_finds_races_on_operands_and_workspaces() {
    for (waits, shares_workspace, expected) in [
        (false, false, &["reads"][..]),
        (true, false, &[]),
        (true, true, &[]),
        (false, true, &["reads", "writes"]),
    ] {
        let lt = Lt::start_with(&[(Setting::OrderCheck, 1)]);
        let first = Product::plain(&lt, COMPUTE_32F, [32, 32, 32]);
        let mut second = Product::plain(&lt, COMPUTE_32F, [32, 32, 32]);
        let (own_a, own_workspace) = (second.a.address, second.workspace.0);
        second.a.address = first.d.address;
        if shares_workspace {
            second.workspace.0 = first.workspace.0;
        }
        let algorithm = split(&lt, &first).algorithm;
        let streams = [0, 0].map(|priority| lt.cuda.stream(priority));
        let event = lt.cuda.event();
        lt.cuda.ok(first.enqueue(&lt, Some(&algorithm), streams[0]));
        lt.cuda.ok(lt.cuda.cuEventRecord(event, streams[0]));
        if waits {
            lt.cuda.ok(lt.cuda.cuStreamWaitEvent(streams[1], event, 0));
        }
        lt.cuda.ok(second.enqueue(&lt, Some(&algorithm), streams[1]));
        lt.cuda.ok(lt.cuda.cuCtxSynchronize());
        let conflicts = lt.cuda.emulator.conflicts();
        assert_eq!(conflicts.len(), expected.len(), "{conflicts:?}");
        for verb in expected {
            let found =
                conflicts.iter().any(|line| line.starts_with("kernel cublaslt_f32_") && line.contains(verb));
            assert!(found, "{conflicts:?}");
        }
        (second.a.address, second.workspace.0) = (own_a, own_workspace);
        lt.cuda.ok(lt.cuda.cuEventDestroy_v2(event));
        for stream in streams {
            lt.cuda.ok(lt.cuda.cuStreamDestroy_v2(stream));
        }
        for product in [first, second] {
            product.end(&lt);
        }
        lt.cuda.end();
    }
}

#[test]
fn workspace_is_overwritten_up_to_its_required_size() {
    let lt = Lt::start();
    let product = Product::plain(&lt, COMPUTE_32F, [32, 16, 64]);
    let found = product.algorithms(&lt);
    let (address, bytes) = product.workspace;
    for found in found {
        lt.cuda.ok(lt.cuda.cuMemsetD32Async(address, 0x0102_0304, bytes / 4, 0));
        lt.cuda.ok(product.enqueue(&lt, Some(&found.algorithm), 0));
        let left = lt.download(address, bytes);
        let is_kept = |bytes: &[u8]| bytes.chunks(4).all(|word| word == [4, 3, 2, 1]);
        let (used, unused) = left.split_at(found.workspace);
        assert!(is_kept(unused));
        assert!(used.chunks(4).all(|word| word != [4, 3, 2, 1]));
    }
    product.end(&lt);
    lt.cuda.end();
}

#[test]
fn memory_freed_before_a_launch_is_reported() {
    let lt = Lt::start();
    let product = Product::plain(&lt, COMPUTE_32F, [16, 16, 16]);
    let graph = captured(&lt, &[&product], 0);
    let exec = lt.cuda.instantiated(graph);
    lt.cuda.ok(lt.cuda.cuMemFree_v2(product.b.address));
    lt.cuda.ok(lt.cuda.cuGraphLaunch(exec, 0));
    lt.cuda.fails(lt.cuda.cuCtxSynchronize(), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    let fault = &lt.cuda.emulator.faults()[0];
    assert!(fault.contains("an input") && fault.contains("was freed, in kernel cublaslt_f32_"), "{fault}");
    // The context is lost: CUBLAS_STATUS_EXECUTION_FAILED.
    assert_eq!(product.enqueue(&lt, None, 0), 13);
}

#[test]
fn kernel_of_a_product_can_be_made_to_fail() {
    let lt = Lt::start();
    let product = Product::plain(&lt, COMPUTE_32F, [16, 16, 16]);
    lt.cuda.ok(product.enqueue(&lt, None, 0));
    lt.cuda.ok(lt.cuda.cuCtxSynchronize());
    let name = lt.cuda.timeline()[0].2.clone();
    lt.cuda.emulator.fail_kernel(&name, 1);
    lt.cuda.ok(product.enqueue(&lt, None, 0));
    lt.cuda.fails(lt.cuda.cuCtxSynchronize(), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
}
