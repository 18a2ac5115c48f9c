//! cuBLASLt: products of matrices.
#![allow(unsafe_code)]

mod descriptor;
mod product;

use std::ffi::c_char;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use cudarc::cublaslt::sys::{self, cublasLtContext, cublasStatus_t};

use crate::driver::written;
use crate::handle::Raw;
use crate::library::Kind;
use crate::memory::check_no_capture;
use crate::symbols::{Code, Symbol, functions, one_line};
use crate::{Context, Error, Result};

pub use product::{Product, ProductShape};

functions! {
    /// Functions of cuBLASLt.
    CublasLtFunctions {
        cublasLtCreate cublasLtDestroy cublasLtGetStatusString cublasLtGetVersion
        cublasLtMatmul cublasLtMatmulAlgoGetHeuristic
        cublasLtMatmulDescCreate cublasLtMatmulDescDestroy cublasLtMatmulDescSetAttribute
        cublasLtMatmulPreferenceCreate cublasLtMatmulPreferenceDestroy cublasLtMatmulPreferenceSetAttribute
        cublasLtMatrixLayoutCreate cublasLtMatrixLayoutDestroy cublasLtMatrixLayoutSetAttribute
    }
    optional { cublasLtMatmulAlgoConfigGetAttribute }
}

/// Calls a function of cuBLASLt and checks its status. It has the safety conditions of the
/// function.
macro_rules! lt {
    ($functions:expr, $name:ident ( $($argument:expr),* $(,)? )) => {{
        let functions: &$crate::cublaslt::CublasLtFunctions = $functions;
        functions.check(stringify!($name), $crate::symbols::call!(functions, sys::$name($($argument),*)))
    }};
}
use lt;

impl CublasLtFunctions {
    /// Converts the status of a call to a result. `None` is a function that the library lacks.
    fn check(&self, call: &'static str, code: Option<Code>) -> Result<()> {
        // cudarc's function takes its enumeration, which may lack the code.
        type StatusString = unsafe extern "C" fn(Code) -> *const c_char;
        const SUCCESS: Code = cublasStatus_t::CUBLAS_STATUS_SUCCESS as Code;
        let code = code.unwrap_or(cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED as Code);
        if code == SUCCESS {
            return Ok(());
        }
        let text = self.cublasLtGetStatusString.map_or_else(String::new, |function| {
            // SAFETY: the function has this type, and returns a static string.
            unsafe { one_line(std::mem::transmute::<Symbol, StatusString>(function)(code)) }
        });
        Err(Error::Library { library: Kind::CublasLt.name(), call, code, text })
    }
}

/// cuBLASLt, opened at run time and never closed. A clone is another handle of it.
#[derive(Clone)]
pub struct CublasLt {
    functions: Arc<CublasLtFunctions>,
    /// Handles of devices whose products are in use.
    handles: Arc<Mutex<Vec<Weak<Handle>>>>,
}

impl CublasLt {
    /// Opens cuBLASLt for products on a device: the file that the variable `CUBLASLT_LIBRARY`
    /// names, or else that of emulated GPUs if the device is one, or else `libcublasLt.so` on the
    /// loader's search path, of the active Python environment or in CUDA's folder.
    ///
    /// # Errors
    /// [`Error::Unavailable`], which names what was looked for, where, and the remedy.
    pub fn open_for(context: &Context) -> Result<Self> {
        Kind::CublasLt
            .open_for(context.driver().emulator())
            .and_then(|(library, path)| Self::load(library, &path))
    }

    /// Opens the first of these files that exists. A name without a folder is searched on the
    /// loader's path.
    ///
    /// # Errors
    /// [`Error::Unavailable`]. A file that exists but cannot be used ends the search.
    pub fn open_first_of(candidates: &[PathBuf]) -> Result<Self> {
        Kind::CublasLt.open_first_of(candidates).and_then(|(library, path)| Self::load(library, &path))
    }

    fn load(library: &libloading::Library, path: &Path) -> Result<Self> {
        let functions =
            CublasLtFunctions::load(library).map_err(|missing| Kind::CublasLt.incomplete(path, &missing))?;
        Ok(Self { functions: Arc::new(functions), handles: Arc::default() })
    }

    /// Returns the library's version: 130100 is 13.1.0.
    #[must_use]
    pub fn version(&self) -> usize {
        type Version = unsafe extern "C" fn() -> usize;
        self.functions.cublasLtGetVersion.map_or(0, |function| {
            // SAFETY: the function has this type.
            unsafe { std::mem::transmute::<Symbol, Version>(function)() }
        })
    }

    /// Returns the handle of the device, which exists as long as it is in use.
    fn handle(&self, context: &Context) -> Result<Arc<Handle>> {
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        handles.retain(|handle| handle.strong_count() > 0);
        let mut open = handles.iter().filter_map(Weak::upgrade);
        if let Some(handle) = open.find(|handle| handle.context.is_same(context)) {
            return Ok(handle);
        }
        check_no_capture("a handle of cuBLASLt")?;
        context.bind()?;
        // SAFETY: the handle is written; the context is current.
        let raw = written(|raw| unsafe { lt!(&self.functions, cublasLtCreate(raw)) })?;
        let functions = Arc::clone(&self.functions);
        let handle = Arc::new(Handle { functions, context: context.clone(), raw: Raw(raw) });
        handles.push(Arc::downgrade(&handle));
        Ok(handle)
    }
}

impl fmt::Debug for CublasLt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cuBLASLt")
    }
}

/// Handle of cuBLASLt for a device. Several threads may use it at once.
struct Handle {
    functions: Arc<CublasLtFunctions>,
    context: Context,
    raw: Raw<cublasLtContext>,
}

// SAFETY: cuBLASLt synchronizes the accesses of several threads to a handle.
unsafe impl Sync for Raw<cublasLtContext> {}

impl Drop for Handle {
    fn drop(&mut self) {
        // Kernels in flight may use memory of the handle.
        self.context.destroy_when_idle(|| {
            // SAFETY: it is destroyed once.
            unsafe { lt!(&self.functions, cublasLtDestroy(self.raw.0)) }
        });
    }
}
