//! The library as seen by a program: opened by its path and called by function names.
#![allow(unsafe_code, non_snake_case)]

use cuda_emulator::Emulator;
use cudarc::driver::sys::CUresult;
use libloading::Library;
use std::{
    ffi::{CStr, CString, c_char},
    ptr,
};

/// The opened library and its control interface.
pub(crate) struct Cuda {
    pub(crate) emulator: Emulator,
    library: Library,
}

functions! {
    Cuda.library:
    cuInit(flags: u32);
    cuDriverGetVersion(version: *mut i32);
    cuDeviceGetCount(count: *mut i32);
    cuDeviceGetAttribute(value: *mut i32, attribute: u32, device: i32);
    cuDevicePrimaryCtxRetain(context: *mut usize, device: i32);
    cuDevicePrimaryCtxRelease_v2(device: i32);
    cuCtxSetCurrent(context: usize);
    cuCtxGetCurrent(context: *mut usize);
    cuCtxGetStreamPriorityRange(least: *mut i32, greatest: *mut i32);
    cuCtxSynchronize();
    cuStreamCreateWithPriority(stream: *mut usize, flags: u32, priority: i32);
    cuStreamGetPriority(stream: usize, priority: *mut i32);
    cuStreamDestroy_v2(stream: usize);
    cuStreamQuery(stream: usize);
    cuStreamSynchronize(stream: usize);
    cuStreamWaitEvent(stream: usize, event: usize, flags: u32);
    cuStreamBeginCapture_v2(stream: usize, mode: u32);
    cuStreamEndCapture(stream: usize, graph: *mut usize);
    cuStreamIsCapturing(stream: usize, status: *mut u32);
    cuStreamWaitValue32_v2(stream: usize, address: u64, value: u32, flags: u32);
    cuStreamWriteValue32_v2(stream: usize, address: u64, value: u32, flags: u32);
    cuEventCreate(event: *mut usize, flags: u32);
    cuEventDestroy_v2(event: usize);
    cuEventRecord(event: usize, stream: usize);
    cuEventQuery(event: usize);
    cuEventSynchronize(event: usize);
    cuEventElapsedTime_v2(milliseconds: *mut f32, start: usize, end: usize);
    cuGraphCreate(graph: *mut usize, flags: u32);
    cuGraphDestroy(graph: usize);
    cuGraphClone(clone: *mut usize, graph: usize);
    cuGraphGetNodes(graph: usize, nodes: *mut usize, count: *mut usize);
    cuGraphGetEdges_v2(graph: usize, from: *mut usize, to: *mut usize, data: *mut [u8; 8], count: *mut usize);
    cuGraphNodeGetType(node: usize, kind: *mut u32);
    cuGraphNodeGetDependencies(node: usize, dependencies: *mut usize, count: *mut usize);
    cuGraphNodeFindInClone(found: *mut usize, node: usize, clone: usize);
    cuGraphDestroyNode(node: usize);
    cuGraphKernelNodeGetAttribute(node: usize, attribute: u32, value: *mut [i32; 16]);
    cuGraphKernelNodeSetAttribute(node: usize, attribute: u32, value: *const [i32; 16]);
    cuGraphAddChildGraphNode(
        node: *mut usize, graph: usize, before: *const usize, count: usize, child: usize
    );
    cuGraphChildGraphNodeGetGraph(node: usize, graph: *mut usize);
    cuGraphAddDependencies(graph: usize, from: *const usize, to: *const usize, count: usize);
    cuGraphAddEmptyNode(node: *mut usize, graph: usize, before: *const usize, count: usize);
    cuGraphInstantiateWithFlags(exec: *mut usize, graph: usize, flags: u64);
    cuGraphAddKernelNode_v2(
        node: *mut usize, graph: usize, before: *const usize, count: usize,
        parameters: *const cudarc::driver::sys::CUDA_KERNEL_NODE_PARAMS
    );
    cuGraphKernelNodeGetParams_v2(
        node: usize, parameters: *mut cudarc::driver::sys::CUDA_KERNEL_NODE_PARAMS
    );
    cuGraphExecDestroy(exec: usize);
    cuGraphUpload(exec: usize, stream: usize);
    cuGraphLaunch(exec: usize, stream: usize);
    cuModuleLoadData(module: *mut usize, image: *const c_char);
    cuModuleUnload(module: usize);
    cuModuleGetFunction(function: *mut usize, module: usize, name: *const c_char);
    cuFuncGetName(name: *mut *const c_char, function: usize);
    cuLaunchKernel(
        function: usize, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: usize, arguments: *mut usize, extra: *mut usize
    );
    cuMemAlloc_v2(address: *mut u64, bytes: usize);
    cuMemFree_v2(address: u64);
    cuMemAllocAsync(address: *mut u64, bytes: usize, stream: usize);
    cuMemFreeAsync(address: u64, stream: usize);
    cuMemHostAlloc(address: *mut usize, bytes: usize, flags: u32);
    cuMemFreeHost(address: usize);
    cuMemHostGetDevicePointer_v2(device: *mut u64, address: usize, flags: u32);
    cuMemcpyHtoDAsync_v2(to: u64, from: *const u8, bytes: usize, stream: usize);
    cuMemcpyDtoHAsync_v2(to: *mut u8, from: u64, bytes: usize, stream: usize);
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: usize);
    cuMemsetD32Async(address: u64, value: u32, words: usize, stream: usize);
    cuDeviceGetDevResource(device: i32, resource: *mut cudarc::driver::sys::CUdevResource, kind: u32);
    cuDevSmResourceSplitByCount(
        groups: *mut cudarc::driver::sys::CUdevResource, count: *mut u32,
        input: *const cudarc::driver::sys::CUdevResource, rest: *mut cudarc::driver::sys::CUdevResource,
        flags: u32, min_count: u32
    );
    cuDevResourceGenerateDesc(
        description: *mut usize, resources: *mut cudarc::driver::sys::CUdevResource, count: u32
    );
    cuGreenCtxCreate(context: *mut usize, description: usize, device: i32, flags: u32);
    cuGreenCtxDestroy(context: usize);
    cuGreenCtxStreamCreate(stream: *mut usize, context: usize, flags: u32, priority: i32);
    cuCtxFromGreenCtx(context: *mut usize, green: usize);
    cuTexObjectCreate(texture: *mut u64, resource: *const u8, description: *const u8, view: *const u8);
    cuGetErrorName(error: u32, name: *mut *const c_char);
    cuGetProcAddress_v2(
        name: *const c_char, function: *mut usize, version: i32, flags: u64, status: *mut u32
    );
}

