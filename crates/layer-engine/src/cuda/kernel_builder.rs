//! Kernels under preparation. Functions of this module fail with `EngineError::Cuda` if CUDA fails,
//! with `EngineError::OutOfMemory` if the device has no memory for a workspace, and with
//! `EngineError::Library` if a launch would need too many blocks.

use cuda::{Buffer, MAX_ARGUMENTS};

use super::device::Device;
use super::kernel::{Argument, CudaKernel, GpuLaunch, THREADS};
use super::module::Family;
use super::tensors::TensorTable;
use super::{NAME, allocation_failed};
use crate::{EngineError, Role, Signature};

/// Maximum number of elements of an operand. Kernels index elements with 32 bits, and a grid
/// extends up to one block beyond the last element.
const MAX_ELEMENTS: usize = (1 << 31) - 1024;

/// A kernel under preparation: its operands, and the launches that were added so far.
pub(super) struct KernelBuilder<'e> {
    device: &'e Device,
    name: String,
    signature: Signature,
    reads: Vec<usize>,
    writes: Vec<usize>,
    launches: Vec<GpuLaunch>,
    workspace: Vec<Buffer<u32>>,
}

impl<'e> KernelBuilder<'e> {
    /// Creates a kernel without launches. `name` is the kernel's name in error messages. `reads`
    /// and `writes` have the number of elements of each operand; `signature` has their roles, or
    /// none if the kernel belongs to no layer.
    ///
    /// # Errors
    /// [`EngineError::Library`] if an operand has more than [`MAX_ELEMENTS`] elements.
    pub(super) fn new(
        device: &'e Device,
        name: String,
        signature: Signature,
        reads: Vec<usize>,
        writes: Vec<usize>,
    ) -> Result<Self, EngineError> {
        if let Some(&elements) = reads.iter().chain(&writes).find(|elements| **elements > MAX_ELEMENTS) {
            let problem =
                format!("`{name}` has an operand of {elements} elements; the maximum is {MAX_ELEMENTS}");
            return Err(EngineError::Library { engine: NAME, problem });
        }
        Ok(Self { device, name, signature, reads, writes, launches: Vec::new(), workspace: Vec::new() })
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

    /// Allocates `bytes` bytes of zeroed workspace and returns the address. The memory lives as
    /// long as the kernel and the graphs that captured it.
    pub(super) fn workspace(&mut self, bytes: usize) -> Result<Argument, EngineError> {
        let words = bytes.div_ceil(size_of::<u32>());
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
    /// or more than 16 arguments, and [`EngineError::Cuda`] if the GPU function cannot be loaded.
    pub(super) fn launch(
        &mut self,
        (family, name): (Family, &'static str),
        grid: [usize; 2],
        arguments: impl Into<Vec<Argument>>,
    ) -> Result<(), EngineError> {
        if grid.contains(&0) {
            return Ok(());
        }
        let too_many = |_| EngineError::Library {
            engine: NAME,
            problem: format!("`{}` ({name}) would need {grid:?} blocks", self.name),
        };
        let grid =
            [u32::try_from(grid[0]).map_err(too_many)?, u16::try_from(grid[1]).map_err(too_many)?.into()];
        let arguments = arguments.into();
        if arguments.len() > MAX_ARGUMENTS {
            let problem = format!("`{}` ({name}) would have {} arguments", self.name, arguments.len());
            return Err(EngineError::Library { engine: NAME, problem });
        }
        let function = self.device.function(family, name)?;
        self.launches.push(GpuLaunch { function, name, grid, arguments, tensors: None });
        Ok(())
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
        let before = self.launches.len();
        let arguments = [&[Argument::Tensors], arguments].concat();
        self.launch(kernel, [tensors.blocks(), 1], arguments)?;
        // There is none if there are no blocks.
        if let Some(launch) = self.launches.get_mut(before) {
            launch.tensors = Some(tensors);
        }
        Ok(())
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
        for (operand, elements) in self.writes.clone().into_iter().enumerate() {
            if self.signature.writes.get(operand) != Some(&except) {
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
