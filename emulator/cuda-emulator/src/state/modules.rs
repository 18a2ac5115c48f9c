//! Modules and their functions.

use super::Handle;
use ptx_emulator::{KernelAttributes, Module as PtxModule};
use std::{collections::BTreeMap, ffi::CString, sync::Arc};

/// The loaded modules.
#[derive(Default)]
pub(crate) struct Modules {
    /// Loaded modules, by handle.
    pub(super) alive: BTreeMap<Handle, Module>,
    /// Functions that `cuModuleGetFunction` has returned and whose module is loaded, and functions
    /// of libraries, by handle.
    pub(super) functions: BTreeMap<Handle, Function>,
    /// Functions of the kernels of libraries, by device and name.
    pub(super) library_functions: BTreeMap<(i32, String), Handle>,
}

/// Loaded module.
pub(super) struct Module {
    /// Device of the context in which it was loaded.
    pub(super) device: i32,
    /// Loaded PTX module, with its kernels and variables. `None` for a binary image.
    pub(super) ptx: Option<PtxModule>,
    /// Handles that `cuModuleGetFunction` has returned, by the name of the kernel.
    pub(super) function_handles: BTreeMap<String, Handle>,
}

/// Code of a kernel.
pub(super) enum KernelCode<'m> {
    /// No code: the module has been unloaded.
    Unloaded,
    /// Binary image, which is not executed.
    Binary,
    /// PTX module that contains the kernel.
    Ptx(&'m PtxModule),
}

/// Function of a module.
pub(crate) struct Function {
    /// Name of the kernel, as returned by `cuFuncGetName`.
    pub(super) name: CString,
    /// The same name as text, for reports and the timeline. Invalid UTF-8 is replaced.
    pub(super) display_name: Arc<str>,
    /// Module that contains the function, or 0 for a function of a library.
    pub(super) module: Handle,
    /// Device of the module.
    pub(super) device: i32,
    /// Limits, memory and parameters of the kernel. `None` for a function of a binary image or a
    /// library.
    pub(super) attributes: Option<KernelAttributes>,
    /// Maximum dynamic shared memory of a block, in bytes. `cuFuncSetAttribute` changes it.
    pub(super) dynamic_limit: u64,
}

/// Copy of the arguments of a launch.
#[derive(Default)]
pub(crate) struct Arguments {
    /// Values in whole words, so that every argument is aligned, with their sizes in bytes.
    values: Vec<(Box<[u64]>, usize)>,
    addresses: Vec<usize>,
}

impl Arguments {
    /// Stores the values of the arguments, each in whole words with its size in bytes.
    pub(crate) fn new(values: Vec<(Box<[u64]>, usize)>) -> Self {
        let addresses = values.iter().map(|(value, _)| value.as_ptr() as usize).collect();
        Self { values, addresses }
    }

    /// Returns the address of an array of pointers to the arguments, or 0 without arguments. It is
    /// valid as long as `self`.
    pub(crate) fn address(&self) -> usize {
        if self.values.is_empty() { 0 } else { self.addresses.as_ptr() as usize }
    }

    /// Returns the bytes of each argument, in the order of the parameters.
    pub(super) fn bytes(&self) -> Vec<Vec<u8>> {
        let values = self.values.iter();
        values
            .map(|(words, bytes)| words.iter().flat_map(|word| word.to_ne_bytes()).take(*bytes).collect())
            .collect()
    }
}

impl Modules {
    /// Returns the handles of the loaded modules, in ascending order. Handles of functions are not
    /// included.
    pub(super) fn handles(&self) -> impl Iterator<Item = Handle> {
        self.alive.keys().copied()
    }

    /// Returns the code of a function. An unknown handle counts as that of an unloaded module.
    pub(super) fn kernel_code(&self, function: Handle) -> KernelCode<'_> {
        let module = self.functions.get(&function).and_then(|function| self.alive.get(&function.module));
        match module.map(|module| &module.ptx) {
            None => KernelCode::Unloaded,
            Some(None) => KernelCode::Binary,
            Some(Some(ptx)) => KernelCode::Ptx(ptx),
        }
    }
}
