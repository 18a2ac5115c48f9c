//! Injected errors, removed functions, and the log of calls.

use super::cuda::Cuda;
use cuda_emulator::Setting;
use cudarc::driver::sys::CUresult::{
    CUDA_ERROR_NOT_FOUND, CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN,
};
use std::{ffi::CString, ptr};

#[test]
fn calls_with_injected_errors_have_no_effect() {
    let cuda = Cuda::start();
    assert_eq!(cuda.emulator.calls(), 3);
    cuda.emulator.fail_call(4, CUDA_ERROR_OUT_OF_MEMORY as u32);
    let mut stream = 0;
    cuda.fails(cuda.cuStreamCreateWithPriority(&raw mut stream, 1, 0), CUDA_ERROR_OUT_OF_MEMORY);
    assert_eq!(stream, 0);
    stream = cuda.stream(0);
    cuda.ok(cuda.cuStreamDestroy_v2(stream));
    let log = cuda.emulator.log();
    assert_eq!(log[0], "1 cuInit: CUDA_SUCCESS");
    assert_eq!(log[3], "4 cuStreamCreateWithPriority: CUDA_ERROR_OUT_OF_MEMORY (injected)");
    assert_eq!(log.len(), 6);
    cuda.end();
}

#[test]
fn destroying_calls_with_injected_errors_still_destroy() {
    let cuda = Cuda::start();
    let (module, [kernel]) = cuda.kernels(["spin_1us"]);
    let (stream, event) = (cuda.stream(0), cuda.event());
    let graph = cuda.captured(&[kernel]);
    let exec = cuda.instantiated(graph);
    let address = cuda.make(|place| cuda.cuMemAlloc_v2(place, 4));
    let host = cuda.make(|place| cuda.cuMemHostAlloc(place, 4, 0));
    let destroy: [&dyn Fn() -> u32; 8] = [
        &|| cuda.cuMemFree_v2(address),
        &|| cuda.cuMemFreeHost(host),
        &|| cuda.cuGraphExecDestroy(exec),
        &|| cuda.cuGraphDestroy(graph),
        &|| cuda.cuEventDestroy_v2(event),
        &|| cuda.cuStreamDestroy_v2(stream),
        &|| cuda.cuModuleUnload(module),
        &|| cuda.cuDevicePrimaryCtxRelease_v2(0),
    ];
    for (left, destroy) in (0..destroy.len()).rev().zip(destroy) {
        cuda.emulator.fail_call(cuda.emulator.calls() + 1, CUDA_ERROR_UNKNOWN as u32);
        cuda.fails(destroy(), CUDA_ERROR_UNKNOWN);
        assert_eq!(cuda.emulator.leaks().len(), left, "{:?}", cuda.emulator.leaks());
    }
    assert!(cuda.emulator.misuse().is_empty());
}

#[test]
fn injected_error_still_ends_the_capture() {
    let cuda = Cuda::start();
    let stream = cuda.stream(0);
    cuda.ok(cuda.cuStreamBeginCapture_v2(stream, 1));
    cuda.emulator.fail_call(cuda.emulator.calls() + 1, CUDA_ERROR_UNKNOWN as u32);
    let mut graph = 0;
    cuda.fails(cuda.cuStreamEndCapture(stream, &raw mut graph), CUDA_ERROR_UNKNOWN);
    assert_eq!(graph, 0);
    cuda.ok(cuda.cuStreamSynchronize(stream));
    cuda.ok(cuda.cuStreamDestroy_v2(stream));
    cuda.end();
}

#[test]
fn functions_can_be_removed() {
    let cuda = Cuda::start();
    let address = |name: &str, version| {
        let name = CString::new(name).unwrap();
        let (mut function, mut status) = (1, 9);
        let code = cuda.cuGetProcAddress_v2(name.as_ptr(), &raw mut function, version, 0, &raw mut status);
        (code, function != 0, status)
    };
    let lacking = CUDA_ERROR_NOT_FOUND as u32;
    assert_eq!(address("cuStreamQuery", 13000), (0, true, 0));
    assert_eq!(address("cuMemAlloc", 13000), (0, true, 0), "its version is left to the driver");
    assert_eq!(address("cuNothing", 13000), (lacking, false, 1));
    assert_eq!(address("cuGreenCtxCreate", 12000), (lacking, false, 2), "too new for what the caller knows");
    cuda.emulator.remove_function("cuStreamQuery");
    assert_eq!(address("cuStreamQuery", 13000), (lacking, false, 1));
    cuda.fails(cuda.cuStreamQuery(0), CUDA_ERROR_NOT_SUPPORTED);

    cuda.emulator.set(Setting::DriverVersion, 12000);
    assert_eq!(cuda.make(|place| cuda.cuDriverGetVersion(place)), 12000);
    assert_eq!(address("cuGreenCtxCreate", 13000), (lacking, false, 1));
    let mut place = 0;
    cuda.fails(cuda.cuGreenCtxCreate(&raw mut place, 0, 0, 1), CUDA_ERROR_NOT_SUPPORTED);
    cuda.end();
}

#[test]
fn new_emulator_is_reset() {
    let cuda = Cuda::start();
    cuda.stream(0);
    cuda.emulator.set(Setting::Devices, 3);
    drop(cuda);
    let cuda = Cuda::start();
    assert_eq!((cuda.emulator.calls(), cuda.make(|place| cuda.cuDeviceGetCount(place))), (3, 1));
    cuda.end();
}

#[test]
fn unsupported_functions_are_reported_by_name() {
    let cuda = Cuda::start();
    let mut place = 0;
    let code = cuda.cuTexObjectCreate(&raw mut place, ptr::null(), ptr::null(), ptr::null());
    cuda.refuses(code, CUDA_ERROR_NOT_SUPPORTED, "cuTexObjectCreate: this function is not emulated");
}
