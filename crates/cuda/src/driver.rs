//! CUDA's driver (`libcuda.so`).
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};
use std::fmt;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cudarc::driver::sys::{self, CUresult, CUstream_flags};

use crate::library::Kind;
use crate::symbols::{Code, Symbol, find, functions, one_line};
use crate::{Error, Result, emulated};

functions! {
    /// Functions of CUDA's driver. Those of newer drivers are optional.
    DriverFunctions {
        cuCtxGetCurrent cuCtxGetStreamPriorityRange cuCtxSetCurrent cuCtxSynchronize
        cuDeviceGet cuDeviceGetAttribute cuDeviceGetCount cuDeviceGetName
        cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxRetain cuDriverGetVersion
        cuEventCreate cuEventDestroy_v2 cuEventElapsedTime cuEventQuery cuEventRecord
        cuGetErrorName cuGetErrorString
        cuGraphAddChildGraphNode cuGraphChildGraphNodeGetGraph cuGraphClone cuGraphCreate cuGraphDestroy
        cuGraphDestroyNode cuGraphExecDestroy cuGraphGetEdges cuGraphGetNodes cuGraphInstantiateWithFlags
        cuGraphLaunch cuGraphNodeFindInClone cuGraphNodeGetType
        cuInit cuLaunchKernel
        cuMemAlloc_v2 cuMemFree_v2 cuMemFreeHost cuMemHostAlloc
        cuMemcpy3DAsync_v2 cuMemcpyDtoDAsync_v2 cuMemcpyDtoHAsync_v2 cuMemcpyHtoDAsync_v2
        cuMemsetD32Async cuMemsetD8Async
        cuModuleGetFunction cuModuleLoadData cuModuleUnload
        cuStreamBeginCapture_v2 cuStreamCreateWithPriority cuStreamDestroy_v2 cuStreamEndCapture
        cuStreamIsCapturing cuStreamQuery cuStreamSynchronize cuStreamWaitEvent
        cuThreadExchangeStreamCaptureMode
    }
    optional {
        cuCtxFromGreenCtx cuDevResourceGenerateDesc cuDevSmResourceSplitByCount cuDeviceGetDevResource
        cuGraphKernelNodeSetAttribute cuGreenCtxCreate cuGreenCtxDestroy cuGreenCtxStreamCreate
        cuMemAllocAsync cuMemFreeAsync
        cuStreamWaitValue32_v2 cuStreamWriteValue32_v2
    }
}

/// Calls a function of the driver and checks its code. It has the safety conditions of the
/// function.
macro_rules! cu {
    ($driver:expr, $name:ident like $like:ident ( $($argument:expr),* $(,)? )) => {{
        let driver: &$crate::driver::Driver = $driver;
        let code = $crate::symbols::call!(driver.functions(), $name like sys::$like($($argument),*));
        driver.check(stringify!($name), code)
    }};
    ($driver:expr, $name:ident ( $($argument:expr),* $(,)? )) => {{
        let driver: &$crate::driver::Driver = $driver;
        let code = $crate::symbols::call!(driver.functions(), sys::$name($($argument),*));
        driver.check(stringify!($name), code)
    }};
}
pub(crate) use cu;

/// Like `cu`, for a query whose code may be "not ready": returns whether it is ready.
macro_rules! cu_ready {
    ($driver:expr, $name:ident ( $($argument:expr),* $(,)? )) => {{
        let driver: &$crate::driver::Driver = $driver;
        match $crate::symbols::call!(driver.functions(), sys::$name($($argument),*)) {
            Some($crate::driver::NOT_READY) => Ok(false),
            code => driver.check(stringify!($name), code).map(|()| true),
        }
    }};
}
pub(crate) use cu_ready;

/// Code of a call that succeeded.
const SUCCESS: Code = CUresult::CUDA_SUCCESS as Code;
/// Code of a query for work that has not finished; not an error.
pub(crate) const NOT_READY: Code = CUresult::CUDA_ERROR_NOT_READY as Code;

/// Flag of a stream that does not synchronize with CUDA's default stream.
pub(crate) const NON_BLOCKING: u32 = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;

/// Opened and initialized CUDA driver. It is never closed. A clone is another handle of it.
#[derive(Clone)]
pub struct Driver {
    functions: Arc<DriverFunctions>,
    /// The library's file if it is that of emulated GPUs.
    emulator: Option<Arc<Path>>,
}

impl Driver {
    /// Opens the driver: the file that the variable `CUDA_DRIVER_LIBRARY` names, or else that of
    /// emulated GPUs if `DEEPPOOL_EMULATED_GPUS` requests them, or else `libcuda.so.1` or
    /// `libcuda.so` on the loader's search path.
    ///
    /// # Errors
    /// [`Error::Unavailable`], which names what was looked for, where, and the remedy.
    pub fn open() -> Result<Self> {
        Kind::Driver.open().and_then(|(library, path)| Self::load(library, &path))
    }

