//! Launches in streams: arguments, order and durations.

use super::{Gpu, on_emulator, shape};
use cuda_emulator::Setting;
use cudarc::driver::{DevicePtr, PushKernelArg, result, sys};
use std::{ffi::c_void, time::Duration};

#[test]
fn kernels_modify_their_arguments() {
    on_emulator(|emulator| {
        let gpu = Gpu::new(0);
        let scale = gpu.kernel("scale");
        let values: Vec<f32> = (0..1000_u16).map(f32::from).collect();
        let mut held = gpu.stream.clone_htod(&values).unwrap();
        let launch = |held: &mut _| {
            // SAFETY: the arguments match the parameters.
            unsafe {
                let (factor, count) = (0.5_f32, 999_u32);
                let mut builder = gpu.stream.launch_builder(&scale);
                builder.arg(held).arg(&factor).arg(&count).launch(shape(8, 128, 0)).unwrap();
            }
        };
        launch(&mut held);
        launch(&mut held);
        let found = gpu.stream.clone_dtoh(&held).unwrap();
        let expected: Vec<_> =
            values.iter().map(|value| if *value < 999.0 { value / 4.0 } else { *value }).collect();
        assert_eq!(found, expected);
        assert_eq!(emulator.kernels().len(), 2);
    });
}

#[test]
fn deferred_work_keeps_stream_order() {
    on_emulator(|emulator| {
        let gpu = Gpu::new(0);
        let step = gpu.kernel("step");
        let mut word = gpu.stream.alloc_zeros::<u64>(1).unwrap();
        for number in 1..=3_u64 {
            // SAFETY: the arguments match the parameters.
            unsafe { gpu.stream.launch_builder(&step).arg(&mut word).arg(&number).launch(shape(1, 1, 0)) }
                .unwrap();
        }
        assert!(emulator.kernels().is_empty(), "nothing has been waited for");
        let copy = gpu.stream.clone_dtod(&word).unwrap();
        gpu.stream.memset_zeros(&mut word).unwrap();
        assert_eq!(gpu.stream.clone_dtoh(&copy).unwrap(), [(31 + 2) * 31 + 3]);
        assert_eq!(gpu.stream.clone_dtoh(&word).unwrap(), [0]);
    });
}

#[test]
fn events_and_the_default_stream_order_streams() {
    on_emulator(|_| {
        let gpu = Gpu::new(0);
        let step = gpu.kernel("step");
        let word = gpu.stream.alloc_zeros::<u64>(1).unwrap();
        let address = word.device_ptr(&gpu.stream).0;
        let launch = |stream: sys::CUstream, number: u64| {
            let (mut address, mut number) = (address, number);
            let mut arguments: [*mut c_void; 2] = [(&raw mut address).cast(), (&raw mut number).cast()];
            // SAFETY: the arguments match the parameters, and the memory lives until the end of the
            // test.
            unsafe {
                result::launch_kernel(step.cu_function(), (1, 1, 1), (1, 1, 1), 0, stream, &mut arguments)
            }
            .unwrap();
        };
        // The streams of cudarc are non-blocking. This one synchronises with the default stream.
        let blocking = result::stream::create(result::stream::StreamKind::Default).unwrap();
        launch(gpu.stream.cu_stream(), 1);
        let event = gpu.stream.record_event(None).unwrap();
        // SAFETY: both are alive.
        unsafe {
            result::stream::wait_event(
                blocking,
                event.cu_event(),
                sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT,
            )
        }
        .unwrap();
        launch(blocking, 2);
        launch(std::ptr::null_mut(), 3);
        launch(blocking, 4);
        // A copy in the default stream waits for the blocking stream.
        let mut found = [0_u64];
        // SAFETY: the memory is allocated.
        unsafe { result::memcpy_dtoh_sync(&mut found, address) }.unwrap();
        assert_eq!(found, [((31 + 2) * 31 + 3) * 31 + 4]);
        // SAFETY: it is destroyed once.
        unsafe { result::stream::destroy(blocking) }.unwrap();
    });
}

