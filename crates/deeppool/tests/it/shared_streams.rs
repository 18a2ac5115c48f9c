//! The multiplexer's driver, the collectives' NCCL and cudarc share streams, events and memory by
//! their raw handles, on emulated devices.
#![allow(unsafe_code)]

use std::net::TcpListener;
use std::slice;
use std::thread;
use std::time::Duration;

use collectives::{Communicator, NcclBuffer, NcclLibrary, NcclStream, NcclWorld, ReduceOp, Request, Result};
use cuda_emulator::{Emulator, Setting};
use cudarc::driver::{CudaContext, CudaSlice, DevicePtr};
use gpu_mux::cuda::{Argument, Context, CudaLibrary, Event, LaunchShape, Module, Priority, Stream};

/// Adds `amount` to 32 numbers.
const PTX: &str = ".version 8.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 values, .param .f32 amount) {
    .reg .f32 %f<3>; .reg .b32 %r<2>; .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [values];
    ld.param.f32 %f2, [amount];
    mov.u32 %r1, %tid.x;
    mad.wide.u32 %rd2, %r1, 4, %rd1;
    ld.global.f32 %f1, [%rd2];
    add.f32 %f1, %f1, %f2;
    st.global.f32 [%rd2], %f1;
    ret;
}";

const SHAPE: LaunchShape = LaunchShape { blocks: 1, threads: 32, shared_bytes: 0 };

/// A rank with one queue for computing and one for communication, ordered by events, independent of
/// the host's speed.
fn rank(number: usize, size: usize, port: u16) -> Result<Vec<f32>> {
    let path = Emulator::library().unwrap();
    let context =
        Context::open(&CudaLibrary::open_first_of(slice::from_ref(&path)).unwrap(), number).unwrap();
    let add = Module::load(&context, PTX).unwrap().function("add").unwrap();
    let compute = Stream::new(&context, Priority::Foreground).unwrap();
    let cuda = CudaContext::new(number).unwrap();
    let memory = cuda.new_stream().unwrap();

    let world = NcclWorld::new(number, size, number)
        .with_address("127.0.0.1", port)
        .with_token("secret")
        .with_timeout(Duration::from_secs(20))
        .with_library(NcclLibrary::open_first_of(&[path])?);
    let ranks = world.connect()?;
    // Its own stream, used by the multiplexer, and the multiplexer's stream, used by the
    // collectives.
    let mut communication = ranks.new_stream()?;
    // SAFETY: the streams live as long as these, and are the device's.
    let (queue, mut both) = unsafe {
        (Stream::borrow(&context, communication.as_raw()), NcclStream::borrow(number, compute.as_raw())?)
    };
    let slice = memory.clone_htod(&[number as f32; 32]).unwrap();
    memory.synchronize().unwrap();
    let address = slice.device_ptr(&memory).0;
    let launch = |amount: f32| {
        // SAFETY: these are its arguments; kernel and memory are there until the end.
        unsafe { add.launch(&compute, SHAPE, &[Argument::U64(address), Argument::F32(amount)]) }.unwrap();
    };
    let (computed, communicated) = (Event::untimed(&compute).unwrap(), Event::untimed(&compute).unwrap());

    launch(1.0);
    compute.record(&computed).unwrap();
    queue.wait_for(&computed).unwrap();
    let request = ranks.start_all_reduce(NcclBuffer::from_slice(slice), ReduceOp::Sum, &mut communication)?;
    queue.record(&communicated).unwrap();
    compute.wait_for(&communicated).unwrap();
    launch(0.5);
    // On the multiplexer's stream after its kernel: only the stream orders them.
    let summed = request.wait()?;
    let request = ranks.start_all_reduce(summed, ReduceOp::Sum, &mut both)?;
    launch(100.0);
    let slice = request.wait()?.into_owner::<CudaSlice<f32>>().expect("what was put in");
    compute.synchronize().unwrap();
    assert!(computed.is_complete().unwrap() && !computed.as_raw().is_null());
    let values = memory.clone_dtoh(&slice).unwrap();
    drop((slice, ranks, queue, both, communication));
    Ok(values)
}

#[test]
fn multiplexer_nccl_and_cudarc_share_streams_events_and_memory() {
    // SAFETY: loading a driver does nothing yet.
    if unsafe { libloading::Library::new("libcuda.so") }.is_ok() {
        println!("SKIPPED: cudarc would open this machine's own libcuda.so");
        return;
    }
    let emulator = Emulator::new().unwrap();
    emulator.set(Setting::Devices, 4);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for size in [1, 4] {
        let found: Vec<_> = thread::scope(|scope| {
            let ranks: Vec<_> = (0..size)
                .map(|number| scope.spawn(move || rank(number, size, port + size as u16).unwrap()))
                .collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        });
        let ones: f32 = (0..size).map(|number| number as f32 + 1.0).sum();
        assert_eq!(found, vec![vec![(ones + 0.5) * size as f32 + 100.0; 32]; size]);
    }
    assert_eq!(emulator.faults(), [""; 0]);
    assert_eq!(emulator.leaks(), [""; 0]);
}
