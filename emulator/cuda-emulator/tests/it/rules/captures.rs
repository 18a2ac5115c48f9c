//! Captures, and the operations that are forbidden during them.

use super::cuda::Cuda;
use cudarc::driver::sys::CUresult::{
    CUDA_ERROR_CAPTURED_EVENT, CUDA_ERROR_ILLEGAL_STATE, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
    CUDA_ERROR_STREAM_CAPTURE_MERGE, CUDA_ERROR_STREAM_CAPTURE_UNJOINED, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
};
use std::cell::Cell;

const GLOBAL: u32 = 0;
const THREAD_LOCAL: u32 = 1;
const RELAXED: u32 = 2;

/// Creates a stream and begins a capture in it.
fn capturing(cuda: &Cuda, mode: u32) -> usize {
    let stream = cuda.stream(0);
    cuda.ok(cuda.cuStreamBeginCapture_v2(stream, mode));
    stream
}

/// Ends an invalidated capture, and checks that the stream can be used again and that no graph is
/// left.
#[track_caller]
fn ends_invalid(cuda: &Cuda, stream: usize) {
    let mut graph = 1;
    assert_eq!(cuda.make(|place| cuda.cuStreamIsCapturing(stream, place)), 2);
    cuda.fails(cuda.cuStreamEndCapture(stream, &raw mut graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_eq!(graph, 0);
    assert_eq!(cuda.make(|place| cuda.cuStreamIsCapturing(stream, place)), 0);
    assert!(!cuda.emulator.leaks().iter().any(|leak| leak.contains("graph") || leak.contains("capture")));
}

#[test]
fn captured_work_runs_when_its_graph_is_launched() {
    let cuda = Cuda::start();
    let (module, [left, right, last]) = cuda.kernels(["left_10us", "right_20us", "last_5us"]);
    let (stream, side) = (capturing(&cuda, THREAD_LOCAL), cuda.stream(-2));
    let (fork, join) = (cuda.event(), cuda.event());
    cuda.ok(cuda.cuEventRecord(fork, stream));
    cuda.ok(cuda.cuStreamWaitEvent(side, fork, 0));
    assert_eq!(cuda.make(|place| cuda.cuStreamIsCapturing(side, place)), 1);
    cuda.ok(cuda.launch(left, stream));
    cuda.ok(cuda.launch(right, side));
    cuda.ok(cuda.cuEventRecord(join, side));
    cuda.ok(cuda.cuStreamWaitEvent(stream, join, 0));
    cuda.ok(cuda.launch(last, stream));
    let graph = cuda.make(|place| cuda.cuStreamEndCapture(stream, place));
    assert!(cuda.timeline().is_empty(), "nothing runs while it is captured");

    let nodes = cuda.nodes(graph);
    let mut before = [0; 4];
    let mut count = before.len();
    cuda.ok(cuda.cuGraphNodeGetDependencies(nodes[2], before.as_mut_ptr(), &raw mut count));
    assert_eq!((&before, count), (&[nodes[0], nodes[1], 0, 0], 2));
    let priorities =
        nodes.iter().map(|&node| cuda.make(|place| cuda.cuGraphKernelNodeGetAttribute(node, 8, place))[0]);
    assert_eq!(priorities.collect::<Vec<_>>(), [0, -2, 0], "a node has the priority of its stream");

    let exec = cuda.instantiated(graph);
    cuda.ok(cuda.cuGraphLaunch(exec, stream));
    cuda.ok(cuda.cuStreamSynchronize(stream));
    let names: Vec<_> = cuda.timeline().into_iter().map(|(_, _, name)| name).collect();
    assert_eq!(names, ["right_20us", "left_10us", "last_5us"]);
    cuda.ok(cuda.cuGraphExecDestroy(exec));
    cuda.ok(cuda.cuGraphDestroy(graph));
    for event in [fork, join] {
        cuda.ok(cuda.cuEventDestroy_v2(event));
    }
    for stream in [stream, side] {
        cuda.ok(cuda.cuStreamDestroy_v2(stream));
    }
    cuda.ok(cuda.cuModuleUnload(module));
    cuda.end();
}

#[test]
fn captures_end_in_their_origin_stream() {
    let cuda = Cuda::start();
    let (stream, side, event) = (cuda.stream(0), cuda.stream(0), cuda.event());
    let mut graph = 0;
    let mut end = |stream| cuda.cuStreamEndCapture(stream, &raw mut graph);
    cuda.refuses(end(stream), CUDA_ERROR_ILLEGAL_STATE, "stream 1 is not capturing");
    cuda.ok(cuda.cuStreamBeginCapture_v2(stream, THREAD_LOCAL));
    cuda.refuses(
        cuda.cuStreamBeginCapture_v2(stream, THREAD_LOCAL),
        CUDA_ERROR_ILLEGAL_STATE,
        "is already capturing",
    );
    cuda.ok(cuda.cuEventRecord(event, stream));
    cuda.ok(cuda.cuStreamWaitEvent(side, event, 0));
    cuda.refuses(end(side), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "began in stream 1");
    ends_invalid(&cuda, stream);
    cuda.refuses(
        cuda.cuStreamBeginCapture_v2(0, RELAXED),
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        "default stream",
    );
}

#[test]
fn captures_end_on_their_thread_unless_relaxed() {
    let cuda = Cuda::start();
    let other_thread = |stream| {
        let mut graph = 0_usize;
        std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    let context = cuda.make(|place| cuda.cuDevicePrimaryCtxRetain(place, 0));
                    cuda.ok(cuda.cuCtxSetCurrent(context));
                    cuda.cuStreamEndCapture(stream, &raw mut graph)
                })
                .join()
                .unwrap()
        })
    };
    let stream = capturing(&cuda, THREAD_LOCAL);
    cuda.refuses(other_thread(stream), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "began on another thread");
    ends_invalid(&cuda, stream);
    cuda.ok(other_thread(capturing(&cuda, RELAXED)));
}

