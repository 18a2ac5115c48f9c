//! NCCL on emulated devices. Functions are called by name; memory and streams come from cudarc.
#![allow(unsafe_code, non_snake_case)]
#![allow(clippy::cast_possible_wrap, reason = "ranks are small numbers")]

mod cudarc_comm;
mod deadlocks;
mod operations;
mod order;

use crate::execution::{Gpu, on_emulator, shape};
use cuda_emulator::{Emulator, Setting};
use cudarc::{
    driver::{CudaFunction, CudaSlice, DevicePtr, DeviceRepr, PushKernelArg},
    nccl::sys::ncclUniqueId,
};
use libloading::Library;
use std::ffi::{CStr, c_char};

const F32: u32 = 7;
const SUM: u32 = 0;

/// The functions of NCCL.
pub(crate) struct Nccl(Library);

functions! {
    Nccl.0:
    ncclGetUniqueId(id: *mut ncclUniqueId);
    ncclCommInitRank(comm: *mut usize, ranks: i32, id: ncclUniqueId, rank: i32);
    ncclCommInitAll(comms: *mut usize, count: i32, devices: *const i32);
    ncclCommSplit(comm: usize, color: i32, key: i32, new: *mut usize, config: *const u8);
    ncclCommDestroy(comm: usize);
    ncclCommAbort(comm: usize);
    ncclCommUserRank(comm: usize, rank: *mut i32);
    ncclCommCount(comm: usize, count: *mut i32);
    ncclCommCuDevice(comm: usize, device: *mut i32);
    ncclGroupStart();
    ncclGroupEnd();
    ncclAllReduce(
        send: u64, receive: u64, count: usize, element: u32, reduction: u32, comm: usize, stream: usize
    );
    ncclReduce(
        send: u64, receive: u64, count: usize, element: u32, reduction: u32, root: i32, comm: usize,
        stream: usize
    );
    ncclBroadcast(send: u64, receive: u64, count: usize, element: u32, root: i32, comm: usize, stream: usize);
    ncclAllGather(send: u64, receive: u64, count: usize, element: u32, comm: usize, stream: usize);
    ncclReduceScatter(
        send: u64, receive: u64, count: usize, element: u32, reduction: u32, comm: usize, stream: usize
    );
    ncclSend(send: u64, count: usize, element: u32, peer: i32, comm: usize, stream: usize);
    ncclRecv(receive: u64, count: usize, element: u32, peer: i32, comm: usize, stream: usize);
}

impl Nccl {
    fn open() -> Self {
        // SAFETY: loading the library runs none of its code.
        Self(unsafe { Library::new(Emulator::library().unwrap()) }.unwrap())
    }

    /// Returns the number that a call writes.
    fn number(call: impl FnOnce(*mut i32) -> u32) -> i32 {
        let mut number = -1;
        assert_eq!(call(&raw mut number), 0);
        number
    }

    fn last_error(&self) -> String {
        // SAFETY: the signature is that of nccl.h, and the text is copied before another call.
        unsafe {
            let text = self.0.get::<unsafe extern "C" fn(usize) -> *const c_char>("ncclGetLastError");
            CStr::from_ptr(text.unwrap()(0)).to_str().unwrap().to_owned()
        }
    }
}

/// A rank: a device and its communicator.
struct Rank {
    gpu: Gpu,
    comm: usize,
}

impl Rank {
    fn held<T: DeviceRepr>(&self, values: &[T]) -> CudaSlice<T> {
        self.gpu.stream.clone_htod(values).unwrap()
    }

    fn address<T>(&self, held: &CudaSlice<T>) -> u64 {
        held.device_ptr(&self.gpu.stream).0
    }

    fn stream(&self) -> usize {
        self.gpu.stream.cu_stream() as usize
    }

    /// Multiplies up to 32 elements by `factor`, with a kernel in the rank's stream.
    fn scale(&self, kernel: &CudaFunction, held: &mut CudaSlice<f32>, factor: f32) {
        let count = held.len() as u32;
        // SAFETY: the arguments match the parameters.
        unsafe {
            self.gpu.stream.launch_builder(kernel).arg(held).arg(&factor).arg(&count).launch(shape(1, 32, 0))
        }
        .unwrap();
    }

    /// Sums `held` over the ranks in place.
    fn all_reduce(&self, nccl: &Nccl, held: &CudaSlice<f32>) -> u32 {
        let address = self.address(held);
        nccl.ncclAllReduce(address, address, held.len(), F32, SUM, self.comm, self.stream())
    }
}

/// Creates a communicator of `size` ranks in this thread, each on its own device.
fn ranks(nccl: &Nccl, size: usize) -> Vec<Rank> {
    let mut comms = vec![0; size];
    assert_eq!(nccl.ncclCommInitAll(comms.as_mut_ptr(), size as i32, std::ptr::null()), 0);
    comms.into_iter().enumerate().map(|(device, comm)| Rank { gpu: Gpu::new(device), comm }).collect()
}

/// Runs a test with 8 devices.
fn on_devices(test: impl FnOnce(&Emulator, &Nccl)) {
    on_emulator(|emulator| {
        emulator.set(Setting::Devices, 8);
        test(emulator, &Nccl::open());
    });
}