impl Cuda {
    /// Opens the library without calling it.
    pub(crate) fn open() -> Self {
        let emulator = Emulator::new().unwrap();
        // SAFETY: loading the library runs none of its code.
        let library = unsafe { Library::new(Emulator::library().unwrap()) }.unwrap();
        Self { emulator, library }
    }

    /// Opens the library and makes the primary context of device 0 current.
    pub(crate) fn start() -> Self {
        let cuda = Self::open();
        cuda.ok(cuda.cuInit(0));
        let context = cuda.make(|place| cuda.cuDevicePrimaryCtxRetain(place, 0));
        cuda.ok(cuda.cuCtxSetCurrent(context));
        cuda
    }

    /// Releases the context, and checks that there is no leak and no misuse.
    pub(crate) fn end(self) {
        self.ok(self.cuDevicePrimaryCtxRelease_v2(0));
        assert_eq!((self.emulator.misuse(), self.emulator.leaks()), (Vec::<String>::new(), Vec::new()));
    }

    #[track_caller]
    pub(crate) fn ok(&self, code: u32) {
        assert_eq!(code, 0, "{:?}", self.emulator.misuse());
    }

    /// Checks that a call failed with the given code.
    #[track_caller]
    pub(crate) fn fails(&self, code: u32, expected: CUresult) {
        assert_eq!(code, expected as u32, "{:?}", self.emulator.misuse());
    }

