//! Builder of the workloads that the profiler times: kernels and buffers of one layer or of a whole
//! network, over a batch of samples on one device.

use std::collections::HashMap;

use layer_engine::{Engine, EngineError, KernelSpec, Pass, Precision, Role, Sgd, Shard, Signature, Storage};
use layer_graph::{Layer, LayerGraph, LayerId};

use super::initial_data;
use super::workload::{Launch, Phase, Workload};

/// Common optimiser rule. The values do not affect its time.
const RULE: Sgd = Sgd { momentum: 0.9, weight_decay: 1e-4, clip_norm: None };

/// Key of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum BufferKey {
    /// Buffer in a role of a layer, such as its input or its parameters.
    Operand(LayerId, Role),
    /// Gradient of shared parameters.
    SharedGradient(LayerId),
    /// Parameters in single precision, of which layers read a copy in 16 bits.
    Master(LayerId),
    /// State of the optimiser.
    Velocity(LayerId),
}

/// Builder of a workload: prepares the kernels and buffers of one layer, or of a whole network in
/// which each layer reads the buffers that its neighbours write.
pub(super) struct WorkloadBuilder<'a, E: Engine> {
    workload: Workload<'a, E>,
    network: &'a LayerGraph,
    /// Part that takes the place of its layer; `None` for whole layers.
    part: Option<&'a Layer>,
    batch: usize,
    precision: Precision,
    /// Whether a layer reads the buffers that its neighbours write.
    joined: bool,
    keys: HashMap<BufferKey, usize>,
    /// Host staging buffer, reused for all uploads.
    host: Vec<E::Scalar>,
}

impl<'a, E: Engine<Scalar: From<f32>>> WorkloadBuilder<'a, E> {
    /// Creates a builder of a workload without kernels and buffers, on a new queue of the engine.
    /// `batch` is the number of samples; `precision` is the number format of the arithmetic.
    ///
    /// # Errors
    /// That of the engine if it cannot create the queue.
    pub(super) fn new(
        engine: &'a E,
        network: &'a LayerGraph,
        batch: usize,
        precision: Precision,
    ) -> Result<Self, EngineError> {
        let workload =
            Workload { engine, queue: engine.queue()?, buffers: Vec::new(), phases: Default::default() };
        Ok(Self {
            workload,
            network,
            part: None,
            batch,
            precision,
            joined: false,
            keys: HashMap::new(),
            host: Vec::new(),
        })
    }