    /// Opens the first of these files that exists. A name without a folder is searched on the
    /// loader's path.
    ///
    /// # Errors
    /// [`Error::Unavailable`]. A file that exists but cannot be used ends the search.
    pub fn open_first_of(candidates: &[PathBuf]) -> Result<Self> {
        Kind::Driver.open_first_of(candidates).and_then(|(library, path)| Self::load(library, &path))
    }

    fn load(library: &libloading::Library, path: &Path) -> Result<Self> {
        let functions =
            DriverFunctions::load(library).map_err(|missing| Kind::Driver.incomplete(path, &missing))?;
        let is_emulated = find(library, emulated::OWN_FUNCTION).is_some();
        let driver = Self { functions: Arc::new(functions), emulator: is_emulated.then(|| path.into()) };
        // SAFETY: zero is the only valid value of the flags.
        unsafe { cu!(&driver, cuInit(0)) }.map_err(|error| Error::Unavailable {
            library: Kind::Driver.name(),
            reason: error.to_string(),
        })?;
        Ok(driver)
    }

    /// Returns the number of CUDA devices of this host.
    pub fn devices(&self) -> Result<usize> {
        // SAFETY: the count is written.
        let count: c_int = written(|count| unsafe { cu!(self, cuDeviceGetCount(count)) })?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Returns the latest CUDA version that the driver supports: 13000 is 13.0.
    pub fn version(&self) -> Result<u32> {
        // SAFETY: the version is written.
        let version: c_int = written(|version| unsafe { cu!(self, cuDriverGetVersion(version)) })?;
        Ok(version.unsigned_abs())
    }

    /// Returns the functions.
    pub(crate) fn functions(&self) -> &DriverFunctions {
        &self.functions
    }

    /// Returns the file of the library of emulated GPUs if this is it.
    pub(crate) fn emulator(&self) -> Option<&Path> {
        self.emulator.as_deref()
    }

    /// Converts the code of a call to a result. `None` is a function that the driver lacks.
    pub(crate) fn check(&self, call: &'static str, code: Option<Code>) -> Result<()> {
        match code {
            Some(SUCCESS) => Ok(()),
            Some(code) => {
                let or = |text: String, other: &str| if text.is_empty() { other.to_owned() } else { text };
                let name = or(self.describe(code, self.functions.cuGetErrorName), "an unknown result");
                let text = or(self.describe(code, self.functions.cuGetErrorString), "no description");
                Err(Error::Call { call, code, name, text })
            }
            None => Err(Error::Unsupported { technique: call, reason: format!("this driver has no {call}") }),
        }
    }

    /// Calls `cuGraphGetEdges`.
    ///
    /// # Safety
    /// The graph is alive, and the arrays are null or have room for `count` edges.
    pub(crate) unsafe fn graph_edges(
        &self,
        graph: sys::CUgraph,
        from: *mut sys::CUgraphNode,
        to: *mut sys::CUgraphNode,
        count: *mut usize,
    ) -> Result<()> {
        // cudarc for CUDA 13 has the second version only, which drivers before 12.3 lack. The first
        // one fails for programmatic edges, which cutting would lose.
        type GetEdges = unsafe extern "C" fn(
            sys::CUgraph,
            *mut sys::CUgraphNode,
            *mut sys::CUgraphNode,
            *mut usize,
        ) -> Code;
        let code = self.functions.cuGraphGetEdges.map(|function| {
            // SAFETY: the function has this type; as the caller promises.
            unsafe { std::mem::transmute::<Symbol, GetEdges>(function)(graph, from, to, count) }
        });
        self.check("cuGraphGetEdges", code)
    }

    /// Returns CUDA's name or description of a code; empty if it is unknown.
    #[allow(clippy::unused_self, reason = "the functions are those of this driver")]
    fn describe(&self, code: Code, function: Option<Symbol>) -> String {
        // cudarc's function takes its enumeration, which may lack the code.
        type Describe = unsafe extern "C" fn(Code, *mut *const c_char) -> Code;
        let Some(function) = function else { return String::new() };
        let mut text = std::ptr::null();
        // SAFETY: both functions have this type. The text is set to a static string, or left null.
        unsafe {
            let describe = std::mem::transmute::<Symbol, Describe>(function);
            if describe(code, &raw mut text) == SUCCESS { one_line(text) } else { String::new() }
        }
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CUDA's driver")
    }
}

/// Type of an output argument of a C function that is valid when nothing is written.
///
/// # Safety
/// All bits zero must be a valid value of the type.
pub(crate) unsafe trait Written {}

// SAFETY: numbers, pointers, and plain structures of numbers whose only enumeration has a zero
// value.
unsafe impl Written for c_int {}
unsafe impl Written for u32 {}
unsafe impl Written for u64 {}
unsafe impl Written for i64 {}
unsafe impl Written for usize {}
unsafe impl Written for f32 {}
unsafe impl Written for sys::CUdevResource {}
unsafe impl<T> Written for *mut T {}

/// Calls `call` with a pointer to a zeroed value, and returns the value that it has written.
pub(crate) fn written<T: Written>(call: impl FnOnce(*mut T) -> Result<()>) -> Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    call(value.as_mut_ptr())?;
    // SAFETY: if the call wrote nothing, the value is all zero.
    Ok(unsafe { value.assume_init() })
}
