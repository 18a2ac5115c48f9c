//! The buffers of a rank on its device. *State* is the buffers that outlive an iteration:
//! parameters, master parameters, velocities and running statistics.
#![allow(unsafe_code)]

use std::borrow::Cow;

use layer_engine::{Engine, ImageLayout, Role, Storage, initial_parameters, initial_statistics};
use layer_graph::{Layer, LayerGraph, LayerId, LayerTensor};

use super::{Arena, Backend, RankDevice};
use crate::Error;
use crate::program::{BufferId, Contents, Op, RankProgram, Step, check_offsets};

/// The state of a rank: the buffers of its parameters, velocities and running statistics.
///
/// All programs of the same network and placement share it. On the device, the filters of
/// convolutions are in the engine's [`ImageLayout`]; on the host, channels come first.
pub struct RankState<B: Backend> {
    /// The state buffers, by buffer id.
    pub(super) buffers: Vec<B::Buffer>,
    /// Formats of the buffers, by buffer id.
    formats: Vec<Format>,
    /// Identity of this value.
    #[cfg(feature = "cuda")]
    pub(super) identity: super::identity::Identity,
}

/// Number format of a state buffer, and order of its elements.
struct Format {
    storage: Storage,
    /// The layer whose parameters or velocities these are, if the engine has another order than
    /// channels first.
    ordered: Option<(ImageLayout, Layer)>,
}

impl Format {
    /// Returns the scalars of a buffer that holds `values`.
    fn pack<'v>(&self, values: &'v [f32]) -> Cow<'v, [f32]> {
        let Some((layout, layer)) = &self.ordered else { return self.storage.pack(values) };
        match layout.arrange(layer, Role::Parameters, values) {
            Cow::Borrowed(values) => self.storage.pack(values),
            Cow::Owned(values) => Cow::Owned(self.storage.pack(&values).into_owned()),
        }
    }

    /// Returns the first `elements` elements of a buffer that holds `scalars`.
    fn unpack(&self, scalars: &[f32], elements: usize) -> Vec<f32> {
        let values = self.storage.unpack(scalars, elements);
        match &self.ordered {
            Some((layout, layer)) => layout.restore(layer, Role::Parameters, &values).into_owned(),
            None => values.into_owned(),
        }
    }
}

impl<B: Backend> RankState<B> {
    /// Creates the initial state of a rank for a program. Parameters are random and depend on the
    /// seed and their names alone; those of a part of a layer are elements of the whole layer's.
    /// Velocities are zero.
    ///
    /// # Errors
    /// [`Error::Engine`] if the engine fails or runs out of memory.
    pub fn new(
        device: &mut RankDevice<B>,
        network: &LayerGraph,
        program: &RankProgram,
        seed: u64,
    ) -> Result<Self, Error> {
        let layout = device.engine.image_layout();
        let (mut buffers, mut formats) = (Vec::new(), Vec::new());
        for spec in &program.buffers[..program.state_buffers] {
            let mut buffer = device.allocate(spec.scalars())?;
            let values = match spec.contents {
                Contents::Operand(id, Role::Parameters) | Contents::Master(id) => {
                    let whole = initial_parameters(network.layer(id), seed);
                    own_elements(network, program, (id, Role::Parameters), &whole)
                }
                Contents::Operand(id, Role::Statistics) => {
                    let whole = initial_statistics(network.layer(id));
                    own_elements(network, program, (id, Role::Statistics), &whole)
                }
                // Velocities start at zero.
                _ => Vec::new(),
            };
            let of_parameters = match spec.contents {
                Contents::Operand(id, Role::Parameters) | Contents::Master(id) | Contents::Velocity(id)
                    if layout != ImageLayout::ChannelsFirst =>
                {
                    Some((layout, program.layer(network, id).clone()))
                }
                _ => None,
            };
            let format = Format { storage: spec.storage, ordered: of_parameters };
            device.engine.upload(&format.pack(&values), &mut buffer, &mut device.queue)?;
            buffers.push(buffer);
            formats.push(format);
        }
        Ok(Self {
            buffers,
            formats,
            #[cfg(feature = "cuda")]
            identity: super::identity::Identity::new(),
        })
    }

    /// Copies a state buffer of `elements` elements to the host. Filters have their channels first.
    ///
    /// # Errors
    /// [`Error::Engine`] if the engine fails.
    pub fn read(
        &self,
        device: &mut RankDevice<B>,
        buffer: BufferId,
        elements: usize,
    ) -> Result<Vec<f32>, Error> {
        let format = &self.formats[buffer.0];
        let mut host = vec![0.0; format.storage.scalars(elements)];
        device.engine.download(&self.buffers[buffer.0], &mut host, &mut device.queue)?;
        Ok(format.unpack(&host, elements))
    }

