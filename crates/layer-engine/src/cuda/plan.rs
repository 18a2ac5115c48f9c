//! What a kernel consists of, while it is prepared.

use super::NAME;
use super::device::Device;
use super::kernel::{Argument, CudaKernel, Step, THREADS};
use super::memory::DeviceMemory;
use super::module::Family;
use crate::{EngineError, Role, Signature};

/// The most elements of an operand: kernels count them in 32 bits, and go a block beyond the last one.
const MOST_ELEMENTS: usize = (1 << 31) - 1024;

/// Multiprocessors that a gradient's sums are cut for: the slices depend on shapes alone, so that every device has the same sums.
const BLOCKS: usize = 128;

/// A kernel that is being prepared.
pub(super) struct Plan<'d> {
    device: &'d Device,
    name: String,
    signature: Signature,
    reads: Vec<usize>,
    writes: Vec<usize>,
    steps: Vec<Step>,
    memory: Vec<DeviceMemory>,
}

impl<'d> Plan<'d> {
    /// A plan whose operands have these lengths, and, for a layer, these roles.
    pub(super) fn new(
        device: &'d Device,
        name: String,
        signature: Signature,
        reads: Vec<usize>,
        writes: Vec<usize>,
    ) -> Result<Self, EngineError> {
        if let Some(&elements) = reads.iter().chain(&writes).find(|elements| **elements > MOST_ELEMENTS) {
            let problem =
                format!("`{name}` has an operand of {elements} elements; {MOST_ELEMENTS} are the most");
            return Err(EngineError::Library { engine: NAME, problem });
        }
        Ok(Self { device, name, signature, reads, writes, steps: Vec::new(), memory: Vec::new() })
    }

    /// The operand of a role; null where the pass has none.
    pub(super) fn operand(&self, role: Role) -> Argument {
        let place = |roles: &[Role]| roles.iter().position(|other| *other == role);
        match (place(&self.signature.reads), place(&self.signature.writes)) {
            (Some(operand), _) => Argument::Read(operand, 0),
            (None, Some(operand)) => Argument::Write(operand, 0),
            (None, None) => Argument::NONE,
        }
    }

    /// Memory of the kernel's own.
    pub(super) fn workspace(&mut self, bytes: usize) -> Result<Argument, EngineError> {
        let memory = DeviceMemory::zeros(self.device, bytes.max(1))?;
        Ok(self.keep(memory))
    }

    /// A table of the kernel's own.
    pub(super) fn table(&mut self, numbers: &[u32]) -> Result<Argument, EngineError> {
        let memory = DeviceMemory::table(self.device, numbers)?;
        Ok(self.keep(memory))
    }

    fn keep(&mut self, memory: DeviceMemory) -> Argument {
        let address = memory.address();
        self.memory.push(memory);
        Argument::Address(address)
    }

    /// A launch of so many blocks; of none, there is nothing to launch.
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
        let function = self.device.function(family, name)?;
        self.steps.push(Step { function, grid, arguments: arguments.into() });
        Ok(())
    }

    /// A launch with a thread for each element.
    pub(super) fn for_each(
        &mut self,
        kernel: (Family, &'static str),
        elements: usize,
        arguments: impl Into<Vec<Argument>>,
    ) -> Result<(), EngineError> {
        self.launch(kernel, [elements.div_ceil(THREADS as usize), 1], arguments)
    }

    /// A launch with a warp for each row.
    pub(super) fn for_each_row(
        &mut self,
        kernel: (Family, &'static str),
        rows: usize,
        arguments: impl Into<Vec<Argument>>,
    ) -> Result<(), EngineError> {
        self.launch(kernel, [rows.div_ceil(THREADS as usize / 32), 1], arguments)
    }

    /// Zeros in all operands that are written, but for those of one role.
    pub(super) fn write_zeros(&mut self, except: Role) -> Result<(), EngineError> {
        for (operand, elements) in self.writes.clone().into_iter().enumerate() {
            if self.signature.writes.get(operand) != Some(&except) {
                let arguments = [size(elements), Argument::Write(operand, 0)];
                self.for_each((Family::Elementwise, "fill_zeros"), elements, arguments)?;
            }
        }
        Ok(())
    }

    /// The kernel.
    pub(super) fn finish(self) -> CudaKernel {
        CudaKernel {
            name: self.name.into(),
            reads: self.reads,
            writes: self.writes,
            steps: self.steps,
            _memory: self.memory,
        }
    }
}

/// A size as kernels take it; they are within [`MOST_ELEMENTS`].
pub(super) fn size(elements: usize) -> Argument {
    Argument::U32(elements as u32)
}

/// Tiles of 64 x 64 of a matrix.
pub(super) fn tiles(rows: usize, columns: usize) -> usize {
    rows.div_ceil(64) * columns.div_ceil(64)
}

/// Into how many slices the terms of a product are cut that has so many tiles, and how many terms one has: enough for the device to be
/// busy, but slices of 256 terms at least.
pub(super) fn slices(terms: usize, tiles: usize) -> (usize, usize) {
    let wanted = (BLOCKS / tiles.max(1)).clamp(1, terms.div_ceil(256).max(1));
    // Vectors of four have to be whole ones, and slabs are of 16 terms.
    let slice = terms.div_ceil(wanted).next_multiple_of(16).max(16);
    (terms.div_ceil(slice).max(1), slice)
}
