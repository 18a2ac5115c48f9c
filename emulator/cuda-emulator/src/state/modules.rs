//! Modules and their kernels.
//!
//! A module's image is PTX text, whose kernels are executed. Something binary, in which every name is found and no kernel
//! does anything, is taken where the settings say so.

use super::Handle;
use ptx_emulator::{KernelAttributes, Module as Program};
use std::{collections::BTreeMap, ffi::CString, sync::Arc};

/// What is loaded.
#[derive(Default)]
pub(crate) struct Modules {
    pub(super) alive: BTreeMap<Handle, Module>,
    pub(super) functions: BTreeMap<Handle, Function>,
}

pub(super) struct Module {
    pub(super) device: i32,
    /// None for a binary image.
    pub(super) program: Option<Program>,
    pub(super) given: BTreeMap<String, Handle>,
}

/// Where the code of a kernel is.
pub(super) enum Source<'m> {
    /// Nowhere any more.
    Unloaded,
    /// In a binary image, which is not read.
    Binary,
    Ptx(&'m Program),
}

/// A kernel that was asked for.
pub(crate) struct Function {
    pub(super) name: CString,
    pub(super) short: Arc<str>,
    pub(super) module: Handle,
    pub(super) device: i32,
    /// None for one of a binary image.
    pub(super) attributes: Option<KernelAttributes>,
    /// The most dynamic shared memory of a block.
    pub(super) dynamic_limit: u64,
}

/// A launch's arguments, copied.
#[derive(Default)]
pub(crate) struct Arguments {
    /// In words, so that every argument is aligned, with its size in bytes.
    values: Vec<(Box<[u64]>, usize)>,
    addresses: Vec<usize>,
}

impl Arguments {
    /// Keeps values, each in whole words, with its size in bytes.
    pub(crate) fn new(values: Vec<(Box<[u64]>, usize)>) -> Self {
        let addresses = values.iter().map(|(value, _)| value.as_ptr() as usize).collect();
        Self { values, addresses }
    }

    /// The address of an array of the arguments' addresses, which live as long as this does; 0 for no arguments.
    pub(crate) fn address(&self) -> usize {
        if self.values.is_empty() { 0 } else { self.addresses.as_ptr() as usize }
    }

    /// The bytes of each argument.
    pub(super) fn bytes(&self) -> Vec<Vec<u8>> {
        let values = self.values.iter();
        values
            .map(|(words, bytes)| words.iter().flat_map(|word| word.to_ne_bytes()).take(*bytes).collect())
            .collect()
    }
}

impl Modules {
    pub(super) fn handles(&self) -> impl Iterator<Item = Handle> {
        self.alive.keys().copied()
    }

    /// Where the code of a function is.
    pub(super) fn code_of(&self, function: Handle) -> Source<'_> {
        let module = self.functions.get(&function).and_then(|function| self.alive.get(&function.module));
        match module.map(|module| &module.program) {
            None => Source::Unloaded,
            Some(None) => Source::Binary,
            Some(Some(program)) => Source::Ptx(program),
        }
    }
}
