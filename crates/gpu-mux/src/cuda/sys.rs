//! Bindings to the functions of the CUDA driver that this crate uses.
//!
//! Result codes and enumerations are plain integers, because newer drivers return values that
//! cudarc's enumerations lack.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use cudarc::driver::sys as cuda;
use libloading::Library;

pub(super) use cuda::{
    CUctx_st, CUdevResource, CUdevResourceDesc_st, CUevent_st, CUfunc_st, CUgraph_st, CUgraphExec_st,
    CUgraphNode_st, CUgreenCtx_st, CUlaunchAttributeValue, CUmod_st, CUstream_st,
};

/// Result code of a function of the CUDA driver, a `CUresult`.
pub(super) type Code = c_uint;

/// Handle of a device, a `CUdevice`.
pub(super) type DeviceNumber = c_int;

/// Address in device memory, a `CUdeviceptr`.
pub(super) type Address = c_ulonglong;

/// Lists every function once, for each of the layers generated from the list: functions of every
/// driver, those of them that return ready or not ready, and functions of newer drivers only.
macro_rules! for_each_function {
    ($then:ident) => {
        $then! {
            required {
                init = "cuInit" (flags: c_uint);
                driver_version = "cuDriverGetVersion" (version: *mut c_int);
                device_count = "cuDeviceGetCount" (count: *mut c_int);
                device = "cuDeviceGet" (device: *mut DeviceNumber, ordinal: c_int);
                device_name = "cuDeviceGetName" (name: *mut c_char, length: c_int, device: DeviceNumber);
                device_attribute = "cuDeviceGetAttribute"
                    (value: *mut c_int, attribute: c_uint, device: DeviceNumber);
                primary_retain = "cuDevicePrimaryCtxRetain"
                    (context: *mut *mut CUctx_st, device: DeviceNumber);
                primary_release = "cuDevicePrimaryCtxRelease_v2" (device: DeviceNumber);
                context_current = "cuCtxGetCurrent" (context: *mut *mut CUctx_st);
                context_set_current = "cuCtxSetCurrent" (context: *mut CUctx_st);
                context_priorities = "cuCtxGetStreamPriorityRange" (least: *mut c_int, greatest: *mut c_int);
                context_synchronize = "cuCtxSynchronize" ();
                stream_create = "cuStreamCreateWithPriority"
                    (stream: *mut *mut CUstream_st, flags: c_uint, priority: c_int);
                stream_destroy = "cuStreamDestroy_v2" (stream: *mut CUstream_st);
                stream_synchronize = "cuStreamSynchronize" (stream: *mut CUstream_st);
                stream_wait_event = "cuStreamWaitEvent"
                    (stream: *mut CUstream_st, event: *mut CUevent_st, flags: c_uint);
                stream_begin_capture = "cuStreamBeginCapture_v2" (stream: *mut CUstream_st, mode: c_uint);
                stream_end_capture = "cuStreamEndCapture"
                    (stream: *mut CUstream_st, graph: *mut *mut CUgraph_st);
                stream_is_capturing = "cuStreamIsCapturing" (stream: *mut CUstream_st, status: *mut c_uint);
                event_create = "cuEventCreate" (event: *mut *mut CUevent_st, flags: c_uint);
                event_destroy = "cuEventDestroy_v2" (event: *mut CUevent_st);
                event_record = "cuEventRecord" (event: *mut CUevent_st, stream: *mut CUstream_st);
                event_elapsed = "cuEventElapsedTime"
                    (milliseconds: *mut f32, start: *mut CUevent_st, end: *mut CUevent_st);
                graph_create = "cuGraphCreate" (graph: *mut *mut CUgraph_st, flags: c_uint);
                graph_destroy = "cuGraphDestroy" (graph: *mut CUgraph_st);
                graph_clone = "cuGraphClone" (clone: *mut *mut CUgraph_st, graph: *mut CUgraph_st);
                graph_nodes = "cuGraphGetNodes"
                    (graph: *mut CUgraph_st, nodes: *mut *mut CUgraphNode_st, count: *mut usize);
                graph_edges = "cuGraphGetEdges"
                    (graph: *mut CUgraph_st, from: *mut *mut CUgraphNode_st, to: *mut *mut CUgraphNode_st,
                     count: *mut usize);
                graph_add_child = "cuGraphAddChildGraphNode"
                    (node: *mut *mut CUgraphNode_st, graph: *mut CUgraph_st,
                     after: *const *mut CUgraphNode_st, count: usize, child: *mut CUgraph_st);
                graph_instantiate = "cuGraphInstantiateWithFlags"
                    (executable: *mut *mut CUgraphExec_st, graph: *mut CUgraph_st, flags: c_ulonglong);
                node_type = "cuGraphNodeGetType" (node: *mut CUgraphNode_st, kind: *mut c_uint);
                node_child = "cuGraphChildGraphNodeGetGraph"
                    (node: *mut CUgraphNode_st, graph: *mut *mut CUgraph_st);
                node_find_in_clone = "cuGraphNodeFindInClone"
                    (found: *mut *mut CUgraphNode_st, original: *mut CUgraphNode_st, clone: *mut CUgraph_st);
                node_destroy = "cuGraphDestroyNode" (node: *mut CUgraphNode_st);
                executable_destroy = "cuGraphExecDestroy" (executable: *mut CUgraphExec_st);
                executable_launch = "cuGraphLaunch"
                    (executable: *mut CUgraphExec_st, stream: *mut CUstream_st);
                module_load = "cuModuleLoadData" (module: *mut *mut CUmod_st, image: *const c_void);
                module_unload = "cuModuleUnload" (module: *mut CUmod_st);
                module_function = "cuModuleGetFunction"
                    (function: *mut *mut CUfunc_st, module: *mut CUmod_st, name: *const c_char);
                launch_kernel = "cuLaunchKernel"
                    (function: *mut CUfunc_st, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
                     block_x: c_uint, block_y: c_uint, block_z: c_uint, shared_bytes: c_uint,
                     stream: *mut CUstream_st, arguments: *mut *mut c_void, extra: *mut *mut c_void);
                memory_allocate = "cuMemAlloc_v2" (address: *mut Address, bytes: usize);
                memory_free = "cuMemFree_v2" (address: Address);
                memory_upload = "cuMemcpyHtoDAsync_v2"
                    (to: Address, from: *const c_void, bytes: usize, stream: *mut CUstream_st);
                memory_download = "cuMemcpyDtoHAsync_v2"
                    (to: *mut c_void, from: Address, bytes: usize, stream: *mut CUstream_st);
                memory_fill = "cuMemsetD32Async"
                    (to: Address, value: c_uint, count: usize, stream: *mut CUstream_st);
            }
            asking {
                stream_is_idle = "cuStreamQuery" (stream: *mut CUstream_st);
                event_is_reached = "cuEventQuery" (event: *mut CUevent_st);
            }
            optional {
                node_set_attribute = "cuGraphKernelNodeSetAttribute"
                    (node: *mut CUgraphNode_st, attribute: c_uint, value: *const CUlaunchAttributeValue);
                stream_wait_value = "cuStreamWaitValue32_v2"
                    (stream: *mut CUstream_st, address: Address, value: c_uint, flags: c_uint);
                stream_write_value = "cuStreamWriteValue32_v2"
                    (stream: *mut CUstream_st, address: Address, value: c_uint, flags: c_uint);
                device_resource = "cuDeviceGetDevResource"
                    (device: DeviceNumber, resource: *mut CUdevResource, kind: c_uint);
                resource_split = "cuDevSmResourceSplitByCount"
                    (groups: *mut CUdevResource, count: *mut c_uint, from: *const CUdevResource,
                     rest: *mut CUdevResource, flags: c_uint, least: c_uint);
                resource_describe = "cuDevResourceGenerateDesc"
                    (description: *mut *mut CUdevResourceDesc_st, resources: *mut CUdevResource,
                     count: c_uint);
                green_create = "cuGreenCtxCreate"
                    (green: *mut *mut CUgreenCtx_st, description: *mut CUdevResourceDesc_st,
                     device: DeviceNumber, flags: c_uint);
                green_destroy = "cuGreenCtxDestroy" (green: *mut CUgreenCtx_st);
                green_as_context = "cuCtxFromGreenCtx"
                    (context: *mut *mut CUctx_st, green: *mut CUgreenCtx_st);
                green_stream = "cuGreenCtxStreamCreate"
                    (stream: *mut *mut CUstream_st, green: *mut CUgreenCtx_st, flags: c_uint,
                     priority: c_int);
            }
        }
    };
}
pub(super) use for_each_function;

