//! The buffers of a rank on its device. *State* is the buffers that outlive an iteration:
//! parameters, velocities and running statistics. *Shared memory* is device memory that several
//! buffers use one after another, not the memory of a CUDA thread block.

use layer_engine::{Engine, Role, initial_parameters, initial_statistics};
use layer_graph::LayerGraph;

use super::{Backend, RankDevice};
use crate::Error;
use crate::program::{BufferId, BufferSpec, Contents, RankProgram};

/// The state of a rank: the buffers of its parameters, velocities and running statistics.
///
/// All programs of the same network and placement share it.
pub struct RankState<B: Backend> {
    /// The state buffers, by buffer id.
    pub(super) buffers: Vec<B::Buffer>,
}

impl<B: Backend> RankState<B> {
    /// Creates the initial state of a rank for a program. Parameters are random and depend on the
    /// seed and their names alone. Velocities are zero.
    ///
    /// # Errors
    /// [`Error::Engine`] if the engine fails or runs out of memory.
    pub fn new(
        device: &mut RankDevice<B>,
        network: &LayerGraph,
        program: &RankProgram,
        seed: u64,
    ) -> Result<Self, Error> {
        let mut buffers = Vec::with_capacity(program.state_buffers);
        for spec in &program.buffers[..program.state_buffers] {
            let mut buffer = device.allocate(spec.elements)?;
            let values = match spec.contents {
                Contents::Operand(id, Role::Parameters) => initial_parameters(network.layer(id), seed),
                Contents::Operand(id, Role::Statistics) => initial_statistics(network.layer(id)),
                // Velocities start at zero.
                _ => Vec::new(),
            };
            let values: Vec<f32> = values.into_iter().map(|value| value as f32).collect();
            device.engine.upload(&values, &mut buffer, &mut device.queue)?;
            buffers.push(buffer);
        }
        Ok(Self { buffers })
    }

    /// Copies a state buffer of `elements` elements to the host.
    ///
    /// # Errors
    /// [`Error::Engine`] if the engine fails.
    pub fn read(
        &self,
        device: &mut RankDevice<B>,
        buffer: BufferId,
        elements: usize,
    ) -> Result<Vec<f32>, Error> {
        let mut host = vec![0.0; elements];
        device.engine.download(&self.buffers[buffer.0], &mut host, &mut device.queue)?;
        Ok(host)
    }

    /// Copies values from the host to the start of a state buffer.
    ///
    /// # Errors
    /// [`Error::Engine`] if the engine fails.
    pub fn write(
        &mut self,
        device: &mut RankDevice<B>,
        buffer: BufferId,
        values: &[f32],
    ) -> Result<(), Error> {
        Ok(device.engine.upload(values, &mut self.buffers[buffer.0], &mut device.queue)?)
    }
}

/// A piece of shared memory.
pub(super) struct SharedPiece<B: Backend> {
    /// The memory, of the size of its largest buffer.
    pub(super) memory: B::Buffer,
    /// The buffer that it contains.
    holds: Option<BufferId>,
}

impl<B: Backend> SharedPiece<B> {
    /// Allocates a piece of shared memory of the given number of elements.
    ///
    /// # Errors
    /// [`Error::Engine`] if the engine runs out of memory.
    pub(super) fn new(device: &mut RankDevice<B>, elements: usize) -> Result<Self, Error> {
        Ok(Self { memory: device.allocate(elements)?, holds: None })
    }
}

/// The buffers of a program: the state, and its own buffers.
pub(super) struct Memory<'a, B: Backend> {
    /// Size and contents of each buffer, by buffer id.
    pub(super) specs: &'a [BufferSpec],
    /// The state buffers, which have the lowest ids.
    pub(super) state: &'a mut [B::Buffer],
    /// The buffers that are not state, by buffer id minus the number of state buffers. Buffers in
    /// shared memory are empty here.
    pub(super) scratch: &'a mut [B::Buffer],
    /// Pieces of shared memory, by the index in [`BufferSpec::shared`].
    pub(super) shared: &'a mut [SharedPiece<B>],
}

impl<B: Backend> Memory<'_, B> {
    /// Returns a buffer. For a buffer in shared memory, returns that memory, whichever buffer it
    /// holds.
    pub(super) fn get(&self, id: BufferId) -> &B::Buffer {
        if let Some(piece) = self.specs[id.0].shared {
            return &self.shared[piece].memory;
        }
        match id.0.checked_sub(self.state.len()) {
            Some(index) => &self.scratch[index],
            None => &self.state[id.0],
        }
    }

    /// Returns a buffer for writing: see [`get`](Self::get).
    pub(super) fn get_mut(&mut self, id: BufferId) -> &mut B::Buffer {
        if let Some(piece) = self.specs[id.0].shared {
            return &mut self.shared[piece].memory;
        }
        match id.0.checked_sub(self.state.len()) {
            Some(index) => &mut self.scratch[index],
            None => &mut self.state[id.0],
        }
    }

    /// Prepares buffers for being written. A piece of shared memory that holds one of them gets its
    /// number of elements.
    ///
    /// # Errors
    /// [`Error::Engine`] if the engine fails.
    pub(super) fn claim(&mut self, ids: &[BufferId], device: &mut RankDevice<B>) -> Result<(), Error> {
        for &id in ids {
            let BufferSpec { elements, shared, .. } = self.specs[id.0];
            let Some(shared) = shared.map(|piece| &mut self.shared[piece]) else { continue };
            if shared.holds.replace(id) != Some(id) {
                device.engine.reuse(&mut shared.memory, elements, &mut device.queue)?;
            }
        }
        Ok(())
    }

    /// Takes buffers out of the memory, so that they can be written while others are read. The
    /// memory has empty buffers in their place until they are [restored](Self::restore).
    pub(super) fn take(&mut self, ids: &[BufferId]) -> Vec<B::Buffer> {
        ids.iter().map(|&id| std::mem::take(self.get_mut(id))).collect()
    }

    /// Puts buffers that [`take`](Self::take) returned for the same ids back into the memory.
    pub(super) fn restore(&mut self, ids: &[BufferId], buffers: Vec<B::Buffer>) {
        for (&id, buffer) in ids.iter().zip(buffers) {
            *self.get_mut(id) = buffer;
        }
    }
}
