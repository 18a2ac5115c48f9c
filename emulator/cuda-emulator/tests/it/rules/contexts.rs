//! Initialisation, contexts and devices.

use super::cuda::Cuda;
use cuda_emulator::Setting;
use cudarc::driver::sys::CUresult::{
    CUDA_ERROR_CONTEXT_IS_DESTROYED, CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_DEVICE,
    CUDA_ERROR_NO_DEVICE, CUDA_ERROR_NOT_INITIALIZED,
};

#[test]
fn calls_before_initialisation_are_refused() {
    let cuda = Cuda::open();
    let mut count = 0;
    cuda.refuses(cuda.cuDeviceGetCount(&raw mut count), CUDA_ERROR_NOT_INITIALIZED, "before cuInit");
    cuda.refuses(cuda.cuStreamQuery(0), CUDA_ERROR_NOT_INITIALIZED, "before cuInit");
    assert_eq!(cuda.make(|place| cuda.cuDriverGetVersion(place)), 13000, "the version is known before");
}

#[test]
fn calls_need_a_current_context_on_their_thread() {
    let cuda = Cuda::open();
    cuda.ok(cuda.cuInit(0));
    cuda.refuses(cuda.cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT, "no context is current");
    let context = cuda.make(|place| cuda.cuDevicePrimaryCtxRetain(place, 0));
    cuda.ok(cuda.cuCtxSetCurrent(context));
    cuda.ok(cuda.cuCtxSynchronize());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            cuda.refuses(cuda.cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT, "no context is current");
        });
    });
    cuda.ok(cuda.cuCtxSetCurrent(0));
    cuda.refuses(cuda.cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT, "no context is current");
}

#[test]
fn releasing_a_context_invalidates_its_streams() {
    let cuda = Cuda::start();
    let context = cuda.make(|place| cuda.cuDevicePrimaryCtxRetain(place, 0));
    let stream = cuda.stream(0);
    cuda.ok(cuda.cuDevicePrimaryCtxRelease_v2(0));
    cuda.ok(cuda.cuStreamQuery(stream));
    cuda.ok(cuda.cuDevicePrimaryCtxRelease_v2(0));
    assert!(cuda.emulator.misuse()[0].contains("context 1 ended with 1 streams and events in it"));
    assert_eq!(cuda.emulator.leaks(), ["stream 1"]);
    cuda.refuses(
        cuda.cuStreamQuery(stream),
        CUDA_ERROR_CONTEXT_IS_DESTROYED,
        "the thread's context is destroyed",
    );
    cuda.refuses(
        cuda.cuStreamDestroy_v2(stream),
        CUDA_ERROR_CONTEXT_IS_DESTROYED,
        "stream 1 after its context",
    );
    cuda.refuses(cuda.cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT, "is not retained");
    cuda.refuses(
        cuda.cuCtxSetCurrent(context),
        CUDA_ERROR_INVALID_CONTEXT,
        "context 1 after it was destroyed",
    );
}

#[test]
fn settings_change_the_devices() {
    let cuda = Cuda::open();
    cuda.emulator.set(Setting::Devices, 0);
    cuda.fails(cuda.cuInit(0), CUDA_ERROR_NO_DEVICE);
    cuda.emulator.set(Setting::Devices, 2);
    cuda.emulator.set(Setting::Multiprocessors, 16);
    cuda.emulator.set(Setting::GreatestPriority, -1);
    cuda.ok(cuda.cuInit(0));
    assert_eq!(cuda.make(|place| cuda.cuDeviceGetAttribute(place, 16, 1)), 16);
    let mut value = 0;
    cuda.refuses(cuda.cuDeviceGetAttribute(&raw mut value, 16, 2), CUDA_ERROR_INVALID_DEVICE, "no device 2");
    let context = cuda.make(|place| cuda.cuDevicePrimaryCtxRetain(place, 1));
    cuda.ok(cuda.cuCtxSetCurrent(context));
    let (mut least, mut greatest) = (7, 7);
    cuda.ok(cuda.cuCtxGetStreamPriorityRange(&raw mut least, &raw mut greatest));
    assert_eq!((least, greatest), (0, -1));
    let stream = cuda.stream(-9);
    assert_eq!(cuda.make(|place| cuda.cuStreamGetPriority(stream, place)), -1, "the nearest priority");
}
