//! Modules of device code and their kernels. Functions that return a `Result` also return the error
//! of a failed call of the CUDA driver (a *CUDA error*).

#![allow(unsafe_code)]

use std::ffi::{CString, c_void};
use std::sync::Arc;

use super::Raw;
use super::context::Context;
use super::stream::Stream;
use crate::cuda::error::{Error, Result};
use crate::cuda::result::written;
use crate::cuda::sys::{CUfunc_st, CUmod_st};

/// Maximum number of kernel arguments.
const MAX_ARGUMENTS: usize = 16;

/// Loaded module of device code. A clone is another handle of it.
#[derive(Debug, Clone)]
pub struct Module(Arc<Loaded>);

#[derive(Debug)]
struct Loaded {
    context: Context,
    raw: Raw<CUmod_st>,
}

impl Module {
    /// Loads PTX text, which the driver compiles for its device.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the text contains a zero byte; CUDA errors.
    pub fn load(context: &Context, ptx: &str) -> Result<Self> {
        let image =
            CString::new(ptx).map_err(|_| Error::Invalid("the PTX text contains a zero byte".to_owned()))?;
        context.bind()?;
        // SAFETY: the module is written; the image is zero-terminated and read before the call
        // returns.
        let raw = written(|module| unsafe { context.driver().module_load(module, image.as_ptr().cast()) })?;
        Ok(Self(Arc::new(Loaded { context: context.clone(), raw: Raw(raw) })))
    }

    /// Returns the kernel of this name (with C linkage). A missing kernel is a CUDA error.
    pub fn function(&self, name: &str) -> Result<Function> {
        let wanted = CString::new(name)
            .map_err(|_| Error::Invalid("the kernel name contains a zero byte".to_owned()))?;
        self.0.context.bind()?;
        let driver = self.0.context.driver();
        // SAFETY: the function is written; the module is alive.
        let raw =
            written(|function| unsafe { driver.module_function(function, self.0.raw.0, wanted.as_ptr()) })?;
        Ok(Function { raw: Raw(raw), _module: self.clone() })
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let driver = self.context.driver();
        // SAFETY: it is unloaded once, and its functions, which hold a reference to it, are gone.
        self.context.destroy(|| unsafe { driver.module_unload(self.raw.0) });
    }
}

/// Kernel of a module, to which it holds a reference.
#[derive(Debug, Clone)]
pub struct Function {
    raw: Raw<CUfunc_st>,
    _module: Module,
}

/// Launch configuration of a kernel, in one dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchShape {
    /// Number of blocks.
    pub blocks: u32,
    /// Number of threads in a block.
    pub threads: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
}

/// Argument of a kernel, by value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Argument {
    /// An `unsigned int` or an `int`.
    U32(u32),
    /// An `unsigned long long`, or an address such as
    /// [`DeviceBuffer::address`](super::buffer::DeviceBuffer::address).
    U64(u64),
    /// A `float`.
    F32(f32),
}

impl Argument {
    fn pointer(&self) -> *mut c_void {
        match self {
            Self::U32(value) => std::ptr::from_ref(value).cast_mut().cast(),
            Self::U64(value) => std::ptr::from_ref(value).cast_mut().cast(),
            Self::F32(value) => std::ptr::from_ref(value).cast_mut().cast(),
        }
    }
}

impl Function {
    /// Enqueues a launch of the kernel into a stream. Arguments are copied; nothing is allocated.
    ///
    /// # Errors
    /// [`Error::Invalid`] for more than 16 arguments; CUDA errors.
    ///
    /// # Safety
    /// The arguments must match the kernel's parameters, and the kernel must be allowed to write
    /// where they point. The module and the memory must outlive the kernel's execution, or the
    /// graph and the graphs made from it if the stream is being captured.
    pub unsafe fn launch(&self, stream: &Stream, shape: LaunchShape, arguments: &[Argument]) -> Result<()> {
        let mut pointers = [std::ptr::null_mut(); MAX_ARGUMENTS];
        let given = arguments.len();
        let slots = pointers.get_mut(..given).ok_or_else(|| {
            Error::Invalid(format!(
                "a kernel takes at most {MAX_ARGUMENTS} arguments, and {given} were given"
            ))
        })?;
        for (slot, argument) in slots.iter_mut().zip(arguments) {
            *slot = argument.pointer();
        }
        stream.context().bind()?;
        let LaunchShape { blocks, threads, shared_bytes } = shape;
        let (raw, extra) = (stream.raw(), std::ptr::null_mut());
        // SAFETY: as the caller promises; the driver only reads the arguments.
        stream.with_technique(unsafe {
            stream.driver().launch_kernel(
                self.raw.0,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                shared_bytes,
                raw,
                pointers.as_mut_ptr(),
                extra,
            )
        })
    }
}
