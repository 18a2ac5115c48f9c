//! cuDNN: convolutions and attention, by its graph API.
#![allow(unsafe_code)]

mod attention;
mod attention_graph;
mod attention_shape;
mod convolution;
mod descriptor;
mod graph;
mod handle;
mod operations;
mod plan;
mod properties;
mod search;
mod shape;
mod tensor;

use std::ffi::c_char;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cudarc::cudnn::sys::cudnnStatus_t;
use libloading::Library;

use crate::library::Kind;
use crate::symbols::{Code, Symbol, find, functions, one_line, words};
use crate::{Context, Error, Result, emulated};

pub use attention::Attention;
pub use attention_shape::{AttentionPass, AttentionShape};
pub use convolution::Convolution;
pub use handle::CudnnHandle;
pub use properties::DeviceProperties;
pub use search::{Determinism, Target};
pub use shape::{ConvolutionShape, Direction, Layout};

functions! {
    /// Functions of cuDNN.
    CudnnFunctions {
        cudnnBackendCreateDescriptor cudnnBackendDestroyDescriptor cudnnBackendExecute cudnnBackendFinalize
        cudnnBackendGetAttribute cudnnBackendSetAttribute
        cudnnCreate cudnnDestroy cudnnGetCudartVersion cudnnGetErrorString cudnnGetLastErrorString
        cudnnGetVersion cudnnSetStream
    }
    optional {}
}

/// Calls a function of cuDNN and checks its status. It has the safety conditions of the function.
macro_rules! dnn {
    ($functions:expr, $name:ident ( $($argument:expr),* $(,)? )) => {{
        let functions: &$crate::cudnn::CudnnFunctions = $functions;
        functions.check(stringify!($name), $crate::symbols::call!(functions, sys::$name($($argument),*)))
    }};
}
use dnn;

impl CudnnFunctions {
    /// Converts the status of a call to a result. `None` is a function that the library lacks.
    fn check(&self, call: &'static str, code: Option<Code>) -> Result<()> {
        // cudarc's function takes its enumeration, which may lack the code.
        type ErrorString = unsafe extern "C" fn(Code) -> *const c_char;
        type LastError = unsafe extern "C" fn(*mut c_char, usize);
        const SUCCESS: Code = cudnnStatus_t::CUDNN_STATUS_SUCCESS as Code;
        let code = code.unwrap_or(cudnnStatus_t::CUDNN_STATUS_NOT_SUPPORTED as Code);
        if code == SUCCESS {
            return Ok(());
        }
        let mut text = self.cudnnGetErrorString.map_or_else(String::new, |function| {
            // SAFETY: the function has this type, and returns a static string.
            unsafe { one_line(std::mem::transmute::<Symbol, ErrorString>(function)(code)) }
        });
        let mut message = [0_u8; 1024];
        if let Some(function) = self.cudnnGetLastErrorString {
            // SAFETY: the function has this type, and writes at most that many bytes.
            unsafe {
                let last_error = std::mem::transmute::<Symbol, LastError>(function);
                last_error(message.as_mut_ptr().cast(), message.len());
            }
        }
        let end = message.iter().position(|byte| *byte == 0).unwrap_or(message.len());
        let message = words(&String::from_utf8_lossy(&message[..end]));
        if !message.is_empty() {
            text = format!("{text}: {message}");
        }
        Err(Error::Library { library: Kind::Cudnn.name(), call, code, text })
    }

    /// Calls a function that returns a version.
    fn version(function: Option<Symbol>) -> usize {
        type Version = unsafe extern "C" fn() -> usize;
        // SAFETY: the functions of versions have this type.
        function.map_or(0, |function| unsafe { std::mem::transmute::<Symbol, Version>(function)() })
    }
}

/// cuDNN, opened at run time and never closed. A clone is another handle of it.
#[derive(Clone)]
pub struct Cudnn(Arc<CudnnFunctions>);

impl Cudnn {
    /// Opens cuDNN 9 for convolutions on a device: the file that the variable `CUDNN_LIBRARY`
    /// names, or else that of emulated GPUs if the device is one, or else `libcudnn.so.9` on the
    /// loader's search path, of the active Python environment or in CUDA's folder. It opens
    /// cuBLASLt and NVRTC of the same major version of CUDA as well, without which cuDNN ends the
    /// process.
    ///
    /// # Errors
    /// [`Error::Unavailable`], which names what was looked for, where, and the remedy.
    pub fn open_for(context: &Context) -> Result<Self> {
        Kind::Cudnn
            .open_for(context.driver().emulator())
            .and_then(|(library, path)| Self::load(library, &path))
    }

    /// Opens the first of these files that exists, with cuBLASLt and NVRTC. A name without a folder
    /// is searched on the loader's path.
    ///
    /// # Errors
    /// [`Error::Unavailable`]. A file that exists but cannot be used ends the search.
    pub fn open_first_of(candidates: &[PathBuf]) -> Result<Self> {
        Kind::Cudnn.open_first_of(candidates).and_then(|(library, path)| Self::load(library, &path))
    }

    fn load(library: &Library, path: &Path) -> Result<Self> {
        let functions =
            CudnnFunctions::load(library).map_err(|missing| Kind::Cudnn.incomplete(path, &missing))?;
        // The library of emulated GPUs has all functions itself.
        if find(library, emulated::OWN_FUNCTION).is_none() {
            let cuda = CudnnFunctions::version(functions.cudnnGetCudartVersion) / 1000;
            for needed in [Kind::CublasLt, Kind::Nvrtc] {
                needed.open_beside(path, cuda).map_err(|reason| Error::Unavailable {
                    library: Kind::Cudnn.name(),
                    reason: format!("{} needs {}: {reason}", path.display(), needed.name()),
                })?;
            }
        }
        Ok(Self(Arc::new(functions)))
    }

    /// Returns the library's version: 91900 is 9.19.0.
    #[must_use]
    pub fn version(&self) -> usize {
        CudnnFunctions::version(self.0.cudnnGetVersion)
    }
}

impl fmt::Debug for Cudnn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cuDNN")
    }
}
