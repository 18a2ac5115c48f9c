//! Names of errors and kernels.

use super::cuda::Cuda;
use cuda_emulator::Setting;
use cudarc::driver::sys::CUresult::{
    self, CUDA_ERROR_INVALID_PTX, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NO_BINARY_FOR_GPU,
    CUDA_ERROR_NOT_FOUND, CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_STREAM_CAPTURE_ISOLATION, CUDA_SUCCESS,
};
use std::{ffi::CString, ptr};

#[test]
fn error_names_match_the_header() {
    let cuda = Cuda::open();
    for code in 0..=1000 {
        let mut name = ptr::null();
        if cuda.cuGetErrorName(code, &raw mut name) == CUDA_SUCCESS as u32 {
            let name = cuda.text(|place| cuda.cuGetErrorName(code, place));
            assert_eq!(header_code(&name), Some(code), "{name}");
        } else {
            assert!(name.is_null());
        }
    }
    let known = [CUDA_ERROR_STREAM_CAPTURE_ISOLATION, CUDA_ERROR_NOT_SUPPORTED];
    for code in known {
        assert_eq!(cuda.text(|place| cuda.cuGetErrorName(code as u32, place)), format!("{code:?}"));
    }
    assert_eq!(cuda.emulator.calls(), 0, "these calls do not count");
}

/// Returns the code that cudarc's bindings, generated from the header, have for a name.
fn header_code(name: &str) -> Option<u32> {
    use CUresult as R;
    let codes = [
        R::CUDA_SUCCESS,
        R::CUDA_ERROR_INVALID_VALUE,
        R::CUDA_ERROR_OUT_OF_MEMORY,
        R::CUDA_ERROR_NOT_INITIALIZED,
        R::CUDA_ERROR_NO_DEVICE,
        R::CUDA_ERROR_INVALID_DEVICE,
        R::CUDA_ERROR_INVALID_CONTEXT,
        R::CUDA_ERROR_NO_BINARY_FOR_GPU,
        R::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
        R::CUDA_ERROR_INVALID_PTX,
        R::CUDA_ERROR_FILE_NOT_FOUND,
        R::CUDA_ERROR_INVALID_HANDLE,
        R::CUDA_ERROR_ILLEGAL_STATE,
        R::CUDA_ERROR_NOT_FOUND,
        R::CUDA_ERROR_NOT_READY,
        R::CUDA_ERROR_ILLEGAL_ADDRESS,
        R::CUDA_ERROR_LAUNCH_TIMEOUT,
        R::CUDA_ERROR_CONTEXT_IS_DESTROYED,
        R::CUDA_ERROR_MISALIGNED_ADDRESS,
        R::CUDA_ERROR_LAUNCH_FAILED,
        R::CUDA_ERROR_NOT_SUPPORTED,
        R::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        R::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
        R::CUDA_ERROR_STREAM_CAPTURE_MERGE,
        R::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
        R::CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
        R::CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
        R::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
        R::CUDA_ERROR_CAPTURED_EVENT,
        R::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
        R::CUDA_ERROR_INVALID_RESOURCE_TYPE,
        R::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
        R::CUDA_ERROR_UNKNOWN,
    ];
    codes.into_iter().find(|code| format!("{code:?}") == name).map(|code| code as u32)
}

#[test]
fn functions_are_found_by_name() {
    let cuda = Cuda::start();
    let (module, [kernel]) = cuda.kernels(["spin_1us"]);
    assert_eq!(cuda.kernel(module, "spin_1us"), kernel, "the same function each time");
    assert_eq!(cuda.text(|place| cuda.cuFuncGetName(place, kernel)), "spin_1us");
    let mut place = 0;
    cuda.fails(cuda.cuModuleGetFunction(&raw mut place, module, c"absent".as_ptr()), CUDA_ERROR_NOT_FOUND);
    let text = cuda.cuModuleLoadData(&raw mut place, c".version 8.0".as_ptr());
    cuda.refuses(text, CUDA_ERROR_INVALID_PTX, "text without an .entry");
    let text = cuda.cuModuleLoadData(&raw mut place, c"\n.entry nothing( {}".as_ptr());
    cuda.refuses(text, CUDA_ERROR_INVALID_PTX, "line 2: ");
    let wide = cuda.cuLaunchKernel(kernel, 1, 1, 1, 2048, 1, 1, 0, 0, ptr::null_mut(), ptr::null_mut());
    cuda.refuses(wide, CUDA_ERROR_INVALID_VALUE, "cannot be launched");
    let binary = CString::new(b"\x7fELF and more".to_vec()).unwrap();
    let refused = cuda.cuModuleLoadData(&raw mut place, binary.as_ptr());
    cuda.refuses(refused, CUDA_ERROR_NO_BINARY_FOR_GPU, "only PTX text is executed");
    cuda.emulator.set(Setting::BinaryImages, 1);
    let module = cuda.make(|place| cuda.cuModuleLoadData(place, binary.as_ptr()));
    cuda.ok(cuda.launch(cuda.kernel(module, "anything"), 0));
    cuda.ok(cuda.cuCtxSynchronize());
}

#[test]
fn missing_arguments_are_refused() {
    let cuda = Cuda::start();
    let ptx = c".visible .entry spin_1us(.param .u64 place) { ret; }";
    let module = cuda.make(|place| cuda.cuModuleLoadData(place, ptx.as_ptr()));
    let kernel = cuda.kernel(module, "spin_1us");
    cuda.refuses(
        cuda.launch(kernel, 0),
        CUDA_ERROR_INVALID_VALUE,
        "kernelParams is null, and should hold 1 values",
    );
}

#[test]
fn kernel_names_give_durations() {
    let cuda = Cuda::start();
    let names = ["spin_250us", "spin_3ms_of_background", "copy_1us_then_40ns", "gemm_128x128", "us"];
    let (_, kernels) = cuda.kernels(names);
    let stream = cuda.stream(0);
    for kernel in kernels {
        cuda.ok(cuda.launch(kernel, stream));
    }
    cuda.ok(cuda.cuCtxSynchronize());
    let took = cuda
        .emulator
        .kernels()
        .into_iter()
        .map(|kernel| kernel.ended.saturating_sub(kernel.started).as_nanos());
    // Kernels without a time in their names take the default duration.
    assert_eq!(took.collect::<Vec<_>>(), [250_000, 3_000_000, 40, 10_000, 10_000]);
}
