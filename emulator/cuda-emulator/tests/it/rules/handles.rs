//! Handles: use after destruction, double destruction, wrong kinds and null.

use super::cuda::Cuda;
use cudarc::driver::sys::CUresult::{CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE};

#[test]
fn destroyed_handles_are_refused_by_every_call() {
    let cuda = Cuda::start();
    let (module, [kernel]) = cuda.kernels(["spin_1us"]);
    let (stream, live, event) = (cuda.stream(0), cuda.stream(0), cuda.event());
    let graph = cuda.captured(&[kernel]);
    let node = cuda.nodes(graph)[0];
    let exec = cuda.instantiated(graph);
    cuda.ok(cuda.cuStreamDestroy_v2(stream));
    cuda.ok(cuda.cuEventDestroy_v2(event));
    cuda.ok(cuda.cuGraphExecDestroy(exec));
    cuda.ok(cuda.cuGraphDestroy(graph));
    cuda.ok(cuda.cuModuleUnload(module));

    let mut place = 0;
    let late = [
        ("stream 1 after", cuda.cuStreamDestroy_v2(stream)),
        ("stream 1 after", cuda.cuStreamQuery(stream)),
        ("stream 1 after", cuda.cuStreamSynchronize(stream)),
        ("stream 1 after", cuda.cuStreamBeginCapture_v2(stream, 1)),
        ("event 1 after", cuda.cuEventDestroy_v2(event)),
        ("event 1 after", cuda.cuEventRecord(event, live)),
        ("event 1 after", cuda.cuEventQuery(event)),
        ("event 1 after", cuda.cuStreamWaitEvent(live, event, 0)),
        ("executable graph 1 after", cuda.cuGraphExecDestroy(exec)),
        ("executable graph 1 after", cuda.cuGraphLaunch(exec, live)),
        ("graph 1 after", cuda.cuGraphDestroy(graph)),
        ("graph 1 after", cuda.cuGraphClone(&raw mut place, graph)),
        ("graph 1 after", cuda.cuGraphInstantiateWithFlags(&raw mut place, graph, 0)),
        ("graph node 1 after", cuda.cuGraphDestroyNode(node)),
        ("module 1 after", cuda.cuModuleUnload(module)),
        ("function 1 after", cuda.launch(kernel, live)),
    ];
    let misuse = cuda.emulator.misuse();
    assert_eq!(misuse.len(), late.len(), "{misuse:#?}");
    for ((what, code), line) in late.into_iter().zip(misuse) {
        assert_eq!(code, CUDA_ERROR_INVALID_HANDLE as u32, "{line}");
        assert!(line.contains(what), "{line:?} instead of {what:?}");
    }
}

#[test]
fn work_for_a_destroyed_stream_is_refused() {
    let cuda = Cuda::start();
    let (_, [kernel]) = cuda.kernels(["spin_1us"]);
    let graph = cuda.captured(&[kernel]);
    let exec = cuda.instantiated(graph);
    let stream = cuda.stream(0);
    cuda.ok(cuda.cuStreamDestroy_v2(stream));
    cuda.refuses(
        cuda.launch(kernel, stream),
        CUDA_ERROR_INVALID_HANDLE,
        "cuLaunchKernel: stream 2 after it was destroyed",
    );
    cuda.refuses(cuda.cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_HANDLE, "stream 2 after");
}

#[test]
fn handles_of_another_kind_are_refused() {
    let cuda = Cuda::start();
    let (stream, event) = (cuda.stream(0), cuda.event());
    cuda.refuses(
        cuda.cuStreamQuery(event),
        CUDA_ERROR_INVALID_HANDLE,
        "event 1 instead of a handle of kind stream",
    );
    cuda.refuses(
        cuda.cuEventDestroy_v2(stream),
        CUDA_ERROR_INVALID_HANDLE,
        "stream 1 instead of a handle of kind event",
    );
    cuda.refuses(cuda.cuGraphLaunch(12345, stream), CUDA_ERROR_INVALID_HANDLE, "never given out");
    cuda.ok(cuda.cuStreamDestroy_v2(stream));
}

#[test]
fn null_pointers_are_refused() {
    let cuda = Cuda::start();
    let null = std::ptr::null_mut();
    cuda.refuses(cuda.cuStreamCreateWithPriority(null, 1, 0), CUDA_ERROR_INVALID_VALUE, "phStream is null");
    cuda.refuses(cuda.cuEventCreate(null, 0), CUDA_ERROR_INVALID_VALUE, "phEvent is null");
    cuda.refuses(cuda.cuGraphClone(null, 0), CUDA_ERROR_INVALID_VALUE, "phGraphClone is null");
    cuda.refuses(cuda.cuModuleLoadData(null, std::ptr::null()), CUDA_ERROR_INVALID_VALUE, "module is null");
    cuda.refuses(cuda.cuEventQuery(0), CUDA_ERROR_INVALID_HANDLE, "null instead of a handle of kind event");
    cuda.refuses(cuda.cuGraphDestroy(0), CUDA_ERROR_INVALID_VALUE, "null instead of a handle of kind graph");
    cuda.refuses(
        cuda.cuStreamDestroy_v2(0),
        CUDA_ERROR_INVALID_HANDLE,
        "a default stream cannot be destroyed",
    );
    assert_eq!(cuda.emulator.leaks(), ["primary context of device 0: retained 1 times more than released"]);
}

#[test]
fn live_objects_are_reported_as_leaks() {
    let cuda = Cuda::start();
    let (_, [kernel]) = cuda.kernels(["spin_1us"]);
    let graph = cuda.captured(&[kernel]);
    cuda.instantiated(graph);
    let capturing = cuda.stream(0);
    cuda.event();
    cuda.ok(cuda.cuStreamBeginCapture_v2(capturing, 2));
    cuda.make(|place| cuda.cuMemAlloc_v2(place, 100));
    cuda.make(|place| cuda.cuMemHostAlloc(place, 8, 0));
    let leaks = cuda.emulator.leaks().join("\n");
    for leak in [
        "stream 2",
        "event 1",
        "graph 1",
        "executable graph 1",
        "module 1",
        "capture on stream 2",
        "allocation of 100 bytes",
        "page-locked allocation of 8 bytes",
        "primary context of device 0",
    ] {
        assert!(leaks.contains(leak), "{leak} is not in\n{leaks}");
    }
    assert_eq!(leaks.lines().count(), 9, "{leaks}");
}
