//! Modules: kernels and variables loaded from PTX. A kernel is an `.entry` function, a variable is
//! declared in `.global` or `.const` memory.

use crate::{
    Dimensions, LaunchError, LoadError, Memory, MemoryError, Options,
    decode::{DecodedKernel, Globals, decode_kernel},
    execute::{LaunchRequest, check, launch},
    parse::{File, parse},
};
use std::collections::BTreeMap;

/// Maximum total size of a module's variables, in bytes.
const MAX_GLOBAL_BYTES: u64 = 4 << 30;

/// Kernels and variables of a PTX text, with the variables allocated in a `Memory`.
pub struct Module {
    kernels: BTreeMap<String, DecodedKernel>,
    sources: Vec<(u64, String)>,
    /// Address and size of each variable.
    globals: BTreeMap<String, (u64, u64)>,
    /// Address of the allocation that holds all variables, if there are any.
    allocation: Option<u64>,
}

/// Declared properties of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelAttributes {
    /// Offset in parameter memory and size of each parameter, in bytes, in the declared order.
    pub parameters: Vec<(usize, usize)>,
    /// Statically declared shared memory of a block, in bytes.
    pub shared_bytes: u64,
    /// Local memory of a thread, in bytes.
    pub local_bytes: u64,
    /// Maximum number of threads of a block, or `None` if the kernel does not declare it
    /// (`.maxntid`).
    pub max_threads: Option<u64>,
}

impl Module {
    /// Loads a PTX text and allocates its variables in `memory`.
    ///
    /// # Errors
    /// Returns an error if the text is not valid PTX, if it uses an instruction or directive that
    /// is not supported, even in a kernel that is never launched, if a limit of the device is
    /// exceeded, or if the variables cannot be allocated.
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
        let kernels = file
            .entries
            .iter()
            .map(|entry| Ok((entry.name.to_owned(), decode_kernel(file, entry, addresses)?)));
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

    /// Returns the names of the kernels in alphabetical order.
    pub fn kernels(&self) -> impl Iterator<Item = &str> {
        self.kernels.keys().map(String::as_str)
    }

    /// Returns the size of each parameter of a kernel in bytes, in the declared order, or `None` if
    /// there is no such kernel.
    #[must_use]
    pub fn parameter_bytes(&self, kernel: &str) -> Option<Vec<usize>> {
        Some(self.kernels.get(kernel)?.parameters.iter().map(|(_, bytes)| *bytes).collect())
    }

    /// Returns the declared properties of a kernel, or `None` if there is no such kernel.
    #[must_use]
    pub fn attributes(&self, kernel: &str) -> Option<KernelAttributes> {
        let DecodedKernel { parameters, shared_bytes, local_bytes, max_threads, .. } =
            self.kernels.get(kernel)?;
        Some(KernelAttributes {
            parameters: parameters.clone(),
            shared_bytes: *shared_bytes,
            local_bytes: *local_bytes,
            max_threads: *max_threads,
        })
    }

    /// Checks that a device accepts a launch with these dimensions: the number of blocks and
    /// threads and the size of shared memory. [`launch`](Self::launch) does the same check.
    ///
    /// # Errors
    /// Returns `LaunchError::Arguments` if there is no such kernel, and `LaunchError::Dimensions`
    /// or `LaunchError::SharedMemory` if the dimensions are refused.
    pub fn check(&self, kernel: &str, dimensions: Dimensions) -> Result<(), LaunchError> {
        let Some(decoded) = self.kernels.get(kernel) else {
            return Err(LaunchError::Arguments {
                kernel: kernel.to_owned(),
                expected: Vec::new(),
                given: Vec::new(),
            });
        };
        check(kernel, decoded, dimensions).map(drop)
    }

    /// Returns the address and size in bytes of a variable, or `None` if there is no such variable.
    #[must_use]
    pub fn global(&self, name: &str) -> Option<(u64, u64)> {
        self.globals.get(name).copied()
    }

    /// Frees the variables of the module. `memory` must be the one that the module was loaded into.
    ///
    /// # Errors
    /// Returns `MemoryError::Invalid` if `memory` is another one, in which no allocation begins at
    /// the address of the variables.
    pub fn unload(self, memory: &mut Memory) -> Result<(), MemoryError> {
        self.allocation.map_or(Ok(()), |address| memory.free(address))
    }

    /// Executes a kernel to completion and returns the number of executed warp instructions. An
    /// instruction that several threads of a warp execute together counts once.
    ///
    /// Blocks run in parallel on rayon's thread pool. `arguments` holds the bytes of each argument,
    /// in the order of the parameters. After a [fault](LaunchError::Fault), blocks may have been
    /// executed partially, as on a GPU.
    ///
    /// # Errors
    /// Returns `LaunchError::Arguments` if there is no such kernel or if an argument does not have
    /// the size that the kernel declares, an error of `check` if the dimensions are refused, and
    /// `LaunchError::Fault` if the kernel fails.
    pub fn launch(
        &self,
        memory: &Memory,
        kernel: &str,
        dimensions: Dimensions,
        arguments: &[&[u8]],
        options: &Options,
    ) -> Result<u64, LaunchError> {
        let given: Vec<_> = arguments.iter().map(|argument| argument.len()).collect();
        let decoded = self.kernels.get(kernel);
        let expected: Vec<_> =
            decoded.iter().flat_map(|decoded| &decoded.parameters).map(|(_, bytes)| *bytes).collect();
        let Some(decoded) = decoded.filter(|_| given == expected) else {
            return Err(LaunchError::Arguments { kernel: kernel.to_owned(), expected, given });
        };
        let mut parameters = vec![0; decoded.parameters.last().map_or(0, |(offset, bytes)| offset + bytes)];
        for ((offset, bytes), argument) in decoded.parameters.iter().zip(arguments) {
            parameters[*offset..offset + bytes].copy_from_slice(argument);
        }
        let request = LaunchRequest {
            name: kernel,
            decoded,
            sources: &self.sources,
            dimensions,
            parameters: &parameters,
            options,
        };
        launch(&request, memory)
    }
}

/// Allocates and initialises the variables of a file. Returns their addresses.
fn place_globals<'a>(file: &File<'a>, memory: &mut Memory) -> Result<(Option<u64>, Globals<'a>), LoadError> {
    let (mut end, mut offsets) = (0_u64, Vec::new());
    for variable in &file.globals {
        let too_large = || LoadError::TooLarge {
            line: variable.line,
            subject: format!("the variable `{}`", variable.name),
        };
        let offset = end.next_multiple_of(variable.align);
        end = offset
            .checked_add(variable.bytes.unwrap_or(0))
            .filter(|end| *end <= MAX_GLOBAL_BYTES)
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
        // Variables without an initial value are zero.
        if variable.bytes.is_some_and(|bytes| bytes <= 1 << 20) {
            content.resize(variable.bytes.unwrap_or(0) as usize, 0);
        }
        memory.write(start + offset, &content)?;
        addresses.insert(variable.name, start + offset);
    }
    Ok((Some(start), addresses))
}
