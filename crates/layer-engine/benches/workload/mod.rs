//! A layer's training step or a network's whole iteration, on any engine.

use std::collections::BTreeMap;

use layer_engine::{
    Engine, EngineError, KernelSpec, LaunchContext, Pass, Precision, Real, Role, Sgd, Shard, Signature,
};
use layer_graph::{Layer, LayerGraph, LayerId, LayerKind};

const CONTEXT: LaunchContext = LaunchContext { seed: 0, iteration: 0, learning_rate: 1e-3 };

/// Key of a buffer: index of the layer, and slot.
type BufferKey = (usize, BufferKind);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum BufferKind {
    Role(Role),
    Velocity,
}

/// A prepared kernel and the keys of its operands.
struct Launch<E: Engine> {
    kernel: E::Kernel,
    reads: Vec<BufferKey>,
    writes: Vec<BufferKey>,
}

/// Kernels that run one after another, with their buffers.
pub(crate) struct Workload<'e, E: Engine> {
    engine: &'e E,
    samples: usize,
    queue: E::Queue,
    launches: Vec<Launch<E>>,
    buffers: BTreeMap<BufferKey, E::Buffer>,
}

impl<'e, E: Engine<Scalar = f32>> Workload<'e, E> {
    /// Prepares the passes of a layer, forward and backward.
    pub(crate) fn layer(engine: &'e E, layer: &Layer, samples: usize) -> Result<Self, EngineError> {
        let mut workload = Self::empty(engine, samples)?;
        let passes = [Pass::forward(layer), Pass::backward(layer, true)].concat();
        for pass in passes {
            workload.add(layer, pass, |role| (0, BufferKind::Role(role)))?;
        }
        Ok(workload)
    }

    /// Prepares an iteration: forward, backward, and a step of gradient descent.
    pub(crate) fn iteration(engine: &'e E, graph: &LayerGraph, samples: usize) -> Result<Self, EngineError> {
        let mut workload = Self::empty(engine, samples)?;
        let ids: Vec<LayerId> = graph.layers().map(|(id, _)| id).collect();
        let number = |id: LayerId| ids.iter().position(|&other| other == id).unwrap_or_default();
        let key = |id: LayerId, role: Role| match (role, &graph.consumers(id)[..]) {
            (Role::Input(slot), _) => (number(graph.producers(id)[slot]), BufferKind::Role(Role::Output)),
            (Role::OutputGradient, &[(consumer, slot)]) => {
                (number(consumer), BufferKind::Role(Role::InputGradient(slot)))
            }
            _ => (number(id), BufferKind::Role(role)),
        };
        for &id in &ids[1..] {
            for &pass in Pass::forward(graph.layer(id)) {
                workload.add(graph.layer(id), pass, |role| key(id, role))?;
            }
        }
        for &id in ids[1..].iter().rev() {
            let wants_input = graph.producers(id) != [graph.input()];
            for &pass in Pass::backward(graph.layer(id), wants_input) {
                workload.add(graph.layer(id), pass, |role| key(id, role))?;
            }
        }
        for &id in ids.iter().filter(|&&id| graph.layer(id).parameter_count() > 0) {
            let elements = graph.layer(id).parameter_count();
            let rule = Sgd { momentum: 0.9, weight_decay: 0.0, clip_norm: None };
            let kernel =
                engine.prepare(&KernelSpec::Sgd { elements: vec![elements], rule }, Precision::F32)?;
            let [gradient, parameters] =
                [Role::ParameterGradient, Role::Parameters].map(|role| (number(id), BufferKind::Role(role)));
            let velocity = (number(id), BufferKind::Velocity);
            workload.buffers.insert(velocity, engine.allocate(elements)?);
            workload.launches.push(Launch {
                kernel,
                reads: vec![gradient],
                writes: vec![parameters, velocity],
            });
        }
        Ok(workload)
    }

    fn empty(engine: &'e E, samples: usize) -> Result<Self, EngineError> {
        Ok(Self { engine, samples, queue: engine.queue()?, launches: Vec::new(), buffers: BTreeMap::new() })
    }

    fn add(&mut self, layer: &Layer, pass: Pass, key: impl Fn(Role) -> BufferKey) -> Result<(), EngineError> {
        let Some(signature) = Signature::of(layer, pass) else { return Ok(()) };
        let spec = KernelSpec::Layer { layer, pass, shard: Shard::whole(self.samples) };
        let kernel = self.engine.prepare(&spec, Precision::F32)?;
        for &role in signature.reads.iter().chain(&signature.writes) {
            if !self.buffers.contains_key(&key(role)) {
                let values = values(layer, role, role.elements(layer, self.samples));
                let mut buffer = self.engine.allocate(values.len())?;
                self.engine.upload(&values, &mut buffer, &mut self.queue)?;
                self.buffers.insert(key(role), buffer);
            }
        }
        let keys = |roles: &[Role]| roles.iter().map(|&role| key(role)).collect();
        let (reads, writes) = (keys(&signature.reads), keys(&signature.writes));
        self.launches.push(Launch { kernel, reads, writes });
        Ok(())
    }

    /// Runs all kernels once.
    pub(crate) fn run(&mut self) -> Result<(), EngineError> {
        for Launch { kernel, reads, writes } in &mut self.launches {
            let take = |key: &BufferKey| self.buffers.get_mut(key).map(std::mem::take).unwrap_or_default();
            let mut written: Vec<E::Buffer> = writes.iter().map(take).collect();
            let reads: Vec<&E::Buffer> = reads.iter().filter_map(|key| self.buffers.get(key)).collect();
            let mut targets: Vec<&mut E::Buffer> = written.iter_mut().collect();
            self.engine.enqueue(kernel, &reads, &mut targets, &CONTEXT, &mut self.queue)?;
            self.buffers.extend(writes.iter().copied().zip(written));
        }
        self.engine.synchronize(&mut self.queue)
    }
}

/// Returns numbers of both signs, so that activations do not treat all of them alike.
fn values(layer: &Layer, role: Role, count: usize) -> Vec<f32> {
    let scale = match role {
        Role::Parameters => (layer.parameter_count() as f32).sqrt().recip(),
        _ => 1.0,
    };
    match (role, layer.kind()) {
        (Role::Labels, _) | (Role::Input(_), LayerKind::Embedding(_)) => vec![1.0; count],
        _ => (0..count).map(|i| f32::narrow((i * 7919 % 1013) as f64 / 506.0 - 1.0) * scale).collect(),
    }
}