macro_rules! table {
    (
        required { $($name:ident = $symbol:literal ($($argument:ident: $type:ty),*);)* }
        asking { $($asked:ident = $asked_symbol:literal ($($asked_argument:ident: $asked_type:ty),*);)* }
        optional { $($maybe:ident = $maybe_symbol:literal ($($maybe_argument:ident: $maybe_type:ty),*);)* }
    ) => {
        /// Functions of the CUDA driver. Those of newer drivers are `None` if the driver lacks
        /// them.
        pub(super) struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($type),*) -> Code,)*
            $(pub(super) $asked: unsafe extern "C" fn($($asked_type),*) -> Code,)*
            $(pub(super) $maybe: Option<unsafe extern "C" fn($($maybe_type),*) -> Code>,)*
            /// `cuGetErrorName`.
            pub(super) error_name: unsafe extern "C" fn(Code, *mut *const c_char) -> Code,
            /// `cuGetErrorString`.
            pub(super) error_text: unsafe extern "C" fn(Code, *mut *const c_char) -> Code,
        }

        impl Functions {
            /// Looks up all functions. The error lists the required functions that are missing.
            ///
            /// # Safety
            /// `library` is the CUDA driver and is never closed.
            pub(super) unsafe fn load(library: &Library) -> Result<Self, Vec<&'static str>> {
                let mut lacking = Vec::new();
                // SAFETY: here and below, the signatures are those of cuda.h.
                $(let $name = unsafe { find(library, concat!($symbol, "\0")) };
                if $name.is_none() {
                    lacking.push($symbol);
                })*
                $(let $asked = unsafe { find(library, concat!($asked_symbol, "\0")) };
                if $asked.is_none() {
                    lacking.push($asked_symbol);
                })*
                let error_name = unsafe { find(library, "cuGetErrorName\0") };
                let error_text = unsafe { find(library, "cuGetErrorString\0") };
                let functions = || {
                    Some(Self {
                        $($name: $name?,)*
                        $($asked: $asked?,)*
                        $($maybe: unsafe { find(library, concat!($maybe_symbol, "\0")) },)*
                        error_name: error_name?,
                        error_text: error_text?,
                    })
                };
                functions().ok_or_else(|| {
                    lacking.extend(error_name.is_none().then_some("cuGetErrorName"));
                    lacking.extend(error_text.is_none().then_some("cuGetErrorString"));
                    lacking
                })
            }
        }
    };
}
for_each_function!(table);

