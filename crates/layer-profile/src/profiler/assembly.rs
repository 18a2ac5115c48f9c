use std::collections::HashMap;

use layer_engine::{Engine, EngineError, KernelSpec, Pass, Precision, Role, Sgd, Shard, Signature};
use layer_graph::{LayerGraph, LayerId};

use super::fill;
use super::rig::{Launch, Phase, Rig};

/// Common optimiser rule. The values do not affect its time.
const RULE: Sgd = Sgd { momentum: 0.9, weight_decay: 1e-4, clip_norm: None };

/// Key of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    Operand(LayerId, Role),
    /// Gradient of shared parameters.
    SharedGradient(LayerId),
    /// State of the optimiser.
    Velocity(LayerId),
}

/// Builder of a workload: prepares the kernels and buffers of one layer, or of a whole network with
/// its layers connected.
pub(super) struct Assembly<'a, E: Engine> {
    rig: Rig<'a, E>,
    network: &'a LayerGraph,
    batch: usize,
    precision: Precision,
    /// Whether a layer reads the buffers that its neighbours write.
    joined: bool,
    places: HashMap<Place, usize>,
    /// Host staging buffer, reused for all uploads.
    host: Vec<E::Scalar>,
}

impl<'a, E: Engine<Scalar: From<f32>>> Assembly<'a, E> {
    pub(super) fn new(
        engine: &'a E,
        network: &'a LayerGraph,
        batch: usize,
        precision: Precision,
    ) -> Result<Self, EngineError> {
        let rig = Rig { engine, queue: engine.queue()?, buffers: Vec::new(), phases: Default::default() };
        Ok(Self { rig, network, batch, precision, joined: false, places: HashMap::new(), host: Vec::new() })
    }

