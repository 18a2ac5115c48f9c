//! Gradients of all parameters of a whole network, on any engine.

use std::collections::HashMap;
use std::ops::Range;

use layer_engine::{
    Engine, KernelSpec, Pass, Precision, Real, Role, Shard, Signature, Storage, initial_parameters,
};
use layer_graph::{LayerGraph, LayerId, LayerKind};

use super::{CONTEXT, classes, download, numbers, pack, upload};

const SAMPLES: usize = 2;

/// One training step of a network: prepared kernels in order, and their operands.
pub(crate) struct NetworkRun<'n, E: Engine> {
    engine: &'n E,
    precision: Precision,
    graph: &'n LayerGraph,
    pub(crate) queue: E::Queue,
    /// Buffers by the layer that owns them. A layer's input is its producer's output.
    buffers: HashMap<(LayerId, Role), E::Buffer>,
    pub(crate) calls: Vec<Call<E::Kernel>>,
}

/// A prepared kernel and the places of its operands.
pub(crate) struct Call<K> {
    kernel: K,
    reads: Vec<(LayerId, Role)>,
    writes: Vec<(LayerId, Role)>,
}

/// Returns the gradients of the mean loss with respect to the parameters of each layer, for a batch
/// of two pseudorandom samples. `seed` is the seed of the samples.
pub(crate) fn gradients<E: Engine<Scalar: Real>>(
    engine: &E,
    precision: Precision,
    graph: &LayerGraph,
    seed: u64,
) -> Vec<(String, Vec<f64>)> {
    let mut run = NetworkRun::new(engine, precision, graph, seed);
    run.enqueue(0..run.calls.len());
    run.gradients()
}

fn input(graph: &LayerGraph, seed: u64) -> Vec<f64> {
    let count = SAMPLES * graph.layer(graph.input()).output_shape().elements();
    let consumers = graph.consumers(graph.input());
    match graph.layer(consumers[0].0).kind() {
        LayerKind::Embedding(embedding) => classes(seed, count, embedding.vocabulary),
        _ => numbers(seed, count),
    }
}

impl<'n, E: Engine<Scalar: Real>> NetworkRun<'n, E> {
    /// Prepares a step over two pseudorandom samples. `seed` is the seed of the samples.
    pub(crate) fn new(engine: &'n E, precision: Precision, graph: &'n LayerGraph, seed: u64) -> Self {
        let (queue, buffers) = (engine.queue().unwrap(), HashMap::new());
        let mut run = Self { engine, precision, graph, queue, buffers, calls: Vec::new() };
        let ids: Vec<LayerId> = graph.layers().map(|(id, _)| id).collect();
        run.put(graph.input(), Role::Output, &input(graph, seed));
        for &id in &ids[1..] {
            run.load(id);
            for &pass in Pass::forward(graph.layer(id)) {
                run.add_pass(id, pass);
            }
        }
        for &id in ids[1..].iter().rev() {
            run.add_output_gradient(id);
            let wants_input = graph.producers(id) != [graph.input()];
            for &pass in Pass::backward(graph.layer(id), wants_input) {
                run.add_pass(id, pass);
            }
        }
        run
    }

    /// Enqueues some of the kernels.
    pub(crate) fn enqueue(&mut self, calls: Range<usize>) {
        for call in &mut self.calls[calls] {
            let mut written: Vec<E::Buffer> =
                call.writes.iter().map(|place| self.buffers.remove(place).unwrap()).collect();
            let reads: Vec<&E::Buffer> = call.reads.iter().map(|place| &self.buffers[place]).collect();
            let mut writes: Vec<&mut E::Buffer> = written.iter_mut().collect();
            self.engine.enqueue(&mut call.kernel, &reads, &mut writes, &CONTEXT, &mut self.queue).unwrap();
            self.buffers.extend(call.writes.iter().copied().zip(written));
        }
    }

    /// Returns the gradients with respect to the parameters of each layer.
    pub(crate) fn gradients(&mut self) -> Vec<(String, Vec<f64>)> {
        let Self { engine, graph, buffers, queue, .. } = self;
        let trained = graph.layers().filter(|(_, layer)| layer.parameter_count() > 0);
        trained
            .map(|(id, layer)| {
                let buffer = &buffers[&(id, Role::ParameterGradient)];
                let values = download(*engine, buffer, layer.parameter_count(), queue);
                let values = engine.image_layout().restore(layer, Role::ParameterGradient, &values);
                (layer.name().to_owned(), values.into_owned())
            })
            .collect()
    }

    /// Overwrites the gradients, so that later ones cannot be those of an earlier run.
    #[cfg(feature = "cuda")]
    pub(crate) fn spoil_gradients(&mut self) {
        let graph = self.graph;
        for (id, layer) in graph.layers().filter(|(_, layer)| layer.parameter_count() > 0) {
            let values: Vec<E::Scalar> = vec![E::Scalar::narrow(1e30); layer.parameter_count()];
            let buffer = self.buffers.get_mut(&(id, Role::ParameterGradient)).unwrap();
            self.engine.upload(&values, buffer, &mut self.queue).unwrap();
        }
    }

    fn put(&mut self, id: LayerId, role: Role, values: &[f64]) {
        let values = self.engine.image_layout().arrange(self.graph.layer(id), role, values).into_owned();
        let scalars = pack(values, self.storage(id, role));
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

    /// Adds a kernel, and allocates the operands that it writes and that do not exist yet.
    fn add(&mut self, spec: &KernelSpec<'_>, reads: Vec<(LayerId, Role)>, writes: Vec<(LayerId, Role)>) {
        let kernel = self.engine.prepare(spec, self.precision).unwrap();
        for &(id, role) in &writes {
            let elements = role.elements(self.graph.layer(id), SAMPLES);
            let (engine, scalars) = (self.engine, self.storage(id, role).scalars(elements));
            self.buffers.entry((id, role)).or_insert_with(|| engine.allocate(scalars).unwrap());
        }
        self.calls.push(Call { kernel, reads, writes });
    }

    fn add_pass(&mut self, id: LayerId, pass: Pass) {
        let layer = self.graph.layer(id);
        let signature = Signature::of(layer, pass).unwrap();
        let reads = signature.reads.iter().map(|&role| self.place(id, role)).collect();
        let writes = signature.writes.iter().map(|&role| (id, role)).collect();
        self.add(&KernelSpec::Layer { layer, pass, shard: Shard::whole(SAMPLES) }, reads, writes);
    }

    /// Adds the kernel of a layer's output gradient, unless its only consumer writes it.
    fn add_output_gradient(&mut self, id: LayerId) {
        let consumers = self.graph.consumers(id);
        let elements = SAMPLES * self.graph.layer(id).output_shape().elements();
        if consumers.is_empty() {
            self.put(id, Role::OutputGradient, &vec![1.0 / SAMPLES as f64; elements]);
        } else if consumers.len() > 1 {
            let terms = consumers.iter().map(|&(consumer, slot)| (consumer, Role::InputGradient(slot)));
            let spec = KernelSpec::Sum { terms: consumers.len(), elements };
            self.add(&spec, terms.collect(), vec![(id, Role::OutputGradient)]);
        }
    }
}