    /// Copies values from the host to a state buffer, rounded to its number format. Filters have
    /// their channels first.
    ///
    /// # Errors
    /// [`Error::Engine`] if the engine fails.
    pub fn write(
        &mut self,
        device: &mut RankDevice<B>,
        buffer: BufferId,
        values: &[f32],
    ) -> Result<(), Error> {
        let scalars = self.formats[buffer.0].pack(values);
        Ok(device.engine.upload(&scalars, &mut self.buffers[buffer.0], &mut device.queue)?)
    }
}

/// Returns the elements of a layer's parameters or statistics that a rank holds. `whole` are those
/// of the whole layer.
fn own_elements(
    network: &LayerGraph,
    program: &RankProgram,
    (id, role): (LayerId, Role),
    whole: &[f64],
) -> Vec<f32> {
    let mut own = Vec::new();
    let mut rest = whole;
    for (tensor, held) in program.tensors(network, id, role) {
        let (values, others) = rest.split_at(LayerTensor::elements(&tensor));
        rest = others;
        for run in held.runs() {
            own.extend(values[run].iter().map(|&value| value as f32));
        }
    }
    own
}

/// Allocates the arena of a rank. `programs` are the programs of a rotation, with the same buffers.
///
/// # Errors
/// [`Error::Program`] if buffers that are needed at the same time share memory. [`Error::Engine`]
/// or [`Error::Collectives`] if the device runs out of memory.
pub(super) fn allocate_arena<B: Backend>(
    device: &mut RankDevice<B>,
    programs: &[&RankProgram],
) -> Result<B::Arena, Error> {
    check_offsets(programs)?;
    device.allocate_arena(programs.first().map_or(0, |program| program.arena_elements))
}

/// Returns the buffers of a program that are not state, by buffer id minus the number of state
/// buffers. `arena` is that of the program.
///
/// # Errors
/// If the arena is shorter.
pub(super) fn scratch_buffers<B: Backend>(
    arena: &B::Arena,
    program: &RankProgram,
) -> Result<Vec<B::Buffer>, Error> {
    let scratch = program.buffers[program.state_buffers..].iter();
    scratch
        .map(|spec| {
            // SAFETY: as checked when the arena was allocated, two buffers overlap only if the last
            // step that uses one has finished before the first step that uses the other starts.
            // Steps run in the order of their lanes, after the steps that they depend on. A program
            // with a collective that was started and not completed does not run again.
            unsafe { arena.part(spec.offset.unwrap_or_default(), spec.scalars()) }
        })
        .collect()
}

/// Returns another handle of the buffer that a collective step reads: while the collective owns it,
/// other steps may read the buffer, too. `None` for other steps. `arena` is that of the program.
///
/// # Errors
/// If the arena is shorter.
pub(super) fn sent_buffer<B: Backend>(
    arena: &B::Arena,
    program: &RankProgram,
    step: &Step,
) -> Result<Option<B::Buffer>, Error> {
    let (Op::Collective(_), Some(id)) = (&step.op, step.reads.first()) else { return Ok(None) };
    let spec = &program.buffers[id.0];
    // SAFETY: the handle is read by this step only, which is ordered after and before the steps
    // that write the buffer.
    unsafe { arena.part(spec.offset.unwrap_or_default(), spec.scalars()) }.map(Some)
}

/// The buffers of a program: the state, and its own buffers.
pub(super) struct Memory<'a, B: Backend> {
    /// The state buffers, which have the lowest ids.
    pub(super) state: &'a mut [B::Buffer],
    /// The buffers that are not state, by buffer id minus the number of state buffers.
    pub(super) scratch: &'a mut [B::Buffer],
    /// Whether a collective has started and is not complete.
    pub(super) is_transferring: &'a mut bool,
}

impl<B: Backend> Memory<'_, B> {
    /// Returns a buffer.
    pub(super) fn get(&self, id: BufferId) -> &B::Buffer {
        match id.0.checked_sub(self.state.len()) {
            Some(index) => &self.scratch[index],
            None => &self.state[id.0],
        }
    }

    /// Returns a buffer for writing: see [`get`](Self::get).
    pub(super) fn get_mut(&mut self, id: BufferId) -> &mut B::Buffer {
        match id.0.checked_sub(self.state.len()) {
            Some(index) => &mut self.scratch[index],
            None => &mut self.state[id.0],
        }
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
