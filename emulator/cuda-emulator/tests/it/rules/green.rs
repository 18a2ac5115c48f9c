//! Green contexts.

use super::cuda::{Cuda, zeros};
use cuda_emulator::Setting;
use cudarc::driver::sys::{
    CUdevResource,
    CUresult::{
        CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
        CUDA_ERROR_INVALID_RESOURCE_TYPE, CUDA_ERROR_INVALID_VALUE,
    },
};
use std::ptr;

/// Returns the number of multiprocessors of a resource.
#[allow(unsafe_code)]
fn multiprocessors(resource: &CUdevResource) -> u32 {
    // SAFETY: the field is a number, for which all bits are valid.
    unsafe { resource.__bindgen_anon_1.sm.smCount }
}

#[test]
fn multiprocessors_are_split_into_green_contexts() {
    let cuda = Cuda::start();
    let (module, [kernel]) = cuda.kernels(["spin_5us"]);
    let all = cuda.make(|place| cuda.cuDeviceGetDevResource(0, place, 1));
    assert_eq!(multiprocessors(&all), 132);
    let mut groups = 0;
    let none = ptr::null_mut();
    cuda.ok(cuda.cuDevSmResourceSplitByCount(none, &raw mut groups, &raw const all, none, 0, 20));
    assert_eq!(groups, 5, "groups of 24, the next multiple of 8");
    let (mut few, mut rest) = (zeros::<CUdevResource>(), zeros::<CUdevResource>());
    groups = 1;
    cuda.ok(cuda.cuDevSmResourceSplitByCount(
        &raw mut few,
        &raw mut groups,
        &raw const all,
        &raw mut rest,
        0,
        16,
    ));
    assert_eq!((groups, multiprocessors(&few), multiprocessors(&rest)), (1, 16, 116));

    let description = cuda.make(|place| cuda.cuDevResourceGenerateDesc(place, &raw mut few, 1));
    let green = cuda.make(|place| cuda.cuGreenCtxCreate(place, description, 0, 1));
    let context = cuda.make(|place| cuda.cuCtxFromGreenCtx(place, green));
    let stream = cuda.make(|place| cuda.cuGreenCtxStreamCreate(place, green, 1, -1));
    cuda.ok(cuda.cuCtxSetCurrent(context));
    cuda.ok(cuda.launch(kernel, stream));
    cuda.ok(cuda.cuStreamSynchronize(stream));
    assert_eq!(cuda.timeline(), [(0, 5, "spin_5us".to_owned())]);
    assert!(cuda.emulator.leaks().contains(&"green context 1".to_owned()));
    cuda.ok(cuda.cuStreamDestroy_v2(stream));
    cuda.ok(cuda.cuModuleUnload(module));
    cuda.ok(cuda.cuGreenCtxDestroy(green));
    cuda.end();
}

/// Observed on an H200: see `benchmarks/2026-11-26-nvidia-h200/green-context.log`.
#[test]
fn captured_kernels_of_a_green_context_change_after_conversion() {
    const PRIORITY: u32 = 8;
    let cuda = Cuda::start();
    let (_, [kernel]) = cuda.kernels(["spin_5us"]);
    let all = cuda.make(|place| cuda.cuDeviceGetDevResource(0, place, 1));
    let (mut few, mut groups, none) = (zeros::<CUdevResource>(), 1, ptr::null_mut());
    cuda.ok(cuda.cuDevSmResourceSplitByCount(&raw mut few, &raw mut groups, &raw const all, none, 0, 16));
    let description = cuda.make(|place| cuda.cuDevResourceGenerateDesc(place, &raw mut few, 1));
    let green = cuda.make(|place| cuda.cuGreenCtxCreate(place, description, 0, 1));
    let stream = cuda.make(|place| cuda.cuGreenCtxStreamCreate(place, green, 1, -1));
    cuda.ok(cuda.cuStreamBeginCapture_v2(stream, 1));
    cuda.ok(cuda.launch(kernel, stream));
    let graph = cuda.make(|place| cuda.cuStreamEndCapture(stream, place));
    let node = cuda.nodes(graph)[0];
    assert_eq!(cuda.make(|place| cuda.cuGraphKernelNodeGetAttribute(node, PRIORITY, place))[0], -1);
    let changed = cuda.cuGraphKernelNodeSetAttribute(node, PRIORITY, &[-3; 16]);
    cuda.refuses(changed, CUDA_ERROR_INVALID_CONTEXT, "before cuCtxFromGreenCtx was called");
    cuda.make(|place| cuda.cuCtxFromGreenCtx(place, green));
    cuda.ok(cuda.cuGraphKernelNodeSetAttribute(node, PRIORITY, &[-3; 16]));
}

#[test]
fn invalid_resources_of_green_contexts_are_refused() {
    let cuda = Cuda::start();
    let mut all = cuda.make(|place| cuda.cuDeviceGetDevResource(0, place, 1));
    let mut other = zeros::<CUdevResource>();
    let kind = cuda.cuDeviceGetDevResource(0, &raw mut other, 7);
    cuda.refuses(kind, CUDA_ERROR_INVALID_RESOURCE_TYPE, "no resource of type 7");
    let (mut groups, none) = (1, ptr::null_mut());
    let much = cuda.cuDevSmResourceSplitByCount(none, &raw mut groups, &raw const all, none, 0, 133);
    cuda.refuses(
        much,
        CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
        "132 multiprocessors cannot be split into groups of 133",
    );
    let mut place = 0;
    let made_up = cuda.cuDevResourceGenerateDesc(&raw mut place, &raw mut other, 1);
    cuda.refuses(made_up, CUDA_ERROR_INVALID_RESOURCE_TYPE, "not consist of multiprocessors of this driver");
    let description = cuda.make(|place| cuda.cuDevResourceGenerateDesc(place, &raw mut all, 1));
    cuda.refuses(
        cuda.cuGreenCtxCreate(&raw mut place, description, 0, 0),
        CUDA_ERROR_INVALID_VALUE,
        "the flags 0x0",
    );
    let green = cuda.make(|place| cuda.cuGreenCtxCreate(place, description, 0, 1));
    let blocking = cuda.cuGreenCtxStreamCreate(&raw mut place, green, 0, 0);
    cuda.refuses(blocking, CUDA_ERROR_INVALID_VALUE, "streams of green contexts");
    cuda.ok(cuda.cuGreenCtxDestroy(green));
    cuda.refuses(
        cuda.cuGreenCtxDestroy(green),
        CUDA_ERROR_INVALID_HANDLE,
        "green context 1 after it was destroyed",
    );
}

#[test]
fn cross_context_events_can_be_refused() {
    let cuda = Cuda::start();
    let mut all = cuda.make(|place| cuda.cuDeviceGetDevResource(0, place, 1));
    let description = cuda.make(|place| cuda.cuDevResourceGenerateDesc(place, &raw mut all, 1));
    let green = cuda.make(|place| cuda.cuGreenCtxCreate(place, description, 0, 1));
    let inside = cuda.make(|place| cuda.cuGreenCtxStreamCreate(place, green, 1, 0));
    let (outside, event) = (cuda.stream(0), cuda.event());
    cuda.ok(cuda.cuEventRecord(event, inside));
    cuda.emulator.set(Setting::CrossContextEvents, 0);
    cuda.fails(cuda.cuEventRecord(event, inside), CUDA_ERROR_INVALID_HANDLE);
    cuda.ok(cuda.cuEventRecord(event, outside));
    // A stream may wait for an event of any context.
    cuda.ok(cuda.cuStreamWaitEvent(inside, event, 0));
}
