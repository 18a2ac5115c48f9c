//! Packing of several buffers of a collective into one.

use layer_engine::{Engine, KernelSpec, LaunchContext, Precision};

use super::memory::Memory;
use super::{Backend, RankDevice};
use crate::Error;
use crate::program::{BufferId, RankProgram, Step};

/// Kernels that pack the buffers of one collective step, so that they are reduced or broadcast in
/// one operation. They run on the device's queue of kernels.
pub(super) struct Packing<B: Backend> {
    /// The buffer into which the step's buffers are packed.
    pub(super) packed: BufferId,
    /// Kernel that copies the step's buffers to `packed`.
    pub(super) pack: <B::Engine as Engine>::Kernel,
    /// Kernel that copies `packed` to the step's buffers.
    pub(super) unpack: <B::Engine as Engine>::Kernel,
}

impl<B: Backend> Packing<B> {
    /// Prepares the kernels of a collective step that writes several buffers; `None` for other
    /// steps.
    ///
    /// # Errors
    /// [`Error::Engine`] if the engine lacks the kernels.
    pub(super) fn of_step(
        device: &RankDevice<B>,
        program: &RankProgram,
        step: &Step,
    ) -> Result<Option<Self>, Error> {
        let Some(packed) = step.packed else { return Ok(None) };
        let elements: Vec<usize> = step.writes.iter().map(|id| program.buffers[id.0].elements).collect();
        let pack = device.engine.prepare(&KernelSpec::Pack { elements: elements.clone() }, Precision::F32)?;
        let unpack = device.engine.prepare(&KernelSpec::Unpack { elements }, Precision::F32)?;
        Ok(Some(Self { packed, pack, unpack }))
    }

    /// Enqueues the copy of the step's buffers into the packed buffer, and takes that out of the
    /// memory.
    ///
    /// # Errors
    /// [`Error::Engine`] if the engine fails.
    pub(super) fn pack(
        &mut self,
        step: &Step,
        memory: &mut Memory<'_, B>,
        context: &LaunchContext,
        device: &mut RankDevice<B>,
    ) -> Result<B::Buffer, Error> {
        let mut whole = std::mem::take(memory.get_mut(self.packed));
        let reads: Vec<&B::Buffer> = step.writes.iter().map(|&id| memory.get(id)).collect();
        let RankDevice { engine, queue, .. } = device;
        engine.enqueue(&mut self.pack, &reads, &mut [&mut whole], context, queue)?;
        Ok(whole)
    }

    /// Puts the packed buffer back into the memory, and enqueues the copy of its parts to the
    /// step's buffers.
    ///
    /// # Errors
    /// [`Error::Engine`] if the engine fails.
    pub(super) fn unpack(
        &mut self,
        whole: B::Buffer,
        step: &Step,
        memory: &mut Memory<'_, B>,
        context: &LaunchContext,
        device: &mut RankDevice<B>,
    ) -> Result<(), Error> {
        let mut written = memory.take(&step.writes);
        let mut writes: Vec<&mut B::Buffer> = written.iter_mut().collect();
        let RankDevice { engine, queue, .. } = device;
        let result = engine.enqueue(&mut self.unpack, &[&whole], &mut writes, context, queue);
        memory.restore(&step.writes, written);
        *memory.get_mut(self.packed) = whole;
        Ok(result?)
    }
}
