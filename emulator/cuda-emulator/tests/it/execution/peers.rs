//! Several devices: separate memory, concurrent kernels and copies between them.

use super::{Gpu, code, on_emulator, shape};
use cuda_emulator::Setting;
use cudarc::driver::{CudaContext, CudaFunction, CudaSlice, DevicePtr, PushKernelArg, result, sys::CUresult};

fn scaled(gpu: &Gpu, values: &mut CudaSlice<f32>, factor: f32) {
    scale(gpu, &gpu.kernel("scale"), values, factor);
}

fn scale(gpu: &Gpu, kernel: &CudaFunction, values: &mut CudaSlice<f32>, factor: f32) {
    let count = values.len() as u32;
    // SAFETY: the arguments match the parameters.
    unsafe { gpu.stream.launch_builder(kernel).arg(values).arg(&factor).arg(&count).launch(shape(1, 32, 0)) }
        .unwrap();
}

#[test]
fn copies_between_devices_run_in_stream_order() {
    on_emulator(|emulator| {
        emulator.set(Setting::Devices, 8);
        assert_eq!(CudaContext::device_count().unwrap(), 8);
        let gpus: Vec<_> = (0..8).map(Gpu::new).collect();
        let mut held = gpus[0].stream.clone_htod(&[1.0_f32, 2.0]).unwrap();
        for pair in gpus.windows(2) {
            scaled(&pair[0], &mut held, 2.0);
            let mut next = pair[1].stream.alloc_zeros::<f32>(2).unwrap();
            // The copy waits for the kernel by an event.
            pair[1].stream.wait(&pair[0].stream.record_event(None).unwrap()).unwrap();
            let (from, to) = (held.device_ptr(&pair[0].stream).0, next.device_ptr(&pair[1].stream).0);
            // SAFETY: both allocations have 8 bytes.
            unsafe {
                result::memcpy_peer_async(
                    pair[1].context.cu_ctx(),
                    to,
                    pair[0].context.cu_ctx(),
                    from,
                    8,
                    pair[1].stream.cu_stream(),
                )
            }
            .unwrap();
            pair[1].stream.synchronize().unwrap();
            held = std::mem::replace(&mut next, held);
            drop(next);
        }
        assert_eq!(gpus[7].stream.clone_dtoh(&held).unwrap(), [128.0, 256.0]);
        drop(held);
        drop(gpus);
    });
}

#[test]
fn devices_run_kernels_concurrently() {
    on_emulator(|emulator| {
        emulator.set(Setting::Devices, 2);
        emulator.set_kernel_time("scale", std::time::Duration::from_micros(50));
        let gpus = [Gpu::new(0), Gpu::new(1)];
        let kernels = gpus.each_ref().map(|gpu| gpu.kernel("scale"));
        let mut held = gpus.each_ref().map(|gpu| gpu.stream.clone_htod(&[1.0_f32]).unwrap());
        for ((gpu, kernel), held) in gpus.iter().zip(&kernels).zip(&mut held) {
            scale(gpu, kernel, held, 2.0);
        }
        for gpu in &gpus {
            gpu.stream.synchronize().unwrap();
        }
        let starts: Vec<_> = emulator.kernels().iter().map(|run| run.started).collect();
        assert_eq!((starts.len(), starts[0]), (2, starts[1]));
    });
}

#[test]
fn accessing_another_device_loses_only_the_accessing_one() {
    on_emulator(|emulator| {
        emulator.set(Setting::Devices, 2);
        let gpus = [Gpu::new(0), Gpu::new(1)];
        let mut held = gpus[0].stream.clone_htod(&[1.0_f32]).unwrap();
        scaled(&gpus[1], &mut held, 2.0);
        assert_eq!(code(gpus[1].stream.synchronize()), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
        assert!(emulator.faults()[0].starts_with("device 1: illegal address"), "{:?}", emulator.faults());
        scaled(&gpus[0], &mut held, 3.0);
        assert_eq!(gpus[0].stream.clone_dtoh(&held).unwrap(), [3.0]);
        drop(held);
        drop(gpus);
        emulator.reset();
    });
}
