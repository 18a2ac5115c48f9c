//! One layer with all its buffers, for tests that run its passes.

use std::collections::BTreeMap;

use layer_engine::random::{Purpose, RandomStream};
use layer_engine::{
    CpuEngine, Engine, EngineError, KernelSpec, LaunchContext, Pass, Real, Role, Shard, Signature,
};
use layer_graph::{AdaptiveAvgPool2d, Conv2d, Layer, LayerGraph, LayerKind, Linear, Permute, Shape};

/// Seed 7, iteration 3.
pub(crate) const CONTEXT: LaunchContext = LaunchContext { seed: 7, iteration: 3, learning_rate: 0.1 };

/// Returns a layer of this kind over inputs of these shapes.
pub(crate) fn layer(kind: impl Into<LayerKind>, inputs: &[Shape]) -> Layer {
    let mut graph = LayerGraph::new("test", inputs[0].clone()).unwrap();
    let input = graph.input();
    let mut ids = vec![input];
    for (index, shape) in inputs.iter().enumerate().skip(1) {
        let kinds: Vec<LayerKind> = match shape.dims() {
            &[positions, features] => {
                let transpose = || Permute { order: vec![1, 0] }.into();
                vec![transpose(), Linear::new(positions).into(), transpose(), Linear::new(features).into()]
            }
            &[channels, height, width] => {
                vec![AdaptiveAvgPool2d { output: [height, width] }.into(), Conv2d::new(channels, 1).into()]
            }
            dims if inputs[0].dims().len() <= 2 => {
                vec![LayerKind::Flatten, Linear::new(dims[0]).into()]
            }
            dims => vec![Conv2d::new(dims[0], 1).into()],
        };
        let mut id = input;
        for (step, kind) in kinds.into_iter().enumerate() {
            id = graph.add(format!("input{index}.{step}"), kind, [id]).unwrap();
        }
        ids.push(id);
    }
    let id = graph.add("layer", kind, ids).unwrap();
    assert_eq!(graph.layer(id).input_shapes(), inputs);
    graph.layer(id).clone()
}

/// Returns pseudorandom numbers in `-1.0..1.0`, the same for the same name.
pub(crate) fn numbers<T: Real>(name: &str, count: usize) -> Vec<T> {
    let mut stream = RandomStream::new(1, Purpose::Synthetic, 0, name, 0);
    (0..count).map(|_| T::narrow(2.0 * stream.uniform() - 1.0)).collect()
}

/// Returns numbers at least `2 / count` apart, in random order. A small change of one number
/// changes neither their order nor a sign.
pub(crate) fn spaced_numbers<T: Real>(name: &str, count: usize) -> Vec<T> {
    let mut numbers: Vec<T> =
        (0..count).map(|i| T::narrow((2.0 * i as f64 + 1.0) / count as f64 - 1.0 + 1e-3)).collect();
    RandomStream::new(1, Purpose::Synthetic, 0, name, 0).shuffle(&mut numbers);
    numbers
}

/// Returns numbers of classes or tokens below `bound`.
fn classes<T: Real>(count: usize, bound: usize) -> Vec<T> {
    (0..count).map(|i| T::narrow(((7 * i + 3) % bound) as f64)).collect()
}

pub(crate) struct SingleLayer<T> {
    pub(crate) layer: Layer,
    pub(crate) shard: Shard,
    pub(crate) engine: CpuEngine<T>,
    pub(crate) buffers: BTreeMap<Role, Vec<T>>,
}

impl<T: Real> SingleLayer<T> {
    /// Creates buffers with pseudorandom inputs, parameters and output gradient; all others are
    /// zero.
    pub(crate) fn new(layer: Layer, shard: Shard, engine: CpuEngine<T>) -> Self {
        let mut buffers = BTreeMap::new();
        let passes =
            [Pass::ForwardMoments, Pass::Forward, Pass::Infer, Pass::BackwardMoments, Pass::Backward];
        for signature in passes.iter().filter_map(|&pass| Signature::of(&layer, pass)) {
            for role in signature.reads.into_iter().chain(signature.writes) {
                let count = role.elements(&layer, shard.samples);
                let buffer = match role {
                    Role::Input(_) => match layer.kind() {
                        LayerKind::Embedding(embedding) => classes(count, embedding.vocabulary),
                        _ => spaced_numbers(&format!("{role:?}"), count),
                    },
                    Role::Parameters | Role::OutputGradient => numbers(&format!("{role:?}"), count),
                    Role::Labels => classes(count, layer.input_shapes()[0].innermost()),
                    _ => vec![T::zero(); count],
                };
                buffers.insert(role, buffer);
            }
        }
        Self { layer, shard, engine, buffers }
    }

    pub(crate) fn run(&mut self, pass: Pass) -> Result<(), EngineError> {
        let spec = KernelSpec::Layer { layer: &self.layer, pass, shard: self.shard };
        let mut kernel = self.engine.prepare(&spec, T::PRECISION)?;
        let signature = Signature::of(&self.layer, pass).unwrap();
        let mut written: Vec<Vec<T>> =
            signature.writes.iter().map(|role| self.buffers.remove(role).unwrap()).collect();
        let reads: Vec<&Vec<T>> = signature.reads.iter().map(|role| &self.buffers[role]).collect();
        let mut writes: Vec<&mut Vec<T>> = written.iter_mut().collect();
        let result = self.engine.enqueue(&mut kernel, &reads, &mut writes, &CONTEXT, &mut ());
        self.buffers.extend(signature.writes.into_iter().zip(written));
        result
    }

    pub(crate) fn forward(&mut self) {
        for &pass in Pass::forward(&self.layer) {
            self.run(pass).unwrap();
        }
    }

    pub(crate) fn backward(&mut self) {
        for &pass in Pass::backward(&self.layer, true) {
            self.run(pass).unwrap();
        }
    }

    pub(crate) fn set(&mut self, role: Role, values: Vec<T>) {
        assert_eq!(self.buffers[&role].len(), values.len());
        self.buffers.insert(role, values);
    }

    /// Replaces a buffer by the part of another layer's buffer that belongs to this shard.
    pub(crate) fn take_samples(&mut self, whole: &Self, role: Role) {
        let per_sample = role.elements(&self.layer, 1);
        let start = (self.shard.first - whole.shard.first) * per_sample;
        let values = whole.buffers[&role][start..start + self.shard.samples * per_sample].to_vec();
        self.set(role, values);
    }
}
