//! Kernels in PTX that are executed, opened through cudarc as a user would.
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

/// A device of the emulated driver, with kernels and a stream.
pub(crate) struct Gpu {
    pub(crate) context: Arc<CudaContext>,
    pub(crate) stream: Arc<CudaStream>,
}

impl Gpu {
    pub(crate) fn new(device: usize) -> Self {
        let context = CudaContext::new(device).unwrap();
        // It waits for events that it has never recorded otherwise, which is reported.
        // SAFETY: the tests order what their streams do.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().unwrap();
        Self { context, stream }
    }

    pub(crate) fn kernel(&self, name: &str) -> CudaFunction {
        self.context.load_module(Ptx::from_src(KERNELS)).unwrap().load_function(name).unwrap()
    }
}

/// Runs a test on the emulated driver, which cudarc finds by its name since it is open already. Nothing may be misused or left behind.
pub(crate) fn on_emulator(test: impl FnOnce(&Emulator)) {
    // SAFETY: loading a driver does nothing yet.
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

/// What a call has failed with.
#[track_caller]
pub(crate) fn code<T>(result: Result<T, cudarc::driver::DriverError>) -> sys::CUresult {
    result.err().expect("an error").0
}
