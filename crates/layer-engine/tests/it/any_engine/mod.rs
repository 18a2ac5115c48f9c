//! Layers and networks on any engine, for tests that compare engines.

pub(crate) mod network;

use std::collections::BTreeMap;

use layer_engine::{
    Engine, EngineError, KernelSpec, LaunchContext, Pass, Precision, Real, Role, Shard, Signature, Storage,
};
use layer_graph::{Layer, LayerGraph, LayerKind, Shape, SoftmaxCrossEntropy};

/// Seed 7, iteration 3.
pub(crate) const CONTEXT: LaunchContext = LaunchContext { seed: 7, iteration: 3, learning_rate: 0.1 };

/// Returns pseudorandom numbers in `-1.0..1.0` that single precision represents exactly. Each
/// `salt` gives other numbers.
pub(crate) fn numbers(salt: u64, count: usize) -> Vec<f64> {
    let mut state = salt.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f64 / f64::from(1 << 23) - 1.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// Returns pseudorandom numbers of classes or tokens below `bound`.
pub(crate) fn classes(salt: u64, count: usize, bound: usize) -> Vec<f64> {
    let numbers = numbers(salt, count).into_iter();
    numbers.map(|number| ((0.5 + 0.5 * number) * bound as f64).floor()).collect()
}

/// Returns the initial content of a layer's buffer of this role.
pub(crate) fn initial_values(layer: &Layer, role: Role, count: usize) -> Vec<f64> {
    match (role, layer.kind()) {
        (Role::Input(_), LayerKind::Embedding(embedding)) => classes(1, count, embedding.vocabulary),
        (Role::Input(slot), _) => numbers(1 + slot as u64, count),
        (Role::Parameters, _) => numbers(101, count),
        (Role::OutputGradient, _) => numbers(102, count),
        (Role::Labels, _) => classes(2, count, layer.input_shapes()[0].innermost()),
        // Results must overwrite this value. Running statistics start with it.
        _ => vec![0.5; count],
    }
}

/// Returns the scalars that hold values of a number format.
pub(crate) fn pack(values: Vec<f64>, storage: Storage) -> Vec<f64> {
    if storage == Storage::Scalar {
        return values;
    }
    let values: Vec<f32> = values.into_iter().map(|value| value as f32).collect();
    storage.pack(&values).iter().map(|&scalar| f64::from(scalar)).collect()
}

/// Returns the values that scalars hold. `count` is their number.
pub(crate) fn unpack(scalars: Vec<f64>, storage: Storage, count: usize) -> Vec<f64> {
    if storage == Storage::Scalar {
        return scalars;
    }
    let scalars: Vec<f32> = scalars.into_iter().map(|scalar| scalar as f32).collect();
    storage.unpack(&scalars, count).iter().map(|&value| f64::from(value)).collect()
}

pub(crate) fn upload<E: Engine<Scalar: Real>>(engine: &E, values: &[f64], queue: &mut E::Queue) -> E::Buffer {
    let host: Vec<E::Scalar> = values.iter().map(|&value| E::Scalar::narrow(value)).collect();
    let mut buffer = engine.allocate(host.len()).unwrap();
    engine.upload(&host, &mut buffer, queue).unwrap();
    buffer
}

pub(crate) fn download<E: Engine<Scalar: Real>>(
    engine: &E,
    buffer: &E::Buffer,
    count: usize,
    queue: &mut E::Queue,
) -> Vec<f64> {
    let mut host = vec![E::Scalar::default(); count];
    engine.download(buffer, &mut host, queue).unwrap();
    host.into_iter().map(Real::widen).collect()
}

/// One layer with all its buffers on an engine.
pub(crate) struct LayerRun<'e, E: Engine> {
    engine: &'e E,
    precision: Precision,
    layer: Layer,
    shard: Shard,
    queue: E::Queue,
    buffers: BTreeMap<Role, E::Buffer>,
}

impl<'e, E: Engine<Scalar: Real>> LayerRun<'e, E> {
    /// Creates buffers with pseudorandom inputs, parameters and output gradient.
    pub(crate) fn new(engine: &'e E, precision: Precision, layer: &Layer, shard: Shard) -> Self {
        let mut queue = engine.queue().unwrap();
        let mut buffers = BTreeMap::new();
        let passes =
            [Pass::ForwardMoments, Pass::Forward, Pass::Infer, Pass::BackwardMoments, Pass::Backward];
        for signature in passes.iter().filter_map(|&pass| Signature::of(layer, pass)) {
            for role in signature.reads.into_iter().chain(signature.writes) {
                let values = initial_values(layer, role, role.elements(layer, shard.samples));
                let values = engine.image_layout().arrange(layer, role, &values).into_owned();
                let scalars = pack(values, engine.storage(role, layer, precision));
                buffers.entry(role).or_insert_with(|| upload(engine, &scalars, &mut queue));
            }
        }
        Self { engine, precision, layer: layer.clone(), shard, queue, buffers }
    }

    pub(crate) fn run(&mut self, pass: Pass) -> Result<(), EngineError> {
        let spec = KernelSpec::Layer { layer: &self.layer, pass, shard: self.shard };
        let mut kernel = self.engine.prepare(&spec, self.precision)?;
        let signature = Signature::of(&self.layer, pass).unwrap();
        let mut written: Vec<E::Buffer> =
            signature.writes.iter().map(|role| self.buffers.remove(role).unwrap()).collect();
        let reads: Vec<&E::Buffer> = signature.reads.iter().map(|role| &self.buffers[role]).collect();
        let mut writes: Vec<&mut E::Buffer> = written.iter_mut().collect();
        let result = self.engine.enqueue(&mut kernel, &reads, &mut writes, &CONTEXT, &mut self.queue);
        self.buffers.extend(signature.writes.into_iter().zip(written));
        result
    }

