//! Events: times, ordering of streams and errors.

use super::cuda::Cuda;
use cudarc::driver::sys::CUresult::{CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_NOT_READY};

#[test]
fn elapsed_times_are_exact() {
    let cuda = Cuda::start();
    let (module, [kernel]) = cuda.kernels(["spin_250us"]);
    let (stream, start, end) = (cuda.stream(0), cuda.event(), cuda.event());
    cuda.ok(cuda.cuEventRecord(start, stream));
    cuda.ok(cuda.launch(kernel, stream));
    cuda.ok(cuda.launch(kernel, stream));
    cuda.ok(cuda.cuEventRecord(end, stream));
    let mut time = 0.0;
    cuda.fails(cuda.cuEventElapsedTime_v2(&raw mut time, start, end), CUDA_ERROR_NOT_READY);
    cuda.fails(cuda.cuEventQuery(end), CUDA_ERROR_NOT_READY);
    cuda.ok(cuda.cuEventQuery(start));
    cuda.ok(cuda.cuEventSynchronize(end));
    cuda.ok(cuda.cuEventElapsedTime_v2(&raw mut time, start, end));
    assert!((time - 0.5).abs() < f32::EPSILON, "{time}");
    for event in [start, end] {
        cuda.ok(cuda.cuEventDestroy_v2(event));
    }
    cuda.ok(cuda.cuStreamDestroy_v2(stream));
    cuda.ok(cuda.cuModuleUnload(module));
    cuda.end();
}

#[test]
fn waits_refer_to_the_last_record_at_the_call() {
    let cuda = Cuda::start();
    let (_, [first, second]) = cuda.kernels(["first_100us", "second_1us"]);
    let (one, other, event) = (cuda.stream(0), cuda.stream(-1), cuda.event());
    cuda.ok(cuda.launch(first, one));
    cuda.ok(cuda.cuEventRecord(event, one));
    cuda.ok(cuda.launch(first, one));
    cuda.ok(cuda.cuStreamWaitEvent(other, event, 0));
    cuda.ok(cuda.launch(second, other));
    // Destroying the event does not affect the wait.
    cuda.ok(cuda.cuEventDestroy_v2(event));
    cuda.ok(cuda.cuCtxSynchronize());
    let names: Vec<_> = cuda.timeline().into_iter().map(|(_, _, name)| name).collect();
    assert_eq!(names, ["first_100us", "second_1us", "first_100us"]);
}

#[test]
fn events_without_timing_have_no_elapsed_time() {
    let cuda = Cuda::start();
    let (stream, start) = (cuda.stream(0), cuda.event());
    let end = cuda.make(|place| cuda.cuEventCreate(place, 2));
    cuda.ok(cuda.cuEventRecord(start, stream));
    cuda.ok(cuda.cuEventRecord(end, stream));
    let mut time = 0.0;
    cuda.refuses(
        cuda.cuEventElapsedTime_v2(&raw mut time, start, end),
        CUDA_ERROR_INVALID_HANDLE,
        "event 2 was created without timing",
    );
}

#[test]
fn events_that_were_never_recorded_are_reported() {
    let cuda = Cuda::start();
    let (stream, event) = (cuda.stream(0), cuda.event());
    let mut time = 0.0;
    let elapsed = cuda.cuEventElapsedTime_v2(&raw mut time, event, event);
    cuda.refuses(elapsed, CUDA_ERROR_INVALID_HANDLE, "event 1 was never recorded");
    // These calls succeed, as with the real driver.
    cuda.ok(cuda.cuEventQuery(event));
    cuda.ok(cuda.cuEventSynchronize(event));
    cuda.ok(cuda.cuStreamWaitEvent(stream, event, 0));
    let misuse = cuda.emulator.misuse();
    let calls = ["cuEventElapsedTime_v2", "cuEventQuery", "cuEventSynchronize", "cuStreamWaitEvent"];
    assert_eq!(misuse.len(), calls.len());
    for (line, call) in misuse.iter().zip(calls) {
        assert!(line.starts_with(call) && line.contains("event 1 was never recorded"), "{line}");
    }
}
