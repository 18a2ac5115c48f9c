//! Kernels under preparation. Functions of this module fail with `EngineError::Cuda` if CUDA fails,
//! with `EngineError::OutOfMemory` if the device has no memory for a workspace, and with
//! `EngineError::Library` if a launch would need too many blocks.

use std::fmt;
use std::time::Duration;

use cuda::{Buffer, MAX_ARGUMENTS, Numerics};

use super::choice::fastest;
use super::device::Device;
use super::kernel::{Argument, CudaKernel, GpuLaunch, Launch, THREADS};
use super::module::Family;
use super::operand::Operand;
use super::tensors::TensorTable;
use super::timing::Operands;
use super::{NAME, allocation_failed, failed};
use crate::{CandidateTime, EngineError, KernelChoice, KernelPart, Role, Signature, Storage};

/// Maximum number of elements of an operand. Kernels index elements with 32 bits, and a grid
/// extends up to one block beyond the last element.
pub(super) const MAX_ELEMENTS: usize = (1 << 31) - 1024;

/// Name of the candidate that consists of functions of this crate.
const OWN: &str = "own";

/// Launches that compute a part of a kernel, one of several possibilities.
pub(super) struct Candidate {
    /// Name, which identifies it among the candidates of the part.
    pub(super) name: String,
    /// Launches in order.
    pub(super) launches: Vec<Launch>,
}

impl Candidate {
    /// Returns the size of the workspace that its launches need, in bytes.
    fn workspace_bytes(&self) -> usize {
        self.launches.iter().map(Launch::workspace_bytes).max().unwrap_or(0)
    }
}

/// A kernel under preparation: its operands, and the launches that were added so far.
pub(super) struct KernelBuilder<'e> {
    device: &'e Device,
    name: String,
    signature: Signature,
    numerics: Numerics,
    reads: Vec<Operand>,
    writes: Vec<Operand>,
    launches: Vec<Launch>,
    workspace: Vec<Buffer<u32>>,
    parts: Vec<KernelPart>,
    /// Operands on which candidates are timed, once there was a choice.
    operands: Option<Operands>,
}

impl<'e> KernelBuilder<'e> {
    /// Creates a kernel without launches. `name` is the kernel's name in error messages. `reads`
    /// and `writes` are its operands; `signature` has their roles, or none if the kernel belongs to
    /// no layer.
    ///
    /// # Errors
    /// [`EngineError::Library`] if an operand has more than [`MAX_ELEMENTS`] elements.
    pub(super) fn new(
        device: &'e Device,
        name: String,
        signature: Signature,
        reads: Vec<Operand>,
        writes: Vec<Operand>,
    ) -> Result<Self, EngineError> {
        let mut sizes = reads.iter().chain(&writes).map(|operand| operand.elements);
        if let Some(elements) = sizes.find(|elements| *elements > MAX_ELEMENTS) {
            let problem =
                format!("`{name}` has an operand of {elements} elements; the maximum is {MAX_ELEMENTS}");
            return Err(EngineError::Library { engine: NAME, problem });
        }
        Ok(Self {
            device,
            name,
            signature,
            numerics: Numerics::F32,
            reads,
            writes,
            launches: Vec::new(),
            workspace: Vec::new(),
            parts: Vec::new(),
            operands: None,
        })
    }

    /// Sets the number format of the libraries' products and convolutions, single precision by
    /// default.
    pub(super) fn with_numerics(self, numerics: Numerics) -> Self {
        Self { numerics, ..self }
    }

    /// Returns the number format of the libraries' products and convolutions.
    pub(super) fn numerics(&self) -> Numerics {
        self.numerics
    }