    /// Runs the passes of a training step, forward and backward.
    pub(crate) fn step(&mut self, input_gradient: bool) {
        let passes = [Pass::forward(&self.layer), Pass::backward(&self.layer, input_gradient)].concat();
        for pass in passes {
            self.run(pass).unwrap_or_else(|error| panic!("{:?} {pass:?}: {error}", self.layer));
        }
    }

    /// Runs the backward step again after the memory of the forward step's results was reused.
    pub(crate) fn recompute_step(&mut self, input_gradient: bool) {
        let recompute = Signature::of(&self.layer, Pass::Recompute).unwrap();
        for role in recompute.writes {
            let scalars = self.storage(role).scalars(role.elements(&self.layer, self.shard.samples));
            let buffer = self.buffers.get_mut(&role).unwrap();
            // The old memory is freed first: the largest buffers have several hundred megabytes.
            *buffer = E::Buffer::default();
            *buffer = self.engine.allocate(scalars).unwrap();
        }
        self.run(Pass::Recompute).unwrap();
        for &pass in Pass::backward(&self.layer, input_gradient) {
            self.run(pass).unwrap();
        }
    }

    /// Sets the elements of the buffer of a role, given with channels first.
    pub(crate) fn set(&mut self, role: Role, values: &[f64]) {
        let values = self.engine.image_layout().arrange(&self.layer, role, values).into_owned();
        let scalars = pack(values, self.storage(role));
        let host: Vec<E::Scalar> = scalars.into_iter().map(E::Scalar::narrow).collect();
        let buffer = self.buffers.get_mut(&role).unwrap();
        self.engine.upload(&host, buffer, &mut self.queue).unwrap();
    }

    /// Returns the elements of the buffer of a role with channels first.
    pub(crate) fn values(&mut self, role: Role) -> Vec<f64> {
        let count = role.elements(&self.layer, self.shard.samples);
        let storage = self.storage(role);
        let scalars = download(self.engine, &self.buffers[&role], storage.scalars(count), &mut self.queue);
        let values = unpack(scalars, storage, count);
        self.engine.image_layout().restore(&self.layer, role, &values).into_owned()
    }

    /// Returns the number format of the buffer of a role.
    fn storage(&self, role: Role) -> Storage {
        self.engine.storage(role, &self.layer, self.precision)
    }

    /// Returns the roles of the results that must agree between engines.
    pub(crate) fn results(&self) -> Vec<Role> {
        let own = |role: &Role| {
            matches!(
                role,
                Role::Output
                    | Role::Metrics
                    | Role::Moments
                    | Role::GradientMoments
                    | Role::Statistics
                    | Role::InputGradient(_)
                    | Role::ParameterGradient
            )
        };
        self.buffers.keys().copied().filter(own).collect()
    }
}

/// Checks that the in-place passes of a loss layer give the same losses, metrics and gradient as
/// its ordinary passes, bitwise.
pub(crate) fn check_loss_in_place<E: Engine<Scalar: Real>>(
    engine: &E,
    precision: Precision,
    layer: &Layer,
    shard: Shard,
) {
    let mut expected = LayerRun::new(engine, precision, layer, shard);
    let mut got = LayerRun::new(engine, precision, layer, shard);
    expected.step(true);
    got.run(Pass::ForwardInPlace).unwrap();
    for role in [Role::Output, Role::Metrics] {
        assert_eq!(got.values(role), expected.values(role), "{layer:?} of {shard:?}: {role:?}");
    }
    got.run(Pass::BackwardInPlace).unwrap();
    let (gradient, in_place) = (expected.values(Role::InputGradient(0)), got.values(Role::Input(0)));
    assert_eq!(in_place, gradient, "{layer:?} of {shard:?}");
}

/// Loss layers with one and several positions per sample, and few and many classes.
pub(crate) fn losses() -> Vec<Layer> {
    let shapes = [Shape::features(10), Shape::features(1), Shape::sequence(5, 7), Shape::sequence(3, 2_000)];
    let layer = |shape: Shape, rule: SoftmaxCrossEntropy| {
        let mut graph = LayerGraph::new("test", shape).unwrap();
        let id = graph.add("loss", rule, [graph.input()]).unwrap();
        graph.layer(id).clone()
    };
    let rules = [
        SoftmaxCrossEntropy::default(),
        SoftmaxCrossEntropy { label_smoothing: 0.3, ignored_label: Some(1) },
    ];
    shapes.into_iter().flat_map(|shape| rules.clone().map(|rule| layer(shape.clone(), rule))).collect()
}

/// Returns the norm of the difference divided by the norm of `expected`.
pub(crate) fn distance(got: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(got.len(), expected.len());
    let difference: f64 = got.iter().zip(expected).map(|(got, expected)| (got - expected).powi(2)).sum();
    let norm: f64 = expected.iter().map(|expected| expected.powi(2)).sum();
    if difference == 0.0 { 0.0 } else { (difference / norm).sqrt() }
}

/// Returns the maximum absolute difference, infinite if one is not a number.
#[cfg(any(feature = "cuda", feature = "torch"))]
pub(crate) fn largest_difference(got: &[f64], expected: &[f64]) -> f64 {
    let differences = got.iter().zip(expected).map(|(got, expected)| (got - expected).abs());
    differences.fold(0.0, |largest, next| if next.is_nan() { f64::INFINITY } else { largest.max(next) })
}