#[test]
fn packed_arguments_are_read_at_their_offsets() {
    on_emulator(|_| {
        let gpu = Gpu::new(0);
        let scale = gpu.kernel("scale");
        let held = gpu.stream.clone_htod(&[3.0_f32]).unwrap();
        // SAFETY: the pairs are those of cuda.h, and live as long as the call.
        unsafe {
            let (mut offset, mut bytes) = (0, 0);
            sys::cuFuncGetParamInfo(scale.cu_function(), 2, &raw mut offset, &raw mut bytes)
                .result()
                .unwrap();
            assert_eq!((offset, bytes), (12, 4));
            let mut buffer = [0_u8; 16];
            buffer[..8].copy_from_slice(&held.device_ptr(&gpu.stream).0.to_ne_bytes());
            buffer[8..12].copy_from_slice(&2.5_f32.to_ne_bytes());
            buffer[12..].copy_from_slice(&1_u32.to_ne_bytes());
            let mut size = buffer.len();
            let mut extra: [*mut c_void; 5] = [
                std::ptr::without_provenance_mut(1),
                buffer.as_mut_ptr().cast(),
                std::ptr::without_provenance_mut(2),
                (&raw mut size).cast(),
                std::ptr::null_mut(),
            ];
            let stream = gpu.stream.cu_stream();
            let (none, function) = (std::ptr::null_mut(), scale.cu_function());
            sys::cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, none, extra.as_mut_ptr())
                .result()
                .unwrap();
        }
        assert_eq!(gpu.stream.clone_dtoh(&held).unwrap(), [7.5]);
    });
}

#[test]
fn dynamic_shared_memory_beyond_48_kib_needs_the_attribute() {
    on_emulator(|emulator| {
        let gpu = Gpu::new(0);
        let reverse = gpu.kernel("reverse");
        let mut values = gpu.stream.alloc_zeros::<u32>(96).unwrap();
        let mut launch = |shared_bytes| {
            // SAFETY: the arguments match the parameters.
            unsafe { gpu.stream.launch_builder(&reverse).arg(&mut values).launch(shape(1, 96, shared_bytes)) }
                .map(drop)
        };
        let refused = launch(50_000).unwrap_err();
        assert_eq!(refused.0, sys::CUresult::CUDA_ERROR_INVALID_VALUE);
        let limit = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        assert_eq!(reverse.get_attribute(limit).unwrap(), 48 << 10);
        reverse.set_attribute(limit, 50_000).unwrap();
        launch(50_000).unwrap();
        let expected: Vec<u32> = (0..96).rev().collect();
        assert_eq!(gpu.stream.clone_dtoh(&values).unwrap(), expected);
        assert!(
            emulator.misuse()[0].contains("50000 bytes of dynamic shared memory"),
            "{:?}",
            emulator.misuse()
        );
        // The refused launch is in the report, so reset it.
        drop((values, reverse, gpu));
        emulator.reset();
    });
}

#[test]
fn durations_come_from_the_table_then_the_name_then_the_default() {
    on_emulator(|emulator| {
        emulator.set(Setting::KernelNs, 70);
        emulator.set_kernel_time("step", Duration::from_nanos(900));
        let gpu = Gpu::new(0);
        let (step, offset) = (gpu.kernel("step"), gpu.kernel("read_offset"));
        let mut word = gpu.stream.alloc_zeros::<u64>(1).unwrap();
        let number = 1_u64;
        // SAFETY: the arguments match the parameters.
        unsafe {
            gpu.stream.launch_builder(&step).arg(&mut word).arg(&number).launch(shape(1, 1, 0)).unwrap();
            gpu.stream.launch_builder(&offset).arg(&mut word).launch(shape(1, 1, 0)).unwrap();
        }
        gpu.stream.synchronize().unwrap();
        let ends: Vec<_> = emulator.kernels().iter().map(|run| run.ended.as_nanos()).collect();
        assert_eq!(ends, [900, 970]);
    });
}
