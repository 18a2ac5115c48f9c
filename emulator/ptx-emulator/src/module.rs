//! Kernels loaded from PTX, and launched.

use crate::{
    LaunchError, LoadError, Memory, MemoryError,
    decode::{Globals, Program, program},
    execute::{Launching, check, launch},
    parse::{File, parse},
};
use std::collections::BTreeMap;

/// The most bytes of a module's variables.
const GLOBALS_LIMIT: u64 = 4 << 30;

/// The kernels and variables of a PTX text.
pub struct Module {
    kernels: BTreeMap<String, Program>,
    sources: Vec<(u64, String)>,
    /// Addresses and sizes of the variables.
    globals: BTreeMap<String, (u64, u64)>,
    /// All variables are in one allocation, if there are any.
    allocation: Option<u64>,
}

/// What a kernel declares.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelAttributes {
    /// Offset and size in bytes of each parameter in the memory of the parameters.
    pub parameters: Vec<(usize, usize)>,
    /// Shared memory of a block, in bytes, without what a launch adds.
    pub shared_bytes: u64,
    /// Local memory of a thread, in bytes.
    pub local_bytes: u64,
    /// The most threads of a block that it is compiled for.
    pub max_threads: Option<u64>,
}

/// How many blocks of how many threads are launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dimensions {
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y and z.
    pub block: [u32; 3],
    /// Bytes of shared memory beyond those that the kernel declares.
    pub dynamic_shared_bytes: u32,
}

impl Dimensions {
    /// Blocks and threads along x only.
    #[must_use]
    pub fn linear(blocks: u32, threads: u32) -> Self {
        Self { grid: [blocks, 1, 1], block: [threads, 1, 1], dynamic_shared_bytes: 0 }
    }
}

/// What is checked in a launch, and in which order it is executed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Shuffles the order of blocks, of warps and the lengths of their turns. None is in order.
    pub seed: Option<u64>,
    /// Whether races on shared memory are looked for.
    pub races: bool,
    /// Whether reads of memory that was not written are errors: always of shared memory, of global memory if it was made by
    /// [`Memory::tracking_writes`].
    pub uninitialised: bool,
    /// The most instructions of all warps of a block together, after which it counts as hanging.
    pub instructions: u64,
}

impl Default for Options {
    /// In order, with the checks of bounds and alignment alone, and 2^36 instructions a block.
    fn default() -> Self {
        Self { seed: None, races: false, uninitialised: false, instructions: 1 << 36 }
    }
}

impl Module {
    /// Reads a PTX text, and places its variables in `memory`. Everything in it is decoded, so that what is not supported
    /// is an error here.
    pub fn load(ptx: &str, memory: &mut Memory) -> Result<Self, LoadError> {
        let file = parse(ptx)?;
        let (allocation, addresses) = place_globals(&file, memory)?;
        let module = Self::decode(&file, &addresses, allocation);
        if let (Err(_), Some(address)) = (&module, allocation) {
            memory.free(address)?;
        }
        module
    }

    fn decode(file: &File<'_>, addresses: &Globals<'_>, allocation: Option<u64>) -> Result<Self, LoadError> {
        let kernels =
            file.entries.iter().map(|entry| Ok((entry.name.to_owned(), program(file, entry, addresses)?)));
        let globals = file.globals.iter().filter_map(|variable| {
            let address = addresses.get(variable.name)?;
            Some((variable.name.to_owned(), (*address, variable.bytes.unwrap_or(0))))
        });
        Ok(Self {
            kernels: kernels.collect::<Result<_, LoadError>>()?,
            sources: file.sources.iter().map(|(number, name)| (*number, (*name).to_owned())).collect(),
            globals: globals.collect(),
            allocation,
        })
    }

    /// The names of the kernels, in the order of the alphabet.
    pub fn kernels(&self) -> impl Iterator<Item = &str> {
        self.kernels.keys().map(String::as_str)
    }

    /// The sizes of a kernel's parameters. None if there is no such kernel.
    #[must_use]
    pub fn parameter_bytes(&self, kernel: &str) -> Option<Vec<usize>> {
        Some(self.kernels.get(kernel)?.parameters.iter().map(|(_, bytes)| *bytes).collect())
    }

