//! Memory: contents, bounds, frees, and waits for values.

use super::cuda::Cuda;
use cuda_emulator::Setting;
use cudarc::driver::sys::CUresult::{
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_LAUNCH_TIMEOUT, CUDA_ERROR_NOT_READY, CUDA_ERROR_NOT_SUPPORTED,
    CUDA_ERROR_OUT_OF_MEMORY,
};
use std::time::Duration;

#[test]
fn copies_and_fills_run_in_stream_order() {
    let cuda = Cuda::start();
    let stream = cuda.stream(0);
    let bytes = 10_000;
    let address = cuda.make(|place| cuda.cuMemAlloc_v2(place, bytes));
    let mut sent: Vec<u8> = (0..bytes).map(|index| index as u8).collect();
    cuda.ok(cuda.cuMemcpyHtoDAsync_v2(address, sent.as_ptr(), bytes, stream));
    sent[0] = 99; // The bytes were taken at the call.
    cuda.ok(cuda.cuMemsetD32Async(address + 4096, 0x0403_0201, 2, stream));
    let mut back = vec![0; bytes];
    cuda.ok(cuda.cuMemcpyDtoHAsync_v2(back.as_mut_ptr(), address, bytes, stream));
    sent[0] = 0;
    sent[4096..4104].copy_from_slice(&[1, 2, 3, 4, 1, 2, 3, 4]);
    assert_eq!(back, sent);
    cuda.ok(cuda.cuMemFree_v2(address));
    cuda.ok(cuda.cuStreamDestroy_v2(stream));
    cuda.end();
}

#[test]
fn out_of_bounds_and_freed_memory_is_refused() {
    let cuda = Cuda::start();
    let stream = cuda.stream(0);
    let address = cuda.make(|place| cuda.cuMemAlloc_v2(place, 8));
    let fill = |address, words| cuda.cuMemsetD32Async(address, 1, words, stream);
    cuda.refuses(fill(address, 3), CUDA_ERROR_INVALID_VALUE, "12 bytes at");
    cuda.refuses(fill(address + 8, 1), CUDA_ERROR_INVALID_VALUE, "is in no allocation");
    cuda.refuses(fill(address + 1, 1), CUDA_ERROR_INVALID_VALUE, "is not aligned");
    cuda.refuses(cuda.cuMemFree_v2(address + 4), CUDA_ERROR_INVALID_VALUE, "is not an allocation");
    cuda.ok(cuda.cuMemFree_v2(address));
    cuda.refuses(fill(address, 1), CUDA_ERROR_INVALID_VALUE, "after it was freed");
    cuda.refuses(cuda.cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE, "is freed twice");
    let pooled = cuda.make(|place| cuda.cuMemAllocAsync(place, 8, stream));
    cuda.ok(cuda.cuMemFreeAsync(pooled, stream));
    cuda.refuses(cuda.cuMemFreeAsync(pooled, stream), CUDA_ERROR_INVALID_VALUE, "is freed twice");
    let mut place = 0;
    cuda.refuses(cuda.cuMemAlloc_v2(&raw mut place, 0), CUDA_ERROR_INVALID_VALUE, "0 bytes");
    cuda.emulator.set(Setting::MemoryBytes, 100);
    let first = cuda.make(|place| cuda.cuMemAlloc_v2(place, 60));
    cuda.fails(cuda.cuMemAlloc_v2(&raw mut place, 60), CUDA_ERROR_OUT_OF_MEMORY);
    cuda.ok(cuda.cuMemFree_v2(first));
    cuda.make(|place| cuda.cuMemAlloc_v2(place, 60));
}

