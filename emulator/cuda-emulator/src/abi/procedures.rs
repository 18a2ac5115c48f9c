//! Look-up of the driver's functions by name, for programs that use `cuGetProcAddress`.
#![allow(unsafe_code, non_snake_case)]

use super::{
    capture, context, copies, device, errors, events, execs, graphs, green, launch, memory, modules, nodes,
    pointers::{OutPointer, read_string},
    streams,
};
use crate::state::{Call, CallError, Code, versions};
use std::ffi::c_char;

/// `CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND`.
const NO_SYMBOL: u32 = 1;
/// `CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT`.
const NO_VERSION: u32 = 2;

/// Finds the address of a function by its name.
macro_rules! find {
    ($wanted:expr; $($module:ident::$name:ident,)*) => {
        match $wanted {
            $(stringify!($name) => Some((stringify!($name), $module::$name as *const () as usize)),)*
            _ => None,
        }
    };
}

#[allow(clippy::too_many_lines, reason = "a table")]
fn find(name: &str) -> Option<(&'static str, usize)> {
    find! { name;
        capture::cuStreamBeginCapture_v2,
        capture::cuStreamEndCapture,
        capture::cuStreamIsCapturing,
        capture::cuThreadExchangeStreamCaptureMode,
        context::cuDevicePrimaryCtxRetain,
        context::cuDevicePrimaryCtxRelease_v2,
        context::cuCtxSetCurrent,
        context::cuCtxGetCurrent,
        context::cuCtxGetDevice,
        context::cuCtxGetStreamPriorityRange,
        context::cuCtxSynchronize,
        context::cuDevicePrimaryCtxGetState,
        context::cuCtxCreate_v2,
        context::cuCtxCreate_v4,
        context::cuCtxDestroy_v2,
        context::cuCtxPushCurrent_v2,
        context::cuCtxPopCurrent_v2,
        context::cuDeviceCanAccessPeer,
        context::cuCtxEnablePeerAccess,
        copies::cuMemcpyHtoD_v2,
        copies::cuMemcpyHtoDAsync_v2,
        copies::cuMemcpyDtoH_v2,
        copies::cuMemcpyDtoHAsync_v2,
        copies::cuMemcpyDtoD_v2,
        copies::cuMemcpyDtoDAsync_v2,
        copies::cuMemcpy3DAsync_v2,
        copies::cuMemcpy,
        copies::cuMemcpyAsync,
        copies::cuMemcpyPeer,
        copies::cuMemcpyPeerAsync,
        copies::cuMemsetD8_v2,
        copies::cuMemsetD8Async,
        copies::cuMemsetD16_v2,
        copies::cuMemsetD16Async,
        copies::cuMemsetD32_v2,
        copies::cuMemsetD32Async,
        device::cuInit,
        device::cuDriverGetVersion,
        device::cuDeviceGetCount,
        device::cuDeviceGet,
        device::cuDeviceGetName,
        device::cuDeviceGetAttribute,
        device::cuDeviceTotalMem_v2,
        device::cuDeviceComputeCapability,
        device::cuDeviceGetUuid_v2,
        errors::cuGetErrorName,
        errors::cuGetErrorString,
        events::cuEventCreate,
        events::cuEventDestroy_v2,
        events::cuEventRecord,
        events::cuEventQuery,
        events::cuEventSynchronize,
        events::cuEventElapsedTime,
        events::cuEventElapsedTime_v2,
        execs::cuGraphInstantiateWithFlags,
        execs::cuGraphExecDestroy,
        execs::cuGraphUpload,
        execs::cuGraphLaunch,
        graphs::cuGraphCreate,
        graphs::cuGraphDestroy,
        graphs::cuGraphClone,
        graphs::cuGraphNodeFindInClone,
        graphs::cuGraphGetNodes,
        graphs::cuGraphGetEdges,
        graphs::cuGraphGetEdges_v2,
        graphs::cuGraphAddDependencies,
        graphs::cuGraphAddDependencies_v2,
        green::cuDeviceGetDevResource,
        green::cuDevSmResourceSplitByCount,
        green::cuDevResourceGenerateDesc,
        green::cuGreenCtxCreate,
        green::cuGreenCtxDestroy,
        green::cuGreenCtxStreamCreate,
        green::cuCtxFromGreenCtx,
        launch::cuLaunchKernel,
        launch::cuLaunchKernelEx,
        memory::cuMemGetInfo_v2,
        memory::cuMemAlloc_v2,
        memory::cuMemFree_v2,
        memory::cuMemAllocAsync,
        memory::cuMemFreeAsync,
        memory::cuMemHostAlloc,
        memory::cuMemFreeHost,
        memory::cuMemHostGetDevicePointer_v2,
        memory::cuPointerGetAttribute,
        memory::cuMemGetAddressRange_v2,
        modules::cuModuleLoad,
        modules::cuModuleLoadData,
        modules::cuModuleLoadDataEx,
        modules::cuModuleUnload,
        modules::cuModuleGetFunction,
        modules::cuModuleGetGlobal_v2,
        modules::cuFuncGetName,
        modules::cuFuncGetAttribute,
        modules::cuFuncSetAttribute,
        modules::cuFuncGetParamInfo,
        nodes::cuGraphNodeGetType,
        nodes::cuGraphNodeGetDependencies,
        nodes::cuGraphNodeGetDependencies_v2,
        nodes::cuGraphDestroyNode,
        nodes::cuGraphAddEmptyNode,
        nodes::cuGraphAddKernelNode_v2,
        nodes::cuGraphKernelNodeGetParams_v2,
        nodes::cuGraphKernelNodeSetParams_v2,
        nodes::cuGraphExecKernelNodeSetParams_v2,
        nodes::cuGraphKernelNodeGetAttribute,
        nodes::cuGraphKernelNodeSetAttribute,
        nodes::cuGraphAddChildGraphNode,
        nodes::cuGraphChildGraphNodeGetGraph,
        streams::cuStreamCreate,
        streams::cuStreamCreateWithPriority,
        streams::cuStreamGetPriority,
        streams::cuStreamGetCtx,
        streams::cuStreamDestroy_v2,
        streams::cuStreamQuery,
        streams::cuStreamSynchronize,
        streams::cuStreamWaitEvent,
        streams::cuStreamWaitValue32_v2,
        streams::cuStreamWriteValue32_v2,
    }
}