    /// Builds the workload of one layer, on separate buffers.
    pub(super) fn layer(mut self, id: LayerId) -> Result<Rig<'a, E>, EngineError> {
        self.forward(id)?;
        self.backward(id)?;
        self.update(id)?;
        Ok(self.rig)
    }

    /// Builds the workload of the whole network: all forward passes, all backward passes in
    /// reverse, all updates.
    pub(super) fn network(mut self) -> Result<Rig<'a, E>, EngineError> {
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
        Ok(self.rig)
    }

    fn forward(&mut self, id: LayerId) -> Result<(), EngineError> {
        Pass::forward(self.network.layer(id)).iter().try_for_each(|&pass| self.pass(id, pass, Phase::Forward))
    }

    fn backward(&mut self, id: LayerId) -> Result<(), EngineError> {
        let input = self.network.input();
        let input_gradient = self.network.producers(id).iter().any(|&producer| producer != input);
        let passes = Pass::backward(self.network.layer(id), input_gradient);
        passes.iter().try_for_each(|&pass| self.pass(id, pass, Phase::Backward))
    }

    fn pass(&mut self, id: LayerId, pass: Pass, phase: Phase) -> Result<(), EngineError> {
        let layer = self.network.layer(id);
        let spec = KernelSpec::Layer { layer, pass, shard: Shard::whole(self.batch) };
        // A pass without operands has no kernel; preparing it returns the engine's error.
        let Signature { reads, writes } =
            Signature::of(layer, pass).unwrap_or(Signature { reads: Vec::new(), writes: Vec::new() });
        let operands = |roles: Vec<Role>| roles.into_iter().map(|role| Place::Operand(id, role)).collect();
        self.launch(phase, &spec, operands(reads), operands(writes))
    }

    /// Sums the gradients of an output that several layers read.
    fn join_gradients(&mut self, id: LayerId) -> Result<(), EngineError> {
        let consumers = self.network.consumers(id);
        if consumers.len() < 2 || id == self.network.input() {
            return Ok(());
        }
        let elements = Role::OutputGradient.elements(self.network.layer(id), self.batch);
        let spec = KernelSpec::Sum { terms: consumers.len(), elements };
        let of = |(consumer, slot)| Place::Operand(consumer, Role::InputGradient(slot));
        let terms = consumers.into_iter().map(of).collect();
        self.launch(Phase::Backward, &spec, terms, vec![Place::Operand(id, Role::OutputGradient)])
    }

    /// Sums the gradients of shared parameters.
    fn share_gradient(&mut self, id: LayerId) -> Result<(), EngineError> {
        let users = self.network.parameter_users(id);
        if users.len() < 2 {
            return Ok(());
        }
        let elements = self.network.layer(id).parameter_count();
        let spec = KernelSpec::Sum { terms: users.len(), elements };
        let terms = users.into_iter().map(|user| Place::Operand(user, Role::ParameterGradient)).collect();
        self.launch(Phase::Backward, &spec, terms, vec![Place::SharedGradient(id)])
    }

    /// Adds the optimiser step of a layer that owns parameters.
    fn update(&mut self, id: LayerId) -> Result<(), EngineError> {
        let elements = self.network.own_parameter_count(id);
        if elements == 0 {
            return Ok(());
        }
        let spec = KernelSpec::Sgd { elements, rule: RULE };
        let shared = self.joined && self.network.parameter_users(id).len() > 1;
        let gradient =
            if shared { Place::SharedGradient(id) } else { Place::Operand(id, Role::ParameterGradient) };
        let reads = vec![gradient];
        let writes = vec![Place::Operand(id, Role::Parameters), Place::Velocity(id)];
        self.launch(Phase::Update, &spec, reads, writes)
    }

    fn launch(
        &mut self,
        phase: Phase,
        spec: &KernelSpec<'_>,
        reads: Vec<Place>,
        writes: Vec<Place>,
    ) -> Result<(), EngineError> {
        let kernel = self.rig.engine.prepare(spec, self.precision)?;
        let mut buffers = |places: Vec<Place>| places.into_iter().map(|place| self.buffer(place)).collect();
        let (reads, writes): (Result<_, _>, Result<_, _>) = (buffers(reads), buffers(writes));
        self.rig.phases[phase as usize].push(Launch { kernel, reads: reads?, writes: writes? });
        Ok(())
    }

    /// Returns the index of a buffer, which is allocated and filled on first use.
    fn buffer(&mut self, place: Place) -> Result<usize, EngineError> {
        let place = if self.joined { self.home(place) } else { place };
        if let Some(&position) = self.places.get(&place) {
            return Ok(position);
        }
        let buffer = match place {
            Place::Operand(id, role) => self.filled(id, role)?,
            Place::SharedGradient(id) | Place::Velocity(id) => {
                self.rig.engine.allocate(self.network.layer(id).parameter_count())?
            }
        };
        self.rig.buffers.push(buffer);
        self.places.insert(place, self.rig.buffers.len() - 1);
        Ok(self.rig.buffers.len() - 1)
    }

    /// Returns the key of the buffer shared by connected layers: an input is the producer's output,
    /// the gradient of an output with one reader is the gradient of that reader's input, and shared
    /// parameters are their owner's.
    fn home(&self, place: Place) -> Place {
        match place {
            Place::Operand(id, Role::Input(slot)) => match self.network.producers(id).get(slot) {
                Some(&producer) => Place::Operand(producer, Role::Output),
                None => place,
            },
            Place::Operand(id, Role::OutputGradient) => match self.network.consumers(id)[..] {
                [(consumer, slot)] => Place::Operand(consumer, Role::InputGradient(slot)),
                _ => place,
            },
            Place::Operand(id, Role::Parameters) => {
                Place::Operand(self.network.parameter_owner(id), Role::Parameters)
            }
            _ => place,
        }
    }

    fn filled(&mut self, id: LayerId, role: Role) -> Result<E::Buffer, EngineError> {
        // The input of the network is filled with data suitable for the layer that reads it.
        let reader = self.network.consumers(id).first().copied().filter(|_| id == self.network.input());
        let (id, role) = reader.map_or((id, role), |(reader, slot)| (reader, Role::Input(slot)));
        let layer = self.network.layer(id);
        let mut buffer = self.rig.engine.allocate(role.elements(layer, self.batch))?;
        if let Some(contents) = fill::contents(layer, role, self.batch) {
            contents.write_to(&mut self.host);
            self.rig.engine.upload(&self.host, &mut buffer, &mut self.rig.queue)?;
        }
        Ok(buffer)
    }
}
