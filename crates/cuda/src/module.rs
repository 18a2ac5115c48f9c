//! Modules of device code and their kernels. Functions that return a `Result` also return the error
//! of a failed call of the CUDA driver (a *CUDA error*).

#![allow(unsafe_code)]

use std::ffi::{CString, c_void};
use std::sync::Arc;

use cudarc::driver::sys::{self, CUfunc_st, CUmod_st};

use crate::driver::{cu, written};
use crate::handle::Raw;
use crate::memory::{Memory, check_not_captured_elsewhere, keep_while_captured};
use crate::{Buffer, Context, Element, Error, Result, Stream};

/// Maximum number of arguments of a kernel.
pub const MAX_ARGUMENTS: usize = 20;

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
        let raw = written(|module| unsafe {
            cu!(context.driver(), cuModuleLoadData(module, image.as_ptr().cast()))
        })?;
        Ok(Self(Arc::new(Loaded { context: context.clone(), raw: Raw(raw) })))
    }

    /// Returns the kernel of this name (with C linkage). A missing kernel is a CUDA error.
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        let wanted = CString::new(name)
            .map_err(|_| Error::Invalid("the kernel name contains a zero byte".to_owned()))?;
        self.0.context.bind()?;
        let driver = self.0.context.driver();
        // SAFETY: the function is written; the module is alive.
        let raw = written(|function| unsafe {
            cu!(driver, cuModuleGetFunction(function, self.0.raw.0, wanted.as_ptr()))
        })?;
        Ok(Kernel { raw: Raw(raw), module: self.clone() })
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let driver = self.context.driver();
        // SAFETY: it is unloaded once, and its functions, which hold a reference to it, are gone.
        // A kernel may still be in flight.
        self.context.destroy_when_idle(|| unsafe { cu!(driver, cuModuleUnload(self.raw.0)) });
    }
}

/// Kernel of a module, to which it holds a reference.
#[derive(Debug, Clone)]
pub struct Kernel {
    raw: Raw<CUfunc_st>,
    module: Module,
}

/// Numbers of blocks and threads of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchShape {
    /// Number of blocks along x, y and z.
    pub blocks: [u32; 3],
    /// Number of threads of a block along x, y and z.
    pub threads: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
}

impl LaunchShape {
    /// Returns the shape of a launch in one dimension without dynamic shared memory.
    #[must_use]
    pub const fn linear(blocks: u32, threads: u32) -> Self {
        Self { blocks: [blocks, 1, 1], threads: [threads, 1, 1], shared_bytes: 0 }
    }
}

/// Argument of a kernel: a number, a structure, or the address of an element of a [`Buffer`].
#[derive(Debug, Clone, Copy)]
pub struct Argument<'a> {
    value: Value<'a>,
    /// Memory that the kernel accesses.
    memory: Option<&'a Arc<Memory>>,
}

#[derive(Debug, Clone, Copy)]
enum Value<'a> {
    U32(u32),
    U64(u64),
    F32(f32),
    F64(f64),
    Words(&'a [u32]),
}

impl<'a> Argument<'a> {
    /// Returns the address of the element at `index` of a buffer as an argument.
    ///
    /// # Panics
    /// If the index is larger than the length.
    #[must_use]
    pub fn element<T: Element>(buffer: &'a Buffer<T>, index: usize) -> Self {
        Self { value: Value::U64(buffer.address_of(index)), memory: buffer.memory() }
    }

    /// Returns the address `offset` bytes after the start of a buffer as an argument.
    ///
    /// # Panics
    /// If the offset is larger than the size.
    #[must_use]
    pub fn byte<T: Element>(buffer: &'a Buffer<T>, offset: usize) -> Self {
        Self { value: Value::U64(buffer.address_of_byte(offset)), memory: buffer.memory() }
    }

    /// Returns a structure of 32-bit fields as an argument.
    #[must_use]
    pub fn words(fields: &'a [u32]) -> Self {
        Self { value: Value::Words(fields), memory: None }
    }

    fn pointer(&self) -> *mut c_void {
        match &self.value {
            Value::U32(value) => std::ptr::from_ref(value).cast_mut().cast(),
            Value::U64(value) => std::ptr::from_ref(value).cast_mut().cast(),
            Value::F32(value) => std::ptr::from_ref(value).cast_mut().cast(),
            Value::F64(value) => std::ptr::from_ref(value).cast_mut().cast(),
            Value::Words(fields) => fields.as_ptr().cast_mut().cast(),
        }
    }
}

macro_rules! from_numbers {
    ($($variant:ident($number:ty))*) => {
        $(impl From<$number> for Argument<'_> {
            fn from(number: $number) -> Self {
                Self { value: Value::$variant(number), memory: None }
            }
        })*
    };
}
from_numbers!(U32(u32) U64(u64) F32(f32) F64(f64));

impl<'a, T: Element> From<&'a Buffer<T>> for Argument<'a> {
    /// Returns the address of the first element.
    fn from(buffer: &'a Buffer<T>) -> Self {
        Self::element(buffer, 0)
    }
}

impl Kernel {
    /// Enqueues a launch of the kernel into a stream. Arguments are copied; nothing is allocated. A
    /// graph that is being captured keeps the kernel's module and the buffers.
    ///
    /// # Errors
    /// [`Error::Invalid`] for more than [`MAX_ARGUMENTS`] arguments; CUDA errors.
    ///
    /// # Safety
    /// The arguments must match the kernel's parameters, and the kernel must only access memory of
    /// the buffers that it is given, in their bounds. Memory that it is given by address, as a
    /// number, must outlive the kernel's execution, or the graph and the graphs made from it if the
    /// stream is being captured.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        shape: LaunchShape,
        arguments: &[Argument<'_>],
    ) -> Result<()> {
        let mut pointers = [std::ptr::null_mut(); MAX_ARGUMENTS];
        let given = arguments.len();
        let slots = pointers.get_mut(..given).ok_or_else(|| {
            Error::Invalid(format!(
                "a kernel takes at most {MAX_ARGUMENTS} arguments, and {given} were given"
            ))
        })?;
        check_not_captured_elsewhere(stream)?;
        for (slot, argument) in slots.iter_mut().zip(arguments) {
            *slot = argument.pointer();
            if let Some(memory) = argument.memory {
                memory.use_in(stream)?;
            }
        }
        keep_while_captured(&self.module.0);
        stream.context().bind()?;
        let LaunchShape { blocks: [x, y, z], threads: [a, b, c], shared_bytes } = shape;
        let (raw, kernel, none) = (stream.raw(), self.raw.0, std::ptr::null_mut());
        let pointers = pointers.as_mut_ptr();
        // SAFETY: as the caller promises; the driver only reads the arguments.
        stream.with_technique(unsafe {
            cu!(stream.driver(), cuLaunchKernel(kernel, x, y, z, a, b, c, shared_bytes, raw, pointers, none))
        })
    }
}
