//! Modules and their kernels.
//!
//! A module's image is PTX text, whose `.entry` lines are read, or something binary, in which every name is found. A
//! kernel does nothing; the time that it takes is in its name.

use super::{
    Code, Driver, Fault, Handle, Outcome,
    handles::Kind,
    nodes::{Dimensions, KernelNode, NodeWork},
};
use std::{
    collections::BTreeMap,
    ffi::{CStr, CString},
    sync::Arc,
};

/// What is loaded.
#[derive(Default)]
pub(crate) struct Modules {
    alive: BTreeMap<Handle, Module>,
    functions: BTreeMap<Handle, Function>,
}

struct Module {
    /// The kernels of PTX by name, with the sizes of their parameters. None for a binary image.
    entries: Option<BTreeMap<String, Vec<usize>>>,
    given: BTreeMap<String, Handle>,
}

/// A kernel that was asked for.
pub(crate) struct Function {
    name: CString,
    short: Arc<str>,
    duration_ns: u64,
    parameter_bytes: Option<Vec<usize>>,
}

/// A launch's arguments, copied.
#[derive(Default)]
pub(crate) struct Arguments {
    /// In words, so that every argument is aligned.
    values: Vec<Box<[u64]>>,
    addresses: Vec<usize>,
}

impl Arguments {
    /// Keeps values, each in whole words.
    pub(crate) fn new(values: Vec<Box<[u64]>>) -> Self {
        let addresses = values.iter().map(|value| value.as_ptr() as usize).collect();
        Self { values, addresses }
    }

    /// The address of an array of the arguments' addresses, which live as long as this does; 0 for no arguments.
    pub(crate) fn address(&self) -> usize {
        if self.values.is_empty() { 0 } else { self.addresses.as_ptr() as usize }
    }
}

impl Modules {
    pub(super) fn handles(&self) -> impl Iterator<Item = Handle> {
        self.alive.keys().copied()
    }
}

impl Driver {
    /// `cuModuleLoadData`, of PTX or, with None, of something binary.
    pub(crate) fn load_module(&mut self, ptx: Option<&str>) -> Outcome<Handle> {
        self.unsafe_while_capturing("loads a module")?;
        let entries = ptx.map(entries);
        if entries.as_ref().is_some_and(BTreeMap::is_empty) {
            return Err(Fault::misuse(Code::INVALID_PTX, "the image is text without an .entry"));
        }
        let handle = self.handles.give(Kind::Module);
        self.modules.alive.insert(handle, Module { entries, given: BTreeMap::new() });
        Ok(handle)
    }

    /// `cuModuleUnload`, after everything that the device has to do: its functions go with it.
    pub(crate) fn unload_module(&mut self, handle: Handle) -> Outcome<()> {
        self.handles.check(Kind::Module, handle)?;
        self.unsafe_while_capturing("unloads a module")?;
        let ended = self.drain();
        self.handles.end(handle);
        let module = self.modules.alive.remove(&handle);
        for function in module.iter().flat_map(|module| module.given.values()) {
            self.handles.end(*function);
            self.modules.functions.remove(function);
        }
        ended
    }

    /// `cuModuleGetFunction`.
    pub(crate) fn get_function(&mut self, module: Handle, name: &CStr) -> Outcome<Handle> {
        self.handles.check(Kind::Module, module)?;
        let default_ns = self.settings.kernel_ns as u64;
        let text = name.to_string_lossy().into_owned();
        let Some(content) = self.modules.alive.get_mut(&module) else {
            return Err(Fault::plain(Code::INVALID_HANDLE));
        };
        if let Some(given) = content.given.get(&text) {
            return Ok(*given);
        }
        let parameter_bytes = match &content.entries {
            Some(entries) => Some(entries.get(&text).cloned().ok_or_else(|| Fault::plain(Code::NOT_FOUND))?),
            None => None,
        };
        let handle = self.handles.give(Kind::Function);
        content.given.insert(text.clone(), handle);
        let duration_ns = duration_ns(&text).unwrap_or(default_ns);
        let function = Function { name: name.to_owned(), short: text.into(), duration_ns, parameter_bytes };
        self.modules.functions.insert(handle, function);
        Ok(handle)
    }

    pub(super) fn function(&self, handle: Handle) -> Outcome<&Function> {
        self.handles.check(Kind::Function, handle)?;
        self.modules.functions.get(&handle).ok_or_else(|| Fault::plain(Code::INVALID_HANDLE))
    }

