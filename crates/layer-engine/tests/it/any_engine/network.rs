//! Gradients of all parameters of a whole network, on any engine.

use std::collections::HashMap;

use layer_engine::{
    Engine, KernelSpec, Pass, Precision, Real, Role, Shard, Signature, Storage, initial_parameters,
};
use layer_graph::{LayerGraph, LayerId, LayerKind};

use super::{CONTEXT, classes, download, numbers, pack, upload};

const SAMPLES: usize = 2;

struct NetworkRun<'n, E: Engine> {
    engine: &'n E,
    precision: Precision,
    graph: &'n LayerGraph,
    queue: E::Queue,
    /// Buffers by the layer that owns them. A layer's input is its producer's output.
    buffers: HashMap<(LayerId, Role), E::Buffer>,
}

/// Returns the gradients of the mean loss with respect to the parameters of each layer, for a batch
/// of two pseudorandom samples. `seed` is the seed of the samples.
pub(crate) fn gradients<E: Engine<Scalar: Real>>(
    engine: &E,
    precision: Precision,
    graph: &LayerGraph,
    seed: u64,
) -> Vec<(String, Vec<f64>)> {
    let queue = engine.queue().unwrap();
    let mut run = NetworkRun { engine, precision, graph, queue, buffers: HashMap::new() };
    let ids: Vec<LayerId> = graph.layers().map(|(id, _)| id).collect();
    run.put(graph.input(), Role::Output, &input(graph, seed));
    for &id in &ids[1..] {
        run.load(id);
        for &pass in Pass::forward(graph.layer(id)) {
            run.launch(id, pass);
        }
    }
    for &id in ids[1..].iter().rev() {
        run.gather_gradient(id);
        let wants_input = graph.producers(id) != [graph.input()];
        for &pass in Pass::backward(graph.layer(id), wants_input) {
            run.launch(id, pass);
        }
    }
    let trained = ids.iter().filter(|&&id| graph.layer(id).parameter_count() > 0);
    trained
        .map(|&id| {
            let layer = graph.layer(id);
            let buffer = &run.buffers[&(id, Role::ParameterGradient)];
            (layer.name().to_owned(), download(engine, buffer, layer.parameter_count(), &mut run.queue))
        })
        .collect()
}

fn input(graph: &LayerGraph, seed: u64) -> Vec<f64> {
    let count = SAMPLES * graph.layer(graph.input()).output_shape().elements();
    let consumers = graph.consumers(graph.input());
    match graph.layer(consumers[0].0).kind() {
        LayerKind::Embedding(embedding) => classes(seed, count, embedding.vocabulary),
        _ => numbers(seed, count),
    }
}

impl<E: Engine<Scalar: Real>> NetworkRun<'_, E> {
    fn put(&mut self, id: LayerId, role: Role, values: &[f64]) {
        let scalars = pack(values.to_vec(), self.storage(id, role));
        let buffer = upload(self.engine, &scalars, &mut self.queue);
        self.buffers.insert((id, role), buffer);
    }

    /// Returns the number format of the buffer of a role. That of the network's input is the one
    /// of the layer that reads it.
    fn storage(&self, id: LayerId, role: Role) -> Storage {
        let reader = self.graph.consumers(id).first().copied().filter(|_| id == self.graph.input());
        let (id, role) = reader.map_or((id, role), |(reader, slot)| (reader, Role::Input(slot)));
        self.engine.storage(role, self.graph.layer(id), self.precision)
    }

    /// Uploads the parameters and labels of a layer.
    fn load(&mut self, id: LayerId) {
        let layer = self.graph.layer(id);
        if layer.parameter_count() > 0 && self.graph.parameter_owner(id) == id {
            // All engines get the same numbers, rounded to single precision.
            let values = initial_parameters(layer, 0).into_iter().map(|value| f64::from(value as f32));
            self.put(id, Role::Parameters, &values.collect::<Vec<_>>());
        }
        if layer.label_count() > 0 {
            let count = SAMPLES * layer.label_count();
            self.put(id, Role::Labels, &classes(2, count, layer.input_shapes()[0].innermost()));
        }
    }

    /// Returns the owner and role of the buffer that a layer uses for this role.
    fn place(&self, id: LayerId, role: Role) -> (LayerId, Role) {
        match role {
            Role::Input(slot) => (self.graph.producers(id)[slot], Role::Output),
            Role::Parameters => (self.graph.parameter_owner(id), role),
            Role::OutputGradient => match self.graph.consumers(id)[..] {
                [(consumer, slot)] => (consumer, Role::InputGradient(slot)),
                _ => (id, role),
            },
            _ => (id, role),
        }
    }

    fn launch(&mut self, id: LayerId, pass: Pass) {
        let layer = self.graph.layer(id);
        let signature = Signature::of(layer, pass).unwrap();
        let spec = KernelSpec::Layer { layer, pass, shard: Shard::whole(SAMPLES) };
        let mut kernel = self.engine.prepare(&spec, self.precision).unwrap();
        let mut written: Vec<E::Buffer> = Vec::new();
        for &role in &signature.writes {
            let buffer = self.buffers.remove(&(id, role));
            let scalars = self.storage(id, role).scalars(role.elements(layer, SAMPLES));
            written.push(buffer.unwrap_or_else(|| self.engine.allocate(scalars).unwrap()));
        }
        let places: Vec<_> = signature.reads.iter().map(|&role| self.place(id, role)).collect();
        let reads: Vec<&E::Buffer> = places.iter().map(|place| &self.buffers[place]).collect();
        let mut writes: Vec<&mut E::Buffer> = written.iter_mut().collect();
        self.engine.enqueue(&mut kernel, &reads, &mut writes, &CONTEXT, &mut self.queue).unwrap();
        let places = signature.writes.iter().map(|&role| (id, role));
        self.buffers.extend(places.zip(written));
    }

    /// Computes a layer's output gradient, unless its only consumer wrote it.
    fn gather_gradient(&mut self, id: LayerId) {
        let consumers = self.graph.consumers(id);
        let elements = SAMPLES * self.graph.layer(id).output_shape().elements();
        if consumers.is_empty() {
            self.put(id, Role::OutputGradient, &vec![1.0 / SAMPLES as f64; elements]);
        } else if consumers.len() > 1 {
            let spec = KernelSpec::Sum { terms: consumers.len(), elements };
            let mut kernel = self.engine.prepare(&spec, self.precision).unwrap();
            let mut sum =
                self.engine.allocate(self.storage(id, Role::OutputGradient).scalars(elements)).unwrap();
            let places = consumers.iter().map(|&(consumer, slot)| (consumer, Role::InputGradient(slot)));
            let terms: Vec<&E::Buffer> = places.map(|place| &self.buffers[&place]).collect();
            self.engine.enqueue(&mut kernel, &terms, &mut [&mut sum], &CONTEXT, &mut self.queue).unwrap();
            self.buffers.insert((id, Role::OutputGradient), sum);
        }
    }
}
