//! Buckets: several buffers of a collective packed into one.

use layer_engine::{Engine, KernelSpec, LaunchContext, Precision};

use super::memory::Memory;
use super::{Backend, RankDevice};
use crate::Error;
use crate::program::{RankProgram, Step};

/// A buffer into which the buffers of one collective step are packed, so that they are reduced or
/// broadcast in one operation.
///
/// The copies run on the device's queue of kernels. The memory is allocated when the program is
/// loaded.
pub(super) struct Bucket<B: Backend> {
    /// The packed buffer. Empty while a collective uses it.
    pub(super) whole: B::Buffer,
    /// Kernel that copies the step's buffers to `whole`.
    pub(super) pack: <B::Engine as Engine>::Kernel,
    /// Kernel that copies `whole` to the step's buffers.
    pub(super) unpack: <B::Engine as Engine>::Kernel,
}

impl<B: Backend> Bucket<B> {
    /// Creates the bucket of a collective step that writes several buffers; `None` for other steps.
    ///
    /// # Errors
    /// [`Error::Engine`] if the engine lacks memory or the kernels.
    pub(super) fn of_step(
        device: &mut RankDevice<B>,
        program: &RankProgram,
        step: &Step,
    ) -> Result<Option<Self>, Error> {
        if !step.is_bucket() {
            return Ok(None);
        }
        let elements: Vec<usize> = step.writes.iter().map(|id| program.buffers[id.0].elements).collect();
        let whole = device.allocate(elements.iter().sum())?;
        let pack = device.engine.prepare(&KernelSpec::Pack { elements: elements.clone() }, Precision::F32)?;
        let unpack = device.engine.prepare(&KernelSpec::Unpack { elements }, Precision::F32)?;
        Ok(Some(Self { whole, pack, unpack }))
    }

    /// Enqueues the copy of the step's buffers into the bucket, and takes the packed buffer out of
    /// it.
    ///
    /// # Errors
    /// [`Error::Engine`] if the engine fails.
    pub(super) fn pack(
        &mut self,
        step: &Step,
        memory: &Memory<'_, B>,
        context: &LaunchContext,
        device: &mut RankDevice<B>,
    ) -> Result<B::Buffer, Error> {
        let reads: Vec<&B::Buffer> = step.writes.iter().map(|&id| memory.get(id)).collect();
        let RankDevice { engine, queue, .. } = device;
        engine.enqueue(&mut self.pack, &reads, &mut [&mut self.whole], context, queue)?;
        Ok(std::mem::take(&mut self.whole))
    }

    /// Puts the packed buffer back into the bucket, and enqueues the copy of its parts to the
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
        self.whole = whole;
        let mut written = memory.take(&step.writes);
        let mut writes: Vec<&mut B::Buffer> = written.iter_mut().collect();
        let RankDevice { engine, queue, .. } = device;
        let result = engine.enqueue(&mut self.unpack, &[&self.whole], &mut writes, context, queue);
        memory.restore(&step.writes, written);
        Ok(result?)
    }
}