    /// `cuFuncGetName`: it lives as long as the module.
    pub(crate) fn function_name(&self, handle: Handle) -> Outcome<&CStr> {
        Ok(&self.function(handle)?.name)
    }

    /// The sizes of a kernel's parameters, where its module declares them.
    pub(crate) fn parameter_bytes(&self, handle: Handle) -> Outcome<Option<&[usize]>> {
        Ok(self.function(handle)?.parameter_bytes.as_deref())
    }

    /// A launch of a kernel.
    pub(crate) fn kernel(
        &self,
        handle: Handle,
        dimensions: Dimensions,
        arguments: Arguments,
    ) -> Outcome<KernelNode> {
        let function = self.function(handle)?;
        let sides = dimensions.grid.iter().chain(&dimensions.block);
        let threads: u64 = dimensions.block.iter().map(|&side| u64::from(side)).product();
        if sides.clone().any(|&side| side == 0) || threads > 1024 {
            let Dimensions { grid, block, .. } = dimensions;
            return Err(Fault::value(format!(
                "a grid of {grid:?} blocks of {block:?} threads cannot be launched"
            )));
        }
        Ok(KernelNode {
            function: handle,
            name: Arc::clone(&function.short),
            duration_ns: function.duration_ns,
            dimensions,
            arguments: Arc::new(arguments),
            priority: 0,
        })
    }

    /// `cuLaunchKernel`.
    pub(crate) fn launch_kernel(&mut self, kernel: KernelNode, stream: Handle) -> Outcome<()> {
        let stream = self.stream(stream)?;
        self.submit(stream, NodeWork::Kernel(kernel))
    }
}

/// The time in a kernel's name: the last of its parts between underscores that is a number and `ns`, `us` or `ms`.
fn duration_ns(name: &str) -> Option<u64> {
    name.rsplit('_').find_map(|part| {
        let digits = part.find(|character: char| !character.is_ascii_digit())?;
        let (number, unit) = part.split_at(digits);
        let scale = match unit {
            "ns" => 1,
            "us" => 1000,
            "ms" => 1_000_000,
            _ => return None,
        };
        number.parse::<u64>().ok()?.checked_mul(scale)
    })
}

/// The kernels of PTX, with the sizes of their parameters.
fn entries(ptx: &str) -> BTreeMap<String, Vec<usize>> {
    let texts = ptx.split(".entry").skip(1);
    texts
        .filter_map(|text| {
            let end = text.find(['(', '{', '\n']).unwrap_or(text.len());
            let name = text[..end].trim();
            let list = if text[end..].starts_with('(') { text[end + 1..].split(')').next()? } else { "" };
            (!name.is_empty())
                .then(|| (name.to_string(), list.split(',').filter_map(parameter_bytes).collect()))
        })
        .collect()
}

/// The size of a parameter such as `.param .align 8 .b8 name[16]`.
fn parameter_bytes(parameter: &str) -> Option<usize> {
    let kind = parameter.split_whitespace().filter_map(|word| word.strip_prefix('.')).find_map(|word| {
        let bits = word.strip_prefix(['b', 'u', 's', 'f'])?;
        bits.parse::<usize>().ok()
    })?;
    let count =
        parameter.split_once('[').and_then(|(_, rest)| rest.split(']').next()?.trim().parse::<usize>().ok());
    Some(kind / 8 * count.unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernels_name_tells_its_time() {
        assert_eq!(duration_ns("spin_250us"), Some(250_000));
        assert_eq!(duration_ns("spin_3ms_of_background"), Some(3_000_000));
        assert_eq!(duration_ns("copy_1us_then_40ns"), Some(40));
        assert_eq!(duration_ns("gemm_128x128"), None);
        assert_eq!(duration_ns("us"), None);
    }

    #[test]
    fn ptx_tells_the_sizes_of_parameters() {
        let ptx = ".version 8.0\n.visible .entry one(\n\t.param .u64 .ptr .global one_0,\n\t.param .align 8 .b8 one_1[24],\n\t.param .f32 one_2\n)\n{\n}\n.entry two() {}\n";
        let found = entries(ptx);
        assert_eq!(found["one"], [8, 24, 4]);
        assert!(found["two"].is_empty());
    }
}
