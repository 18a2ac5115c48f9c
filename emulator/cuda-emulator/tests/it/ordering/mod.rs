//! The order check.
#![allow(unsafe_code)]

mod programs;
mod random;
mod rules;

use crate::rules::cuda::{Cuda, zeros};
use cuda_emulator::Setting;
use cudarc::driver::sys::CUDA_KERNEL_NODE_PARAMS;
use std::{ffi::CString, fmt::Write, ptr};

/// A device with the order check and kernels that add words.
pub(crate) struct Machine {
    pub(crate) cuda: Cuda,
    module: usize,
}

/// Contiguous words of memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Words {
    pub(crate) address: u64,
    pub(crate) count: u64,
}

impl Words {
    pub(crate) fn bytes(self) -> usize {
        self.count as usize * 4
    }
}

impl Machine {
    /// Creates a module with the named kernels. Each reads the words of two places and writes their
    /// sum to a third. Kernels whose name begins with `atomic` add to the third place atomically.
    pub(crate) fn new<'n>(kernels: impl IntoIterator<Item = &'n str>) -> Self {
        let cuda = Cuda::open();
        cuda.emulator.set(Setting::OrderCheck, 1);
        cuda.emulator.set(Setting::KernelNs, 1000);
        cuda.ok(cuda.cuInit(0));
        let context = cuda.make(|place| cuda.cuDevicePrimaryCtxRetain(place, 0));
        cuda.ok(cuda.cuCtxSetCurrent(context));
        let ptx = kernels.into_iter().fold(String::new(), |mut ptx, name| {
            let put = if name.starts_with("atomic") { "red.global.add.u32" } else { "st.global.u32" };
            write!(
                ptx,
                ".visible .entry {name}(.param .u64 a, .param .u64 b, .param .u64 to) {{
                    .reg .u64 %a, %b, %to; .reg .u32 %i, %x, %y;
                    ld.param.u64 %a, [a]; ld.param.u64 %b, [b]; ld.param.u64 %to, [to];
                    mov.u32 %i, %tid.x;
                    mad.wide.u32 %a, %i, 4, %a; mad.wide.u32 %b, %i, 4, %b; mad.wide.u32 %to, %i, 4, %to;
                    ld.global.u32 %x, [%a]; ld.global.u32 %y, [%b];
                    add.u32 %x, %x, %y;
                    {put} [%to], %x;
                    ret;
                }}\n"
            )
            .unwrap();
            ptx
        });
        let image = CString::new(ptx).unwrap();
        let module = cuda.make(|place| cuda.cuModuleLoadData(place, image.as_ptr()));
        Self { cuda, module }
    }

    pub(crate) fn words(&self, count: u64) -> Words {
        Words { address: self.cuda.make(|place| self.cuda.cuMemAlloc_v2(place, count as usize * 4)), count }
    }

    pub(crate) fn page_locked(&self, count: u64) -> Words {
        let address: usize = self.cuda.make(|place| self.cuda.cuMemHostAlloc(place, count as usize * 4, 0));
        Words { address: address as u64, count }
    }

    /// Launches a kernel with one thread for each word of `to`.
    pub(crate) fn launch(&self, kernel: &str, stream: usize, from: [Words; 2], to: Words) {
        let mut places = [from[0].address, from[1].address, to.address];
        let mut arguments = places.each_mut().map(|place| ptr::from_mut(place) as usize);
        let function = self.cuda.kernel(self.module, kernel);
        self.cuda.ok(self.cuda.cuLaunchKernel(
            function,
            1,
            1,
            1,
            to.count as u32,
            1,
            1,
            0,
            stream,
            arguments.as_mut_ptr(),
            ptr::null_mut(),
        ));
    }

    /// Adds a kernel node to a graph.
    pub(crate) fn kernel_node(&self, graph: usize, kernel: &str, from: [Words; 2], to: Words) -> usize {
        let mut places = [from[0].address, from[1].address, to.address];
        let mut arguments = places.each_mut().map(|place| ptr::from_mut(place).cast());
        let mut parameters: CUDA_KERNEL_NODE_PARAMS = zeros();
        parameters.func = self.cuda.kernel(self.module, kernel) as *mut _;
        [parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ] = [1; 3];
        [parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ] = [to.count as u32, 1, 1];
        parameters.kernelParams = arguments.as_mut_ptr();
        self.cuda.make(|place| {
            self.cuda.cuGraphAddKernelNode_v2(place, graph, ptr::null(), 0, &raw const parameters)
        })
    }

    pub(crate) fn copy(&self, stream: usize, from: Words, to: Words) {
        self.cuda.ok(self.cuda.cuMemcpyDtoDAsync_v2(to.address, from.address, to.bytes(), stream));
    }

    /// Makes one stream wait for the work enqueued in another one so far.
    pub(crate) fn after(&self, later: usize, earlier: usize) {
        let event = self.cuda.event();
        self.cuda.ok(self.cuda.cuEventRecord(event, earlier));
        self.cuda.ok(self.cuda.cuStreamWaitEvent(later, event, 0));
        self.cuda.ok(self.cuda.cuEventDestroy_v2(event));
    }

    /// Waits for all work and returns the conflicts.
    pub(crate) fn conflicts(&self) -> Vec<String> {
        self.cuda.ok(self.cuda.cuCtxSynchronize());
        self.cuda.emulator.conflicts()
    }
}
