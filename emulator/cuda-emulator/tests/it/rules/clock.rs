//! Virtual time: the order of kernels, and waits.

use super::cuda::Cuda;
use cuda_emulator::Setting;
use cudarc::driver::sys::CUresult::{
    CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_TIMEOUT, CUDA_ERROR_NOT_READY,
};
use std::time::Duration;

#[test]
fn higher_priority_runs_first_without_preemption() {
    let cuda = Cuda::start();
    let (module, [long, low, high]) = cuda.kernels(["long_100us", "low_10us", "high_20us"]);
    let (background, foreground) = (cuda.stream(0), cuda.stream(-5));
    cuda.ok(cuda.launch(long, background));
    cuda.ok(cuda.launch(low, background));
    cuda.ok(cuda.launch(high, foreground));
    cuda.ok(cuda.launch(high, foreground));
    cuda.ok(cuda.cuCtxSynchronize());
    let expected =
        [(0, 100, "long_100us"), (100, 120, "high_20us"), (120, 140, "high_20us"), (140, 150, "low_10us")];
    assert_eq!(cuda.timeline(), expected.map(|(start, end, name)| (start, end, name.to_owned())));
    for stream in [background, foreground] {
        cuda.ok(cuda.cuStreamDestroy_v2(stream));
    }
    cuda.ok(cuda.cuModuleUnload(module));
    cuda.end();
}

#[test]
fn queries_and_launches_advance_the_clock() {
    let cuda = Cuda::start();
    cuda.emulator.set(Setting::LaunchNs, 3000);
    let (_, [kernel]) = cuda.kernels(["spin_10us"]);
    let stream = cuda.stream(0);
    cuda.ok(cuda.launch(kernel, stream));
    let mut polls = 1;
    while cuda.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY as u32 {
        polls += 1;
    }
    assert_eq!(polls, 10);
    assert_eq!(cuda.timeline(), [(3, 13, "spin_10us".to_owned())]);
    cuda.emulator.advance(Duration::from_micros(7));
    assert_eq!(cuda.emulator.now(), Duration::from_micros(20));
}

#[test]
fn work_of_a_destroyed_stream_completes() {
    let cuda = Cuda::start();
    let (module, [kernel]) = cuda.kernels(["spin_10us"]);
    let stream = cuda.stream(0);
    cuda.ok(cuda.launch(kernel, stream));
    cuda.ok(cuda.cuStreamDestroy_v2(stream));
    assert!(cuda.emulator.leaks().contains(&"stream 1: destroyed with work that has not ended".to_owned()));
    cuda.ok(cuda.cuCtxSynchronize());
    assert_eq!(cuda.timeline().len(), 1);
    cuda.ok(cuda.cuModuleUnload(module));
    cuda.end();
}

#[test]
fn endless_waits_are_errors() {
    let cuda = Cuda::start();
    let stream = cuda.stream(0);
    let word = cuda.make(|place| cuda.cuMemAlloc_v2(place, 4));
    cuda.ok(cuda.cuStreamWaitValue32_v2(stream, word, 1, 1));
    cuda.refuses(cuda.cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_TIMEOUT, "never ends");
    cuda.refuses(cuda.cuCtxSynchronize(), CUDA_ERROR_LAUNCH_TIMEOUT, "work is pending in stream 1");
    let mut polls = 0;
    while cuda.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY as u32 {
        polls += 1;
    }
    assert_eq!(polls, 10_000);
    assert!(cuda.emulator.misuse()[2].contains("10000 consecutive queries found no work in progress"));
}

#[test]
fn failed_kernels_invalidate_the_context() {
    let cuda = Cuda::start();
    let (module, [kernel]) = cuda.kernels(["fail_10us"]);
    let stream = cuda.stream(0);
    cuda.ok(cuda.launch(kernel, stream));
    cuda.fails(cuda.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    cuda.fails(cuda.cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_FAILED);
    cuda.fails(cuda.launch(kernel, stream), CUDA_ERROR_LAUNCH_FAILED);
    // Destroying returns the error of the device, and destroys.
    cuda.fails(cuda.cuModuleUnload(module), CUDA_ERROR_LAUNCH_FAILED);
    cuda.ok(cuda.cuStreamDestroy_v2(stream));
    cuda.end();
}
