//! Kernels that fail: error codes, reports and optional checks.

use super::{Gpu, code, on_emulator, shape};
use cuda_emulator::{Emulator, Setting};
use cudarc::driver::{CudaFunction, CudaSlice, DevicePtr, LaunchConfig, PushKernelArg, sys::CUresult};

/// Launches a kernel on the given memory. Returns the result of the synchronisation and the line of
/// the report, which is empty without a failure.
fn run_kernel(
    emulator: &Emulator,
    kernel: &str,
    memory: impl FnOnce(&Gpu) -> u64,
    shape: LaunchConfig,
) -> (CUresult, String) {
    let gpu = Gpu::new(0);
    let function: CudaFunction = gpu.kernel(kernel);
    let argument = memory(&gpu);
    // SAFETY: invalid accesses are caught by the emulator.
    let launched = unsafe { gpu.stream.launch_builder(&function).arg(&argument).launch(shape) };
    launched.unwrap();
    let ended = gpu.stream.synchronize();
    let result = ended.err().map_or(CUresult::CUDA_SUCCESS, |error| error.0);
    if result != CUresult::CUDA_SUCCESS {
        assert_eq!(code(gpu.context.synchronize()), result, "the error is sticky");
        assert_eq!(code(gpu.stream.alloc_zeros::<u8>(1).map(drop)), result, "the error is sticky");
    }
    let faults = emulator.faults();
    assert_eq!(faults.len(), usize::from(result != CUresult::CUDA_SUCCESS), "{faults:?}");
    // cudarc ignores errors while dropping. They are those of the lost context.
    drop((function, gpu));
    let line = faults.into_iter().next().unwrap_or_default();
    assert!(emulator.misuse().is_empty(), "{:?}", emulator.misuse());
    emulator.reset();
    (result, line)
}

/// Leaks a slice, so that its memory stays until the context ends. Returns its address.
fn leak(memory: CudaSlice<u32>, gpu: &Gpu) -> u64 {
    let address = memory.device_ptr(&gpu.stream).0;
    _ = memory.leak();
    address
}

#[test]
fn out_of_bounds_accesses_lose_the_context() {
    on_emulator(|emulator| {
        let short = |gpu: &Gpu| leak(gpu.stream.alloc_zeros(95).unwrap(), gpu);
        let (result, line) = run_kernel(emulator, "reverse", short, shape(1, 96, 400));
        assert_eq!(result, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
        assert!(line.starts_with("device 0: illegal address: write of 4 bytes at 0xd00000"), "{line}");
        let place = "past the end of the 380 bytes at";
        assert!(
            line.contains(place)
                && line.contains("in kernel reverse, block [0, 0, 0], thread [95, 0, 0], PTX line "),
            "{line}"
        );
    });
}

#[test]
fn freed_and_misaligned_accesses_have_different_codes() {
    on_emulator(|emulator| {
        let freed = |gpu: &Gpu| gpu.stream.alloc_zeros::<u32>(96).unwrap().device_ptr(&gpu.stream).0;
        let (result, line) = run_kernel(emulator, "reverse", freed, shape(1, 96, 400));
        assert_eq!(result, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
        assert!(line.contains("were freed"), "{line}");
        let odd = |gpu: &Gpu| leak(gpu.stream.alloc_zeros(100).unwrap(), gpu) + 2;
        let (result, line) = run_kernel(emulator, "reverse", odd, shape(1, 96, 400));
        assert_eq!(result, CUresult::CUDA_ERROR_MISALIGNED_ADDRESS);
        assert!(line.contains("misaligned address: 4 bytes at"), "{line}");
    });
}

#[test]
fn hanging_and_deadlocked_kernels_are_stopped() {
    on_emulator(|emulator| {
        emulator.set(Setting::WatchdogInstructions, 10_000);
        let gpu = Gpu::new(0);
        let spin = gpu.kernel("spin");
        // SAFETY: it has no arguments.
        unsafe { gpu.stream.launch_builder(&spin).launch(shape(1, 32, 0)) }.unwrap();
        assert_eq!(code(gpu.stream.synchronize()), CUresult::CUDA_ERROR_LAUNCH_TIMEOUT);
        assert!(emulator.faults()[0].contains("exceeds 10000 warp instructions"), "{:?}", emulator.faults());
        drop((spin, gpu));
        emulator.reset();

        let gpu = Gpu::new(0);
        let apart = gpu.kernel("apart");
        // SAFETY: it has no arguments.
        unsafe { gpu.stream.launch_builder(&apart).launch(shape(1, 64, 0)) }.unwrap();
        assert_eq!(code(gpu.stream.synchronize()), CUresult::CUDA_ERROR_LAUNCH_TIMEOUT);
        assert!(emulator.faults()[0].contains("deadlock: waits for a barrier"), "{:?}", emulator.faults());
        drop((apart, gpu));
        emulator.reset();
    });
}

#[test]
fn races_and_uninitialised_reads_are_found_on_demand() {
    on_emulator(|emulator| {
        let memory = |gpu: &Gpu| leak(gpu.stream.alloc_zeros(96).unwrap(), gpu);
        emulator.set(Setting::RaceCheck, 1);
        emulator.set(Setting::OrderSeed, 3);
        let (result, line) = run_kernel(emulator, "reverse_race", memory, shape(1, 96, 400));
        assert_eq!(result, CUresult::CUDA_ERROR_LAUNCH_FAILED);
        assert!(line.contains("race: "), "{line}");
        emulator.set(Setting::RaceCheck, 1);
        assert_eq!(run_kernel(emulator, "reverse", memory, shape(1, 96, 400)).0, CUresult::CUDA_SUCCESS);

        emulator.set(Setting::UninitialisedCheck, 1);
        // SAFETY: reading uninitialised memory is caught by the emulator.
        let unwritten = |gpu: &Gpu| leak(unsafe { gpu.stream.alloc(96) }.unwrap(), gpu);
        let (result, line) = run_kernel(emulator, "increment", unwritten, shape(1, 1, 0));
        assert_eq!(result, CUresult::CUDA_ERROR_LAUNCH_FAILED);
        assert!(line.contains("uninitialised: 4 bytes at"), "{line}");
        assert_eq!(run_kernel(emulator, "increment", unwritten, shape(1, 1, 0)).0, CUresult::CUDA_SUCCESS);
    });
}