/// Writes the address of the function `symbol`, which is named with a version suffix
/// (`cuMemAlloc_v2`) or without. `version` is the CUDA version of the caller. If the function is
/// missing or newer, writes null and returns `CUDA_ERROR_NOT_FOUND`. `status` may be null. The
/// flags are ignored.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGetProcAddress_v2(
    symbol: *const c_char,
    function: *mut usize,
    version: i32,
    _flags: u64,
    status: *mut u32,
) -> u32 {
    Call::always("cuGetProcAddress_v2").run(|driver| {
        // SAFETY: the caller's promise. The status is optional.
        let (symbol, function, status) = unsafe {
            (
                read_string(symbol, "symbol")?,
                OutPointer::new(function, "pfn")?,
                OutPointer::new(status, "").ok(),
            )
        };
        let symbol = symbol.to_str().map_err(|_| CallError::value("symbol is no text"))?;
        let found = find(&format!("{symbol}_v2")).or_else(|| find(symbol));
        let (address, found) = match found {
            None => (0, NO_SYMBOL),
            Some((name, _)) if driver.is_missing(name) => (0, NO_SYMBOL),
            Some((name, _)) if i64::from(version) < versions::since(name) => (0, NO_VERSION),
            Some((_, address)) => (address, 0),
        };
        function.set(address);
        if let Some(status) = status {
            status.set(found);
        }
        if found == 0 { Ok(()) } else { Err(CallError::plain(Code::NOT_FOUND)) }
    })
}
