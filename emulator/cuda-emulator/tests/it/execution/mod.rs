//! Execution of PTX kernels, through cudarc.
#![allow(unsafe_code)]

mod faults;
mod graphs;
mod launches;
mod loading;
mod peers;

use cuda_emulator::Emulator;
use cudarc::driver::{CudaContext, CudaFunction, CudaStream, LaunchConfig, sys};
use cudarc::nvrtc::Ptx;
use std::sync::Arc;

const KERNELS: &str = include_str!("kernels.ptx");

/// An emulated device with a stream.
pub(crate) struct Gpu {
    pub(crate) context: Arc<CudaContext>,
    pub(crate) stream: Arc<CudaStream>,
}

impl Gpu {
    pub(crate) fn new(device: usize) -> Self {
        let context = CudaContext::new(device).unwrap();
        // Event tracking waits for events that were never recorded, which would be reported.
        // SAFETY: the tests order the work of their streams.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().unwrap();
        Self { context, stream }
    }

    pub(crate) fn kernel(&self, name: &str) -> CudaFunction {
        self.context.load_module(Ptx::from_src(KERNELS)).unwrap().load_function(name).unwrap()
    }
}

/// Runs a test on the emulated driver and checks that there is no misuse and no leak. cudarc finds
/// the library by its soname, because it is already open.
pub(crate) fn on_emulator(test: impl FnOnce(&Emulator)) {
    // SAFETY: loading a driver runs no code that matters.
    if unsafe { libloading::Library::new("libcuda.so") }.is_ok() {
        println!("SKIPPED: cudarc would open this machine's own libcuda.so");
        return;
    }
    let emulator = Emulator::new().unwrap();
    test(&emulator);
    assert_eq!((emulator.misuse(), emulator.leaks()), (Vec::<String>::new(), Vec::new()));
}

pub(crate) fn shape(blocks: u32, threads: u32, shared_bytes: u32) -> LaunchConfig {
    LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (threads, 1, 1), shared_mem_bytes: shared_bytes }
}

/// Returns the error code of a call that must fail.
#[track_caller]
pub(crate) fn code<T>(result: Result<T, cudarc::driver::DriverError>) -> sys::CUresult {
    result.err().expect("an error").0
}