#[test]
fn waits_for_and_queries_of_capturing_streams_are_refused() {
    let cuda = Cuda::start();
    for mode in [GLOBAL, THREAD_LOCAL, RELAXED] {
        for ask in [Cuda::cuStreamQuery, Cuda::cuStreamSynchronize] {
            let stream = capturing(&cuda, mode);
            cuda.refuses(ask(&cuda, stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "which is capturing");
            cuda.fails(cuda.cuEventRecord(cuda.event(), stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
            ends_invalid(&cuda, stream);
        }
    }
}

#[test]
fn unsafe_calls_are_refused_unless_the_capture_is_relaxed() {
    let cuda = Cuda::start();
    let (idle, event) = (cuda.stream(0), cuda.event());
    cuda.ok(cuda.cuEventRecord(event, idle));
    let word = cuda.make(|place| cuda.cuMemAlloc_v2(place, 4));
    let place = Cell::new(0);
    let calls: [&dyn Fn() -> u32; 6] = [
        &|| cuda.cuMemAlloc_v2(place.as_ptr(), 4),
        &|| cuda.cuMemFree_v2(word),
        &|| cuda.cuEventQuery(event),
        &|| cuda.cuStreamSynchronize(idle),
        &|| cuda.cuStreamQuery(idle),
        &|| cuda.cuCtxSynchronize(),
    ];
    for call in calls {
        let stream = capturing(&cuda, THREAD_LOCAL);
        cuda.refuses(call(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "which is not relaxed");
        ends_invalid(&cuda, stream);
    }
    let stream = capturing(&cuda, RELAXED);
    for call in calls {
        cuda.ok(call());
    }
    let graph = cuda.make(|place| cuda.cuStreamEndCapture(stream, place));
    cuda.ok(cuda.cuGraphDestroy(graph));
}

#[test]
fn global_captures_restrict_other_threads() {
    let cuda = Cuda::start();
    let idle = cuda.stream(0);
    let other_thread = || {
        std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    let context = cuda.make(|place| cuda.cuDevicePrimaryCtxRetain(place, 0));
                    cuda.ok(cuda.cuCtxSetCurrent(context));
                    cuda.cuStreamSynchronize(idle)
                })
                .join()
                .unwrap()
        })
    };
    let stream = capturing(&cuda, GLOBAL);
    cuda.refuses(other_thread(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "which is not relaxed");
    ends_invalid(&cuda, stream);
    capturing(&cuda, THREAD_LOCAL);
    cuda.ok(other_thread());
}

#[test]
fn captures_cannot_wait_for_uncaptured_work() {
    let cuda = Cuda::start();
    let (outside, event) = (cuda.stream(0), cuda.event());
    cuda.ok(cuda.cuEventRecord(event, outside));
    let stream = capturing(&cuda, RELAXED);
    let wait = cuda.cuStreamWaitEvent(stream, event, 0);
    cuda.refuses(
        wait,
        CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
        "event 1 was recorded outside the capture of stream 2",
    );
    ends_invalid(&cuda, stream);
}

#[test]
fn captures_cannot_be_merged() {
    let cuda = Cuda::start();
    let (one, other, event) = (capturing(&cuda, RELAXED), capturing(&cuda, RELAXED), cuda.event());
    cuda.ok(cuda.cuEventRecord(event, one));
    cuda.refuses(
        cuda.cuStreamWaitEvent(other, event, 0),
        CUDA_ERROR_STREAM_CAPTURE_MERGE,
        "in another capture",
    );
    let mut graph = 0;
    cuda.fails(cuda.cuStreamEndCapture(one, &raw mut graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    ends_invalid(&cuda, other);
}

#[test]
fn forked_streams_must_be_joined() {
    let cuda = Cuda::start();
    let (_, [kernel]) = cuda.kernels(["spin_1us"]);
    let (stream, side, event) = (capturing(&cuda, THREAD_LOCAL), cuda.stream(0), cuda.event());
    cuda.ok(cuda.cuEventRecord(event, stream));
    cuda.ok(cuda.cuStreamWaitEvent(side, event, 0));
    cuda.ok(cuda.launch(kernel, side));
    let mut graph = 0;
    let end = cuda.cuStreamEndCapture(stream, &raw mut graph);
    cuda.refuses(end, CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "was not joined");
    assert_eq!(cuda.make(|place| cuda.cuStreamIsCapturing(side, place)), 0);
    assert!(!cuda.emulator.leaks().iter().any(|leak| leak.contains("graph")));
}

#[test]
fn captured_events_cannot_be_queried() {
    let cuda = Cuda::start();
    let (stream, event) = (capturing(&cuda, RELAXED), cuda.event());
    cuda.ok(cuda.cuEventRecord(event, stream));
    cuda.refuses(cuda.cuEventQuery(event), CUDA_ERROR_CAPTURED_EVENT, "was last recorded in a capture");
    ends_invalid(&cuda, stream);
    cuda.refuses(cuda.cuEventSynchronize(event), CUDA_ERROR_CAPTURED_EVENT, "was last recorded in a capture");
    let wait = cuda.cuStreamWaitEvent(stream, event, 0);
    cuda.refuses(wait, CUDA_ERROR_CAPTURED_EVENT, "a capture that has ended");
    cuda.ok(cuda.cuEventRecord(event, stream));
    cuda.ok(cuda.cuEventQuery(event));
}

#[test]
fn default_stream_is_refused_while_a_blocking_stream_captures() {
    let cuda = Cuda::start();
    let (_, [kernel]) = cuda.kernels(["spin_1us"]);
    let blocking = cuda.make(|place| cuda.cuStreamCreateWithPriority(place, 0, 0));
    cuda.ok(cuda.cuStreamBeginCapture_v2(blocking, RELAXED));
    cuda.refuses(
        cuda.launch(kernel, 0),
        CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
        "during the capture of stream 1",
    );
    ends_invalid(&cuda, blocking);
    capturing(&cuda, RELAXED);
    cuda.ok(cuda.launch(kernel, 0));
}

#[test]
fn destroying_a_capturing_stream_is_reported() {
    let cuda = Cuda::start();
    let stream = capturing(&cuda, RELAXED);
    cuda.refuses(
        cuda.cuStreamDestroy_v2(stream),
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        "stream 1 is destroyed while",
    );
    assert_eq!(
        cuda.emulator.leaks().len(),
        1,
        "the context, but neither stream nor graph: {:?}",
        cuda.emulator.leaks()
    );
}