    /// What a kernel declares. None if there is no such kernel.
    #[must_use]
    pub fn attributes(&self, kernel: &str) -> Option<KernelAttributes> {
        let Program { parameters, shared_bytes, local_bytes, max_threads, .. } = self.kernels.get(kernel)?;
        Some(KernelAttributes {
            parameters: parameters.clone(),
            shared_bytes: *shared_bytes,
            local_bytes: *local_bytes,
            max_threads: *max_threads,
        })
    }

    /// Whether a device takes a launch of these dimensions, as [`launch`](Self::launch) checks it before it begins.
    pub fn check(&self, kernel: &str, dimensions: Dimensions) -> Result<(), LaunchError> {
        let Some(program) = self.kernels.get(kernel) else {
            return Err(LaunchError::Arguments {
                kernel: kernel.to_owned(),
                expected: Vec::new(),
                given: Vec::new(),
            });
        };
        check(kernel, program, dimensions).map(drop)
    }

    /// The address and size of a variable in global or constant memory.
    #[must_use]
    pub fn global(&self, name: &str) -> Option<(u64, u64)> {
        self.globals.get(name).copied()
    }

    /// Frees the module's variables.
    pub fn unload(self, memory: &mut Memory) -> Result<(), MemoryError> {
        self.allocation.map_or(Ok(()), |address| memory.free(address))
    }

    /// Executes a kernel to its end, its blocks in parallel on the threads of rayon's pool. Each argument has the bytes that the
    /// kernel declares for it. Returns how many instructions the warps have executed.
    ///
    /// After a [fault](LaunchError::Fault), blocks may have been executed in part, as on a GPU.
    pub fn launch(
        &self,
        memory: &Memory,
        kernel: &str,
        dimensions: Dimensions,
        arguments: &[&[u8]],
        options: &Options,
    ) -> Result<u64, LaunchError> {
        let given: Vec<_> = arguments.iter().map(|argument| argument.len()).collect();
        let program = self.kernels.get(kernel);
        let expected: Vec<_> =
            program.iter().flat_map(|program| &program.parameters).map(|(_, bytes)| *bytes).collect();
        let Some(program) = program.filter(|_| given == expected) else {
            return Err(LaunchError::Arguments { kernel: kernel.to_owned(), expected, given });
        };
        let mut parameters = vec![0; program.parameters.last().map_or(0, |(offset, bytes)| offset + bytes)];
        for ((offset, bytes), argument) in program.parameters.iter().zip(arguments) {
            parameters[*offset..offset + bytes].copy_from_slice(argument);
        }
        let launching = Launching {
            name: kernel,
            program,
            sources: &self.sources,
            dimensions,
            parameters: &parameters,
            options,
        };
        launch(&launching, memory)
    }
}

/// Allocates and fills a file's variables, and gives their addresses.
fn place_globals<'a>(file: &File<'a>, memory: &mut Memory) -> Result<(Option<u64>, Globals<'a>), LoadError> {
    let (mut end, mut offsets) = (0_u64, Vec::new());
    for variable in &file.globals {
        let too_large =
            || LoadError::TooLarge { line: variable.line, what: format!("the variable `{}`", variable.name) };
        let offset = end.next_multiple_of(variable.align);
        end = offset
            .checked_add(variable.bytes.unwrap_or(0))
            .filter(|end| *end <= GLOBALS_LIMIT)
            .ok_or_else(too_large)?;
        offsets.push(offset);
    }
    if end == 0 {
        return Ok((None, Globals::new()));
    }
    let start = memory.allocate(end)?;
    let mut addresses = Globals::new();
    for (variable, offset) in file.globals.iter().zip(offsets) {
        let mut content = variable.content.clone();
        // What a program sees of a variable is initialised, by zeros where it says nothing.
        if variable.bytes.is_some_and(|bytes| bytes <= 1 << 20) {
            content.resize(variable.bytes.unwrap_or(0) as usize, 0);
        }
        memory.write(start + offset, &content)?;
        addresses.insert(variable.name, start + offset);
    }
    Ok((Some(start), addresses))
}