/// Looks up a function.
///
/// # Safety
/// `F` is the type of the function with that name.
unsafe fn find<F: Copy>(library: &Library, symbol: &str) -> Option<F> {
    // SAFETY: as the caller promises.
    unsafe { library.get(symbol) }.ok().map(|function| *function)
}

/// Result of a call that succeeded.
pub(super) const SUCCESS: Code = cuda::CUresult::CUDA_SUCCESS as Code;
/// Result of a query for work that has not finished; not an error.
pub(super) const NOT_READY: Code = cuda::CUresult::CUDA_ERROR_NOT_READY as Code;
/// Error for an operation that the device or the driver does not support.
pub(super) const NOT_SUPPORTED: Code = cuda::CUresult::CUDA_ERROR_NOT_SUPPORTED as Code;
/// Error for an invalid handle.
pub(super) const INVALID_HANDLE: Code = cuda::CUresult::CUDA_ERROR_INVALID_HANDLE as Code;
/// Error for a context that is not valid for the call.
pub(super) const INVALID_CONTEXT: Code = cuda::CUresult::CUDA_ERROR_INVALID_CONTEXT as Code;

/// Name of the technique *green context* in errors.
pub(super) const GREEN_CONTEXT: &str = "a green context";

/// Errors after which the context or process is unusable: those that, according to cuda.h, leave
/// the process in an inconsistent state, hardware errors, and the end of the context or the driver.
pub(super) const STICKY: [Code; 17] = [
    cuda::CUresult::CUDA_ERROR_DEINITIALIZED as Code,
    cuda::CUresult::CUDA_ERROR_ECC_UNCORRECTABLE as Code,
    cuda::CUresult::CUDA_ERROR_ILLEGAL_ADDRESS as Code,
    cuda::CUresult::CUDA_ERROR_LAUNCH_TIMEOUT as Code,
    cuda::CUresult::CUDA_ERROR_ASSERT as Code,
    cuda::CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR as Code,
    cuda::CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION as Code,
    cuda::CUresult::CUDA_ERROR_MISALIGNED_ADDRESS as Code,
    cuda::CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE as Code,
    cuda::CUresult::CUDA_ERROR_INVALID_PC as Code,
    cuda::CUresult::CUDA_ERROR_LAUNCH_FAILED as Code,
    cuda::CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE as Code,
    cuda::CUresult::CUDA_ERROR_CONTAINED as Code,
    cuda::CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED as Code,
    cuda::CUresult::CUDA_ERROR_TENSOR_MEMORY_LEAK as Code,
    cuda::CUresult::CUDA_ERROR_MPS_CLIENT_TERMINATED as Code,
    cuda::CUresult::CUDA_ERROR_EXTERNAL_DEVICE as Code,
];

