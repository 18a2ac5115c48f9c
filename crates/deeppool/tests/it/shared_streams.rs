//! Kernels and collectives share streams, events and memory with another library by their raw
//! handles, on emulated devices.
#![allow(unsafe_code)]

use std::net::TcpListener;
use std::slice;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use collectives::{Communicator, NcclWorld, ReduceOp, Request, Result};
use cuda::nccl::Nccl;
use cuda::{Buffer, Driver, Event, LaunchShape, Module, Priority, Stream};
use cuda_emulator::{Emulator, Setting};

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

const SHAPE: LaunchShape = LaunchShape::linear(1, 32);

/// A rank with one queue for computing and one for communication, ordered by events, independent of
/// the host's speed.
fn rank(number: usize, size: usize, port: u16) -> Result<Vec<f32>> {
    let path = Emulator::library().unwrap();
    let context = Driver::open_first_of(slice::from_ref(&path)).unwrap().context(number).unwrap();
    let add = Module::load(&context, PTX).unwrap().kernel("add").unwrap();
    let compute = Stream::new(&context, Priority::Foreground).unwrap();
    let of_other_library = Stream::new(&context, Priority::Background).unwrap();

    let world = NcclWorld::new(number, size, number)
        .with_address("127.0.0.1", port)
        .with_timeout(Duration::from_secs(20))
        .with_library(Nccl::open_first_of(&[path]).unwrap());
    let ranks = world.connect_on(&context)?;
    // SAFETY: the stream lives as long as this one, and is the device's.
    let mut communication = unsafe { Stream::borrow(&context, of_other_library.as_raw()) };
    let tensor = Arc::new(Buffer::from_slice(&context, &[number as f32; 32]).unwrap());
    // SAFETY: the tensor owns the memory.
    let buffer = unsafe { Buffer::<f32>::from_raw(&context, tensor.address(), 32, Arc::clone(&tensor)) };
    let launch = |amount: f32| {
        // SAFETY: these are its arguments.
        unsafe { add.launch(&compute, SHAPE, &[(&*tensor).into(), amount.into()]) }.unwrap();
    };
    let (computed, communicated) = (Event::untimed(&compute).unwrap(), Event::untimed(&compute).unwrap());

    launch(1.0);
    compute.record(&computed).unwrap();
    communication.wait_for(&computed).unwrap();
    let request = ranks.start_all_reduce(buffer, ReduceOp::Sum, &mut communication)?;
    communication.record(&communicated).unwrap();
    compute.wait_for(&communicated).unwrap();
    launch(0.5);
    // On the stream of the kernel, after it: only the stream orders them.
    let summed = request.wait()?;
    let request = ranks.start_all_reduce(summed, ReduceOp::Sum, &mut compute.clone())?;
    launch(100.0);
    let buffer = request.wait()?;
    compute.synchronize().unwrap();
    assert!(computed.is_complete().unwrap() && !computed.as_raw().is_null());
    assert_eq!(buffer.address(), tensor.address());
    Ok(buffer.to_vec(&compute).unwrap())
}

#[test]
fn kernels_and_collectives_share_streams_events_and_memory_of_others() {
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