    /// Returns the device.
    pub(super) fn device(&self) -> &'e Device {
        self.device
    }

    /// Returns the address of the operand with a role, or a null pointer if the pass has none.
    pub(super) fn operand(&self, role: Role) -> Argument {
        let place = |roles: &[Role]| roles.iter().position(|other| *other == role);
        match (place(&self.signature.reads), place(&self.signature.writes)) {
            (Some(operand), _) => Argument::Read(operand, 0),
            (None, Some(operand)) => Argument::Write(operand, 0),
            (None, None) => Argument::NONE,
        }
    }

    /// Returns the number format of the elements at an address: single precision, unless it is that
    /// of an operand in 16 bits.
    pub(super) fn storage(&self, argument: Argument) -> Storage {
        match argument {
            Argument::Read(operand, _) => self.reads[operand].storage,
            Argument::Write(operand, _) => self.writes[operand].storage,
            _ => Storage::Scalar,
        }
    }

    /// Returns the variant of a GPU function for arguments: that for operands in 16 bits if there
    /// is one among them.
    fn variant(&self, arguments: &[Argument]) -> Storage {
        let storages = arguments.iter().map(|argument| self.storage(*argument));
        storages.max().unwrap_or(Storage::Scalar)
    }

    /// Allocates `bytes` bytes of zeroed workspace and returns the address. The memory lives as
    /// long as the kernel and the graphs that captured it.
    ///
    /// # Errors
    /// [`EngineError::Library`] if it has more than [`MAX_ELEMENTS`] words, and
    /// [`EngineError::OutOfMemory`] if there is no memory for it.
    pub(super) fn workspace(&mut self, bytes: usize) -> Result<Argument, EngineError> {
        let words = bytes.div_ceil(size_of::<u32>());
        if words > MAX_ELEMENTS {
            let problem = format!(
                "`{}` would need workspace of {words} elements; the maximum is {MAX_ELEMENTS}",
                self.name
            );
            return Err(EngineError::Library { engine: NAME, problem });
        }
        let memory = Buffer::zeros(&self.device.context, words).map_err(allocation_failed(words))?;
        Ok(self.keep(memory))
    }

    /// Copies a table of numbers, which the kernel reads, to device memory and returns its address.
    pub(super) fn table(&mut self, numbers: &[u32]) -> Result<Argument, EngineError> {
        let memory = Buffer::from_slice(&self.device.context, numbers);
        Ok(self.keep(memory.map_err(allocation_failed(numbers.len()))?))
    }

    fn keep(&mut self, memory: Buffer<u32>) -> Argument {
        self.workspace.push(memory);
        Argument::Workspace(self.workspace.len() - 1, 0)
    }

    /// Adds a launch of the GPU function `name` of a family with `grid` blocks along x and y. Adds
    /// nothing if there are no blocks.
    ///
    /// # Errors
    /// [`EngineError::Library`] if there are 2^32 blocks or more along x, or 2^16 or more along y,
    /// or more than [`MAX_ARGUMENTS`] arguments, and [`EngineError::Cuda`] if the GPU function
    /// cannot be loaded.
    pub(super) fn launch(
        &mut self,
        function: (Family, &'static str),
        grid: [usize; 2],
        arguments: impl Into<Vec<Argument>>,
    ) -> Result<(), EngineError> {
        if !grid.contains(&0) {
            let arguments = arguments.into();
            self.launches.push(self.launch_of(self.variant(&arguments), function, grid, arguments)?);
        }
        Ok(())
    }

    /// Returns a launch as [`launch`](Self::launch) adds it, of the variant of a function. Fails as
    /// it does.
    fn launch_of(
        &self,
        variant: Storage,
        (family, name): (Family, &'static str),
        grid: [usize; 2],
        arguments: Vec<Argument>,
    ) -> Result<Launch, EngineError> {
        let too_many = |_| EngineError::Library {
            engine: NAME,
            problem: format!("`{}` ({name}) would need {grid:?} blocks", self.name),
        };
        let grid =
            [u32::try_from(grid[0]).map_err(too_many)?, u16::try_from(grid[1]).map_err(too_many)?.into()];
        if arguments.len() > MAX_ARGUMENTS {
            let problem = format!("`{}` ({name}) would have {} arguments", self.name, arguments.len());
            return Err(EngineError::Library { engine: NAME, problem });
        }
        let function = self.device.function(family, variant, name)?;
        Ok(Launch::Function(GpuLaunch { function, name, grid, arguments, tensors: None }))
    }

    /// Adds a launch over tensors, with the blocks that their table assigns to them. `kernel` is
    /// the family and name of the GPU function, whose first parameter is the table; `arguments` are
    /// the others. Fails as `launch` does.
    pub(super) fn launch_over(
        &mut self,
        kernel: (Family, &'static str),
        tensors: TensorTable,
        arguments: &[Argument],
    ) -> Result<(), EngineError> {
        if tensors.blocks() == 0 {
            return Ok(());
        }
        let arguments = [&[Argument::Tensors], arguments].concat();
        let mut launch = self.launch_of(tensors.storage(), kernel, [tensors.blocks(), 1], arguments)?;
        if let Launch::Function(launch) = &mut launch {
            launch.tensors = Some(tensors);
        }
        self.launches.push(launch);
        Ok(())
    }

    /// Returns a launch of the variant of a function with one thread for each of `elements`
    /// elements, for a candidate. Fails as `launch` does.
    pub(super) fn launch_for_each(
        &self,
        variant: Storage,
        kernel: (Family, &'static str),
        elements: usize,
        arguments: impl Into<Vec<Argument>>,
    ) -> Result<Launch, EngineError> {
        self.launch_of(variant, kernel, [elements.div_ceil(THREADS as usize), 1], arguments.into())
    }

    /// Adds the launches of one of several candidates for a part of the kernel. `vendor` returns
    /// those of a library; `own` adds the launches of functions of this crate, or fails with
    /// [`EngineError::ChannelsLast`] if there are none. `shape` tells the
    /// parts of all kernels apart, together with `part`. The engine's [`KernelChoice`] decides
    /// which. A candidate of a library whose workspace does not fit into the memory is left out.
    ///
    /// # Errors
    /// The errors of both functions; [`EngineError::OutOfMemory`] or [`EngineError::Cuda`] if the
    /// candidates cannot be timed.
    pub(super) fn choose(
        &mut self,
        part: &'static str,
        shape: &dyn fmt::Debug,
        vendor: impl FnOnce(&mut Self) -> Result<Vec<Candidate>, EngineError>,
        own: impl FnOnce(&mut Self) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let choice = self.device.choice;
        let first = self.workspace.len();
        let mut candidates = if choice == KernelChoice::Own { Vec::new() } else { vendor(self)? };
        let least = candidates.iter().map(Candidate::workspace_bytes).min().unwrap_or(0);
        let left_out = self.leave_out_too_large(&mut candidates)?;
        let no_memory = || EngineError::OutOfMemory { engine: NAME, elements: least / size_of::<f32>() };
        let (launches, workspace) = (self.launches.len(), self.workspace.len());
        if choice != KernelChoice::Vendor || candidates.is_empty() {
            match own(self) {
                Ok(()) => {
                    let launches = self.launches.split_off(launches);
                    candidates.push(Candidate { name: OWN.into(), launches });
                }
                Err(EngineError::ChannelsLast { .. }) if !candidates.is_empty() => {}
                Err(EngineError::ChannelsLast { .. }) if left_out > 0 => return Err(no_memory()),
                Err(error) => return Err(error),
            }
        }
        let mut times = vec![None; candidates.len()];
        let (chosen, reason) = if candidates.len() == 1 {
            (0, "the only candidate".to_owned())
        } else if choice == KernelChoice::Vendor {
            (0, format!("the library's first of {}", candidates.len()))
        } else {
            let key = self.device.key(self.numerics, part, shape);
            self.fastest(&key, &mut candidates, &mut times, left_out == 0)?
        };
        let reason = match left_out {
            0 => reason,
            count => format!("{reason}; the workspaces of {count} others exceed the free memory"),
        };
        let named = candidates.iter().zip(&times);
        let part = KernelPart {
            part,
            chosen: candidates[chosen].name.clone(),
            reason,
            candidates: named
                .map(|(candidate, &time)| CandidateTime { name: candidate.name.clone(), time })
                .collect(),
        };
        // Workspace of launches that are not used.
        if part.chosen == OWN {
            self.workspace[first..workspace].fill_with(Buffer::default);
        } else {
            self.workspace.truncate(workspace);
        }
        self.parts.push(part);
        self.launches.append(&mut candidates.swap_remove(chosen).launches);
        Ok(())
    }

    /// Removes the candidates whose library needs a larger workspace than can be allocated now, and
    /// returns their number. The workspace belongs to the queue, which allocates it later.
    fn leave_out_too_large(&self, candidates: &mut Vec<Candidate>) -> Result<usize, EngineError> {
        let fits = |bytes| match Buffer::<u8>::uninitialized(&self.device.context, bytes) {
            Err(error) if error.is_out_of_memory() => Ok(false),
            allocated => allocated.map(|_| true).map_err(failed("allocate memory")),
        };
        let count = candidates.len();
        while let Some(bytes) = candidates.iter().map(Candidate::workspace_bytes).max() {
            if bytes == 0 || fits(bytes)? {
                break;
            }
            candidates.retain(|candidate| candidate.workspace_bytes() < bytes);
        }
        Ok(count - candidates.len())
    }

    /// Returns the index of the candidate that is fastest on the device or was so before, and the
    /// reason in words. Sets the times of those that were timed now. A candidate of a library that
    /// fails is left out. The choice is recorded if it is among all candidates.
    fn fastest(
        &mut self,
        key: &str,
        candidates: &mut [Candidate],
        times: &mut [Option<Duration>],
        are_all: bool,
    ) -> Result<(usize, String), EngineError> {
        let before = self.device.choices.get(key);
        let known = candidates.iter().position(|candidate| Some(&candidate.name) == before.as_ref());
        if let Some(known) = known {
            return Ok((known, format!("the fastest of {} at an earlier time", candidates.len())));
        }
        let operands = match self.operands.take() {
            Some(operands) => operands,
            None => match Operands::new(self.device, &self.reads, &self.writes) {
                // The kernel itself may still fit, because the caller has its operands already.
                Err(EngineError::OutOfMemory { .. }) => {
                    let count = candidates.len();
                    return Ok((0, format!("the library's first of {count}: no memory to time them")));
                }
                operands => operands?,
            },
        };
        let mut failure = None;
        for (candidate, time) in candidates.iter_mut().zip(times.iter_mut()) {
            let kernel = CudaKernel {
                name: self.name.as_str().into(),
                reads: self.reads.clone(),
                writes: self.writes.clone(),
                launches: std::mem::take(&mut candidate.launches),
                workspace: std::mem::take(&mut self.workspace),
                parts: Vec::new(),
            };
            let timed = operands.time(self.device, &kernel);
            CudaKernel { launches: candidate.launches, workspace: self.workspace, .. } = kernel;
            match timed {
                Ok(timed) => *time = Some(timed),
                Err(error) if candidate.name == OWN => return Err(error),
                Err(error) => failure = Some(error),
            }
        }
        self.operands = Some(operands);
        let chosen = match (fastest(times), failure) {
            (Some(chosen), _) => chosen,
            (None, Some(failure)) => return Err(failure),
            (None, None) => 0,
        };
        if are_all {
            let is_candidate = |kept: &str| candidates.iter().any(|candidate| candidate.name == kept);
            self.device.choices.record(key, candidates[chosen].name.clone(), is_candidate);
        }
        Ok((chosen, format!("the fastest of {}", candidates.len())))
    }

    /// Adds a launch with one thread for each of `elements` elements. `kernel` is the family and
    /// name of the GPU function. Fails as `launch` does.
    pub(super) fn for_each(
        &mut self,
        kernel: (Family, &'static str),
        elements: usize,
        arguments: impl Into<Vec<Argument>>,
    ) -> Result<(), EngineError> {
        self.launch(kernel, [elements.div_ceil(THREADS as usize), 1], arguments)
    }

    /// Adds a launch with one warp for each of `rows` rows. `kernel` is the family and name of the
    /// GPU function. Fails as `launch` does.
    pub(super) fn for_each_row(
        &mut self,
        kernel: (Family, &'static str),
        rows: usize,
        arguments: impl Into<Vec<Argument>>,
    ) -> Result<(), EngineError> {
        self.launch(kernel, [rows.div_ceil(THREADS as usize / 32), 1], arguments)
    }

    /// Adds launches that write zeros to all operands that are written, except those of role
    /// `except`.
    pub(super) fn write_zeros(&mut self, except: Role) -> Result<(), EngineError> {
        for operand in 0..self.writes.len() {
            if self.signature.writes.get(operand) != Some(&except) {
                let elements = self.writes[operand].elements;
                let arguments = [size(elements), Argument::Write(operand, 0)];
                self.for_each((Family::Elementwise, "fill_zeros"), elements, arguments)?;
            }
        }
        Ok(())
    }

    /// Returns the kernel with all launches that were added.
    pub(super) fn finish(self) -> CudaKernel {
        CudaKernel {
            name: self.name.into(),
            reads: self.reads,
            writes: self.writes,
            launches: self.launches,
            workspace: self.workspace,
            parts: self.parts,
        }
    }
}

/// Returns a size, such as a number of elements or rows, as a 32-bit argument. It is at most
/// [`MAX_ELEMENTS`].
pub(super) fn size(elements: usize) -> Argument {
    Argument::U32(elements as u32)
}

/// Returns the number of 64 x 64 tiles that cover a matrix.
pub(super) fn tiles(rows: usize, columns: usize) -> usize {
    rows.div_ceil(64) * columns.div_ceil(64)
}
