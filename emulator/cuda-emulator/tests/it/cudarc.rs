//! Unmodified cudarc on the emulated driver. The loader finds the library by its soname, because it
//! is already open.
#![allow(unsafe_code)]

use cuda_emulator::Emulator;
use cudarc::driver::{CudaContext, result, sys};
use std::{mem::MaybeUninit, ptr, time::Duration};

const PTX: &str = ".visible .entry spin_250us(\n .param .u64 place,\n .param .u32 count\n)\n{ ret; }\n\
                   .visible .entry spin_40us()\n{ ret; }\n\0";

#[test]
fn cudarc_captures_clones_instantiates_and_times() {
    // SAFETY: loading a driver runs no code that matters.
    if unsafe { libloading::Library::new("libcuda.so") }.is_ok() {
        println!("SKIPPED: cudarc would open this machine's own libcuda.so");
        return;
    }
    let emulator = Emulator::new().unwrap();
    // SAFETY: the calls are in the order that CUDA requires, and their arguments live long enough.
    unsafe {
        assert!(sys::is_culib_present());
        result::init().unwrap();
        let device = result::device::get(0).unwrap();
        let context = result::primary_ctx::retain(device).unwrap();
        result::ctx::set_current(context).unwrap();
        let mut stream = ptr::null_mut();
        sys::cuStreamCreateWithPriority(&raw mut stream, 1, -1).result().unwrap();
        let module = result::module::load_data(PTX.as_ptr().cast()).unwrap();
        let long = result::module::get_function(module, c"spin_250us".into()).unwrap();
        let short = result::module::get_function(module, c"spin_40us".into()).unwrap();

        result::stream::begin_capture(stream, sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
            .unwrap();
        let (mut place, mut count) = (7_u64, 9_u32);
        let mut arguments = [(&raw mut place).cast(), (&raw mut count).cast()];
        result::launch_kernel(long, (2, 1, 1), (64, 1, 1), 0, stream, &mut arguments).unwrap();
        result::launch_kernel(short, (1, 1, 1), (64, 1, 1), 0, stream, &mut []).unwrap();
        let graph = result::stream::end_capture(stream).unwrap();

        let mut clone = ptr::null_mut();
        sys::cuGraphClone(&raw mut clone, graph).result().unwrap();
        let mut nodes = [ptr::null_mut(); 4];
        let mut found = nodes.len();
        sys::cuGraphGetNodes(clone, nodes.as_mut_ptr(), &raw mut found).result().unwrap();
        assert_eq!(found, 2);
        let mut parameters = MaybeUninit::uninit();
        sys::cuGraphKernelNodeGetParams_v2(nodes[0], parameters.as_mut_ptr()).result().unwrap();
        let parameters = parameters.assume_init();
        assert_eq!((parameters.func, parameters.gridDimX, parameters.blockDimX), (long, 2, 64));
        assert_eq!(
            *(*parameters.kernelParams.add(1)).cast::<u32>(),
            9,
            "the node has its own copy of the arguments"
        );
        sys::cuGraphDestroyNode(nodes[1]).result().unwrap();

        let whole = result::graph::instantiate(
            graph,
            sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY,
        )
        .unwrap();
        let first = result::graph::instantiate(
            clone,
            sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY,
        )
        .unwrap();
        let marks: Vec<_> =
            (0..3).map(|_| result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT).unwrap()).collect();
        result::event::record(marks[0], stream).unwrap();
        result::graph::launch(first, stream).unwrap();
        result::event::record(marks[1], stream).unwrap();
        result::graph::launch(whole, stream).unwrap();
        result::event::record(marks[2], stream).unwrap();
        while result::event::query(marks[2]).is_err() {}
        assert!((result::event::elapsed(marks[0], marks[1]).unwrap() - 0.25).abs() < 1e-6);
        assert!((result::event::elapsed(marks[0], marks[2]).unwrap() - 0.54).abs() < 1e-6);
        assert_eq!(emulator.kernels().len(), 3);
        assert!(emulator.now() >= Duration::from_micros(540));

        for mark in marks {
            result::event::destroy(mark).unwrap();
        }
        for exec in [whole, first] {
            result::graph::exec_destroy(exec).unwrap();
        }
        for graph in [graph, clone] {
            result::graph::destroy(graph).unwrap();
        }
        result::module::unload(module).unwrap();
        result::stream::destroy(stream).unwrap();
        result::primary_ctx::release(device).unwrap();
    }
    assert!(emulator.misuse().is_empty(), "{:?}", emulator.misuse());
    assert!(emulator.leaks().is_empty(), "{:?}", emulator.leaks());
}

#[test]
fn cudarc_safe_layer_copies_and_times() {
    // SAFETY: loading a driver runs no code that matters.
    if unsafe { libloading::Library::new("libcuda.so") }.is_ok() {
        println!("SKIPPED: cudarc would open this machine's own libcuda.so");
        return;
    }
    let emulator = Emulator::new().unwrap();
    {
        let context = CudaContext::new(0).unwrap();
        // Event tracking waits for events that were never recorded, which would be reported.
        // SAFETY: there is one stream.
        unsafe { context.disable_event_tracking() };
        assert_eq!(
            (context.name().unwrap().as_str(), context.total_mem().unwrap()),
            ("Emulated CUDA device", 80 << 30)
        );
        assert_eq!(context.compute_capability().unwrap(), (9, 0));
        assert!(context.uuid().is_ok());
        let stream = context.new_stream().unwrap();
        let sent = [1.5_f32, -2.0, 3.25];
        let held = stream.clone_htod(&sent).unwrap();
        assert_eq!(context.mem_get_info().unwrap(), ((80 << 30) - 12, 80 << 30));
        assert_eq!(stream.clone_dtoh(&held).unwrap(), sent);
        let timed = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let (start, end) = (stream.record_event(timed).unwrap(), stream.record_event(timed).unwrap());
        end.synchronize().unwrap();
        assert!(start.elapsed_ms(&end).unwrap().abs() < f32::EPSILON);
        context.synchronize().unwrap();
    }
    assert_eq!((emulator.misuse(), emulator.leaks()), (Vec::<String>::new(), Vec::new()));
}