#[test]
fn page_locked_memory_is_shared_with_the_device() {
    let cuda = Cuda::start();
    let stream = cuda.stream(0);
    let host = cuda.make(|place| cuda.cuMemHostAlloc(place, 8, 2));
    let device = cuda.make(|place| cuda.cuMemHostGetDevicePointer_v2(place, host, 0));
    cuda.ok(cuda.cuStreamWriteValue32_v2(stream, device + 4, 5, 0));
    cuda.ok(cuda.cuMemcpyDtoHAsync_v2(host as *mut u8, device + 4, 4, stream));
    cuda.ok(cuda.cuStreamWaitValue32_v2(stream, device, 5, 1));
    cuda.ok(cuda.cuStreamSynchronize(stream));
    cuda.ok(cuda.cuMemFreeHost(host));
    cuda.refuses(cuda.cuMemFreeHost(host), CUDA_ERROR_INVALID_VALUE, "freed already");
    let mut place = 0;
    let gone = cuda.cuMemHostGetDevicePointer_v2(&raw mut place, host, 0);
    cuda.refuses(gone, CUDA_ERROR_INVALID_VALUE, "is not page-locked");
}

#[test]
fn wait_value_waits_for_a_write() {
    let cuda = Cuda::start();
    let (module, [kernel]) = cuda.kernels(["spin_50us"]);
    let (gate, other) = (cuda.stream(0), cuda.stream(0));
    let word = cuda.make(|place| cuda.cuMemAlloc_v2(place, 4));
    // Flags 0: at least 3; 2: any of the bits of 6; 1: exactly 3; 3: a bit that is 0 in both.
    for (flags, value) in [(0, 3), (2, 6), (1, 3), (3, 0xffff_fffe)] {
        let before = cuda.emulator.now();
        cuda.ok(cuda.cuStreamWriteValue32_v2(other, word, u32::from(flags == 3), 0));
        cuda.ok(cuda.cuStreamWaitValue32_v2(gate, word, value, flags));
        cuda.fails(cuda.cuStreamQuery(gate), CUDA_ERROR_NOT_READY);
        cuda.ok(cuda.launch(kernel, other));
        cuda.ok(cuda.cuStreamWriteValue32_v2(other, word, if flags == 3 { 0 } else { 3 }, 0));
        cuda.ok(cuda.cuStreamSynchronize(gate));
        assert_eq!(cuda.emulator.now(), before + Duration::from_micros(51), "a query and a kernel");
    }
    cuda.ok(cuda.cuMemFree_v2(word));
    for stream in [gate, other] {
        cuda.ok(cuda.cuStreamDestroy_v2(stream));
    }
    cuda.ok(cuda.cuModuleUnload(module));
    cuda.end();
}

#[test]
fn free_waits_for_the_device() {
    let cuda = Cuda::start();
    let stream = cuda.stream(0);
    let word = cuda.make(|place| cuda.cuMemAlloc_v2(place, 4));
    cuda.ok(cuda.cuStreamWaitValue32_v2(stream, word, 1, 1));
    cuda.refuses(cuda.cuMemFree_v2(word), CUDA_ERROR_LAUNCH_TIMEOUT, "never ends");
    cuda.ok(cuda.cuStreamQuery(stream));
    assert!(cuda.emulator.misuse()[1].contains("waits for a value at"), "{:?}", cuda.emulator.misuse());
}

#[test]
fn memory_operations_and_pools_can_be_disabled() {
    let cuda = Cuda::start();
    let stream = cuda.stream(0);
    cuda.emulator.set(Setting::StreamMemoryOperations, 0);
    cuda.emulator.set(Setting::MemoryPools, 0);
    assert_eq!(cuda.make(|place| cuda.cuDeviceGetAttribute(place, 92, 0)), 0);
    assert_eq!(cuda.make(|place| cuda.cuDeviceGetAttribute(place, 115, 0)), 0);
    cuda.fails(cuda.cuStreamWaitValue32_v2(stream, 0, 0, 0), CUDA_ERROR_NOT_SUPPORTED);
    let mut place = 0;
    cuda.fails(cuda.cuMemAllocAsync(&raw mut place, 8, stream), CUDA_ERROR_NOT_SUPPORTED);
    cuda.ok(cuda.cuStreamDestroy_v2(stream));
    cuda.end();
}
