//! Kernels in captured graphs.

use super::{Gpu, on_emulator, shape};
use cudarc::driver::{DevicePtr, PushKernelArg, result, sys};
use std::{ffi::c_void, mem::MaybeUninit, ptr};

#[test]
fn graph_launches_use_the_arguments_of_their_nodes() {
    on_emulator(|_| {
        let gpu = Gpu::new(0);
        let (stream, step) = (&gpu.stream, gpu.kernel("step"));
        let mut word = stream.alloc_zeros::<u64>(1).unwrap();
        let address = word.device_ptr(stream).0;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the calls are in the order that CUDA requires, and their arguments live long
        // enough.
        unsafe {
            result::stream::begin_capture(stream.cu_stream(), mode).unwrap();
            for number in [1_u64, 2] {
                stream.launch_builder(&step).arg(&mut word).arg(&number).launch(shape(1, 1, 0)).unwrap();
            }
            let graph = result::stream::end_capture(stream.cu_stream()).unwrap();
            let exec = result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0)).unwrap();
            let launched = |expected: u64| {
                result::memset_d8_sync(address, 0, 8).unwrap();
                result::graph::launch(exec, stream.cu_stream()).unwrap();
                let mut found = [0_u64];
                result::memcpy_dtoh_async(&mut found, address, stream.cu_stream()).unwrap();
                result::stream::synchronize(stream.cu_stream()).unwrap();
                assert_eq!(found, [expected]);
            };
            launched(31 + 2);
            launched(31 + 2);

            let mut nodes = [ptr::null_mut(); 2];
            let mut count = nodes.len();
            sys::cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count).result().unwrap();
            let mut parameters = MaybeUninit::uninit();
            sys::cuGraphKernelNodeGetParams_v2(nodes[1], parameters.as_mut_ptr()).result().unwrap();
            let mut parameters = parameters.assume_init();
            let (mut place, mut number) = (address, 9_u64);
            let mut arguments: [*mut c_void; 2] = [(&raw mut place).cast(), (&raw mut number).cast()];
            parameters.kernelParams = arguments.as_mut_ptr();
            sys::cuGraphExecKernelNodeSetParams_v2(exec, nodes[1], &raw const parameters).result().unwrap();
            launched(31 + 9);
            sys::cuGraphKernelNodeSetParams_v2(nodes[0], &raw const parameters).result().unwrap();
            launched(31 + 9);
            let again = result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0)).unwrap();
            result::memset_d8_sync(address, 0, 8).unwrap();
            result::graph::launch(again, stream.cu_stream()).unwrap();
            assert_eq!(stream.clone_dtoh(&word).unwrap(), [9 * 31 + 2]);

            for exec in [exec, again] {
                result::graph::exec_destroy(exec).unwrap();
            }
            result::graph::destroy(graph).unwrap();
        }
    });
}

#[test]
fn captured_copies_and_fills_work_on_kernel_memory() {
    on_emulator(|_| {
        let gpu = Gpu::new(0);
        let (stream, scale) = (&gpu.stream, gpu.kernel("scale"));
        let mut values = stream.clone_htod(&[1.0_f32, 2.0]).unwrap();
        let mut copy = stream.alloc_zeros::<f32>(2).unwrap();
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        stream.begin_capture(mode).unwrap();
        let (factor, count) = (10.0_f32, 2_u32);
        // SAFETY: the arguments match the parameters.
        unsafe {
            stream.launch_builder(&scale).arg(&mut values).arg(&factor).arg(&count).launch(shape(1, 32, 0))
        }
        .unwrap();
        stream.memcpy_dtod(&values, &mut copy).unwrap();
        stream.memset_zeros(&mut values).unwrap();
        let graph = stream
            .end_capture(sys::CUgraphInstantiate_flags_enum::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH)
            .unwrap()
            .unwrap();
        graph.launch().unwrap();
        assert_eq!(stream.clone_dtoh(&copy).unwrap(), [10.0, 20.0]);
        assert_eq!(stream.clone_dtoh(&values).unwrap(), [0.0, 0.0]);
    });
}