    /// Builds the workload of one layer, or of a part of it. It allocates all buffers of the layer.
    ///
    /// # Errors
    /// That of the engine if a kernel cannot be prepared or a buffer cannot be allocated or filled.
    pub(super) fn layer(
        mut self,
        id: LayerId,
        part: Option<&'a Layer>,
    ) -> Result<Workload<'a, E>, EngineError> {
        self.part = part;
        self.forward(id)?;
        self.backward(id)?;
        self.update(id)?;
        Ok(self.workload)
    }

    /// Builds the workload of the whole network: all forward passes, all backward passes in
    /// reverse, all optimiser steps.
    ///
    /// # Errors
    /// That of the engine if a kernel cannot be prepared or a buffer cannot be allocated or filled.
    pub(super) fn network(mut self) -> Result<Workload<'a, E>, EngineError> {
        self.joined = true;
        for (id, _) in self.network.layers() {
            self.forward(id)?;
        }
        for (id, _) in self.network.layers().rev() {
            self.join_gradients(id)?;
            self.backward(id)?;
        }
        for (id, _) in self.network.layers() {
            self.share_gradient(id)?;
            self.update(id)?;
        }
        Ok(self.workload)
    }

    /// Returns a layer, or the part that takes its place.
    fn of(&self, id: LayerId) -> &'a Layer {
        self.part.unwrap_or_else(|| self.network.layer(id))
    }

    fn forward(&mut self, id: LayerId) -> Result<(), EngineError> {
        Pass::forward(self.of(id)).iter().try_for_each(|&pass| self.pass(id, pass, Phase::Forward))
    }

    fn backward(&mut self, id: LayerId) -> Result<(), EngineError> {
        let input_gradient =
            self.network.producers(id).iter().any(|&producer| !self.network.is_input(producer));
        let passes = Pass::backward(self.of(id), input_gradient);
        passes.iter().try_for_each(|&pass| self.pass(id, pass, Phase::Backward))
    }

    fn pass(&mut self, id: LayerId, pass: Pass, phase: Phase) -> Result<(), EngineError> {
        let layer = self.of(id);
        let spec = KernelSpec::Layer { layer, pass, shard: Shard::whole(self.batch) };
        // A pass without operands has no kernel; preparing it returns the engine's error.
        let Signature { reads, writes } =
            Signature::of(layer, pass).unwrap_or(Signature { reads: Vec::new(), writes: Vec::new() });
        let operands =
            |roles: Vec<Role>| roles.into_iter().map(|role| BufferKey::Operand(id, role)).collect();
        self.launch(phase, (&spec, self.precision), operands(reads), operands(writes))
    }

    /// Sums the gradients of an output that several layers read.
    fn join_gradients(&mut self, id: LayerId) -> Result<(), EngineError> {
        let consumers = self.network.consumers(id);
        if consumers.len() < 2 || self.network.is_input(id) {
            return Ok(());
        }
        let elements = Role::OutputGradient.elements(self.network.layer(id), self.batch);
        let spec = KernelSpec::Sum { terms: consumers.len(), elements };
        let of = |(consumer, slot)| BufferKey::Operand(consumer, Role::InputGradient(slot));
        let terms = consumers.into_iter().map(of).collect();
        let sum = vec![BufferKey::Operand(id, Role::OutputGradient)];
        self.launch(Phase::Backward, (&spec, self.precision), terms, sum)
    }

    /// Sums the gradients of shared parameters.
    fn share_gradient(&mut self, id: LayerId) -> Result<(), EngineError> {
        let users = self.network.parameter_users(id);
        if users.len() < 2 {
            return Ok(());
        }
        let elements = self.network.layer(id).parameter_count();
        let spec = KernelSpec::Sum { terms: users.len(), elements };
        let terms = users.into_iter().map(|user| BufferKey::Operand(user, Role::ParameterGradient)).collect();
        let sum = vec![BufferKey::SharedGradient(id)];
        self.launch(Phase::Backward, (&spec, Precision::F32), terms, sum)
    }

    /// Adds the optimiser step of a layer that owns parameters.
    fn update(&mut self, id: LayerId) -> Result<(), EngineError> {
        let owns = self.network.own_parameter_count(id) > 0;
        let elements = if owns { self.of(id).parameter_count() } else { 0 };
        if elements == 0 {
            return Ok(());
        }
        let spec = KernelSpec::Sgd { elements: vec![elements], rule: RULE };
        let shared = self.joined && self.network.parameter_users(id).len() > 1;
        let gradient = if shared {
            BufferKey::SharedGradient(id)
        } else {
            BufferKey::Operand(id, Role::ParameterGradient)
        };
        let reads = vec![gradient];
        let mut writes = vec![BufferKey::Operand(id, Role::Parameters)];
        if self.storage(id, Role::Parameters) != Storage::Scalar {
            writes.push(BufferKey::Master(id));
        }
        writes.push(BufferKey::Velocity(id));
        self.launch(Phase::Update, (&spec, self.precision), reads, writes)
    }

    fn launch(
        &mut self,
        phase: Phase,
        (spec, precision): (&KernelSpec<'_>, Precision),
        reads: Vec<BufferKey>,
        writes: Vec<BufferKey>,
    ) -> Result<(), EngineError> {
        let kernel = self.workload.engine.prepare(spec, precision)?;
        let mut buffers = |keys: Vec<BufferKey>| keys.into_iter().map(|key| self.buffer(key)).collect();
        let (reads, writes): (Result<_, _>, Result<_, _>) = (buffers(reads), buffers(writes));
        self.workload.phases[phase as usize].push(Launch { kernel, reads: reads?, writes: writes? });
        Ok(())
    }

    /// Returns the index of a buffer, which is allocated and filled on first use.
    fn buffer(&mut self, key: BufferKey) -> Result<usize, EngineError> {
        let key = if self.joined { self.connected(key) } else { key };
        if let Some(&position) = self.keys.get(&key) {
            return Ok(position);
        }
        let buffer = match key {
            BufferKey::Operand(id, role) => self.filled(id, role)?,
            BufferKey::SharedGradient(id) | BufferKey::Master(id) | BufferKey::Velocity(id) => {
                self.workload.engine.allocate(self.of(id).parameter_count())?
            }
        };
        self.workload.buffers.push(buffer);
        self.keys.insert(key, self.workload.buffers.len() - 1);
        Ok(self.workload.buffers.len() - 1)
    }

    /// Returns the key of the buffer shared by connected layers: an input is the producer's output,
    /// the gradient of an output with one reader is the gradient of that reader's input, and shared
    /// parameters are their owner's.
    fn connected(&self, key: BufferKey) -> BufferKey {
        match key {
            BufferKey::Operand(id, Role::Input(slot)) => match self.network.producers(id).get(slot) {
                Some(&producer) => BufferKey::Operand(producer, Role::Output),
                None => key,
            },
            BufferKey::Operand(id, Role::OutputGradient) => match self.network.consumers(id)[..] {
                [(consumer, slot)] => BufferKey::Operand(consumer, Role::InputGradient(slot)),
                _ => key,
            },
            BufferKey::Operand(id, Role::Parameters) => {
                BufferKey::Operand(self.network.parameter_owner(id), Role::Parameters)
            }
            _ => key,
        }
    }

    /// Returns the number format of the buffer of a role.
    fn storage(&self, id: LayerId, role: Role) -> Storage {
        self.workload.engine.storage(role, self.of(id), self.precision)
    }

    fn filled(&mut self, id: LayerId, role: Role) -> Result<E::Buffer, EngineError> {
        // An input of the network is filled with data suitable for the layer that reads it.
        let reader = self.network.consumers(id).first().copied().filter(|_| self.network.is_input(id));
        let (id, role) = reader.map_or((id, role), |(reader, slot)| (reader, Role::Input(slot)));
        let layer = self.of(id);
        let storage = self.storage(id, role);
        let scalars = storage.scalars(role.elements(layer, self.batch));
        let mut buffer = self.workload.engine.allocate(scalars)?;
        if let Some(contents) = initial_data::initial_data(layer, role, self.batch) {
            contents.write_to(storage, &mut self.host);
            self.workload.engine.upload(&self.host, &mut buffer, &mut self.workload.queue)?;
        }
        Ok(buffer)
    }
}