    /// Checks that a call failed with the given code and reported `why`.
    #[track_caller]
    pub(crate) fn refuses(&self, code: u32, expected: CUresult, why: &str) {
        let misuse = self.emulator.misuse();
        let last = misuse.last().map_or("", String::as_str);
        assert!(last.contains(why), "{last:?} instead of {why:?}");
        assert_eq!(code, expected as u32, "{last}");
    }

    /// Returns the value that a successful call writes.
    #[track_caller]
    pub(crate) fn make<T: Copy>(&self, call: impl FnOnce(*mut T) -> u32) -> T {
        let mut made = zeros();
        self.ok(call(&raw mut made));
        made
    }

    pub(crate) fn stream(&self, priority: i32) -> usize {
        self.make(|place| self.cuStreamCreateWithPriority(place, 1, priority))
    }

    pub(crate) fn event(&self) -> usize {
        self.make(|place| self.cuEventCreate(place, 0))
    }

    pub(crate) fn graph(&self) -> usize {
        self.make(|place| self.cuGraphCreate(place, 0))
    }

    pub(crate) fn node(&self, graph: usize, before: &[usize]) -> usize {
        self.make(|place| self.cuGraphAddEmptyNode(place, graph, before.as_ptr(), before.len()))
    }

    /// Loads a module with kernels of the given names. They do nothing, or fail if the name begins
    /// with `fail_`.
    pub(crate) fn kernels<const N: usize>(&self, names: [&str; N]) -> (usize, [usize; N]) {
        let body = |name: &str| if name.starts_with("fail_") { "trap;" } else { "ret;" };
        let ptx = names.map(|name| format!(".visible .entry {name}()\n{{ {} }}\n", body(name))).concat();
        let image = CString::new(ptx).unwrap();
        let module = self.make(|place| self.cuModuleLoadData(place, image.as_ptr()));
        (module, names.map(|name| self.kernel(module, name)))
    }

    pub(crate) fn kernel(&self, module: usize, name: &str) -> usize {
        let name = CString::new(name).unwrap();
        self.make(|place| self.cuModuleGetFunction(place, module, name.as_ptr()))
    }

    pub(crate) fn launch(&self, kernel: usize, stream: usize) -> u32 {
        self.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, ptr::null_mut(), ptr::null_mut())
    }

    /// Captures a graph of the kernels in sequence.
    pub(crate) fn captured(&self, kernels: &[usize]) -> usize {
        let stream = self.stream(0);
        self.ok(self.cuStreamBeginCapture_v2(stream, 1));
        for &kernel in kernels {
            self.ok(self.launch(kernel, stream));
        }
        let graph = self.make(|place| self.cuStreamEndCapture(stream, place));
        self.ok(self.cuStreamDestroy_v2(stream));
        graph
    }

    pub(crate) fn instantiated(&self, graph: usize) -> usize {
        self.make(|place| self.cuGraphInstantiateWithFlags(place, graph, 8))
    }

    pub(crate) fn nodes(&self, graph: usize) -> Vec<usize> {
        let mut count = 0;
        self.ok(self.cuGraphGetNodes(graph, ptr::null_mut(), &raw mut count));
        let mut nodes = vec![0; count];
        self.ok(self.cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count));
        nodes
    }

    /// Returns the start and end of each kernel in µs, and its name.
    pub(crate) fn timeline(&self) -> Vec<(u128, u128, String)> {
        let kernels = self.emulator.kernels().into_iter();
        kernels.map(|kernel| (kernel.started.as_micros(), kernel.ended.as_micros(), kernel.name)).collect()
    }

    /// Returns a text that a call returns by pointer.
    pub(crate) fn text(&self, call: impl FnOnce(*mut *const c_char) -> u32) -> String {
        let mut text = ptr::null();
        self.ok(call(&raw mut text));
        // SAFETY: the call has succeeded and written a pointer to a text.
        unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned()
    }
}

/// Returns a zeroed number, address or structure.
pub(crate) fn zeros<T: Copy>() -> T {
    // SAFETY: all bits zero are valid for the types used by the tests.
    unsafe { std::mem::zeroed() }
}