/// Device attribute: number of streaming multiprocessors.
pub(super) const MULTIPROCESSORS: c_uint =
    cuda::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT as c_uint;
/// Device attribute: major number of the compute capability.
pub(super) const CAPABILITY_MAJOR: c_uint =
    cuda::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as c_uint;
/// Device attribute: minor number of the compute capability.
pub(super) const CAPABILITY_MINOR: c_uint =
    cuda::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as c_uint;

/// Flag of a stream that does not synchronize with CUDA's default stream.
pub(super) const STREAM_NON_BLOCKING: c_uint = cuda::CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
/// Flag of an event that records no time.
pub(super) const EVENT_DISABLE_TIMING: c_uint = cuda::CUevent_flags::CU_EVENT_DISABLE_TIMING as c_uint;
/// Flags of an event that records its time.
pub(super) const EVENT_TIMED: c_uint = cuda::CUevent_flags::CU_EVENT_DEFAULT as c_uint;
/// Capture mode in which only calls of the capturing thread that are unsafe during a capture fail.
pub(super) const CAPTURE_THREAD_LOCAL: c_uint =
    cuda::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL as c_uint;
/// Capture status of a stream that is not being captured.
pub(super) const NOT_CAPTURING: c_uint = cuda::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE as c_uint;
/// Flag of a stream's wait until the value in memory equals the given one.
pub(super) const WAIT_EQUAL: c_uint = cuda::CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_EQ as c_uint;
/// Type of the device resource that consists of multiprocessors.
pub(super) const RESOURCE_MULTIPROCESSORS: c_uint =
    cuda::CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM as c_uint;
/// Flag that creates a default stream with a green context.
pub(super) const GREEN_DEFAULT_STREAM: c_uint =
    cuda::CUgreenCtxCreate_flags::CU_GREEN_CTX_DEFAULT_STREAM as c_uint;
/// Launch attribute of a kernel node: its priority.
pub(super) const ATTRIBUTE_PRIORITY: c_uint =
    cuda::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY as c_uint;
/// `CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY`.
pub(super) const USE_NODE_PRIORITY: c_ulonglong = 8;

/// Type of a graph node that launches a kernel.
pub(super) const NODE_KERNEL: c_uint = cuda::CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL as c_uint;
/// Type of a graph node that contains a graph.
pub(super) const NODE_GRAPH: c_uint = cuda::CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH as c_uint;
/// Type of a graph node that allocates memory.
pub(super) const NODE_ALLOCATES: c_uint = cuda::CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_ALLOC as c_uint;
/// Type of a graph node that frees memory.
pub(super) const NODE_FREES: c_uint = cuda::CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_FREE as c_uint;
