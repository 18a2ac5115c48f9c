//! Memory of programs, compared with the allocations of the runtime.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use collectives::{Group, HostArena, HostBuffer, ThreadCommunicator, ThreadWorld};
use deeppool::Error;
use deeppool::program::{
    BatchPart, LowerOptions, PartialBackpropagation, PartialDepth, Placement, RankMemory, lower_rotation,
    lower_training, possible_checkpoints,
};
use deeppool::runtime::{Backend, BatchSource, CpuThreads, Iterations, LoadedProgram, RankDevice, RankState};
use gpu_mux::{CpuDriver, Policy};
use layer_engine::{
    CpuEngine, DeviceDescription, Engine, EngineError, KernelSpec, LaunchContext, Precision, Sgd,
};
use layer_graph::{BatchNorm, Conv2d, LayerGraph, LayerId, LayerKind, Linear, Shape, zoo};
use proptest::prelude::*;

/// The CPU engine, with counters of the allocated bytes and of the prepared kernels.
#[derive(Clone, Default)]
pub(super) struct CountingEngine {
    engine: CpuEngine<f32, HostBuffer<f32>>,
    bytes: Arc<AtomicU64>,
    kernels: Arc<AtomicU64>,
    /// The allocated arenas, in their order.
    pub(super) arenas: Arc<Mutex<Vec<Arc<HostArena<f32>>>>>,
}

impl Engine for CountingEngine {
    type Scalar = f32;
    type Buffer = HostBuffer<f32>;
    type Queue = ();
    type Kernel = <CpuEngine<f32, HostBuffer<f32>> as Engine>::Kernel;

    fn describe(&self) -> DeviceDescription {
        self.engine.describe()
    }

    fn allocate(&self, elements: usize) -> Result<HostBuffer<f32>, EngineError> {
        self.bytes.fetch_add(4 * elements as u64, Ordering::Relaxed);
        self.engine.allocate(elements)
    }

    fn queue(&self) -> Result<(), EngineError> {
        self.engine.queue()
    }

    fn upload(&self, host: &[f32], buffer: &mut HostBuffer<f32>, queue: &mut ()) -> Result<(), EngineError> {
        self.engine.upload(host, buffer, queue)
    }

    fn download(
        &self,
        buffer: &HostBuffer<f32>,
        host: &mut [f32],
        queue: &mut (),
    ) -> Result<(), EngineError> {
        self.engine.download(buffer, host, queue)
    }

    fn prepare(&self, spec: &KernelSpec<'_>, precision: Precision) -> Result<Self::Kernel, EngineError> {
        self.kernels.fetch_add(1, Ordering::Relaxed);
        self.engine.prepare(spec, precision)
    }

    fn enqueue(
        &self,
        kernel: &mut Self::Kernel,
        reads: &[&HostBuffer<f32>],
        writes: &mut [&mut HostBuffer<f32>],
        context: &LaunchContext,
        queue: &mut (),
    ) -> Result<(), EngineError> {
        self.engine.enqueue(kernel, reads, writes, context, queue)
    }

    fn synchronize(&self, queue: &mut ()) -> Result<(), EngineError> {
        self.engine.synchronize(queue)
    }
}

pub(super) struct CountingThreads;

impl Backend for CountingThreads {
    type Buffer = HostBuffer<f32>;
    type Engine = CountingEngine;
    type Communicator = ThreadCommunicator;
    type Arena = Arc<HostArena<f32>>;

    const IS_SYNCHRONOUS: bool = true;

    fn allocate_arena(engine: &CountingEngine, elements: usize) -> Result<Self::Arena, Error> {
        let arena = HostArena::new(elements)?;
        engine.bytes.fetch_add(4 * elements as u64, Ordering::Relaxed);
        engine.arenas.lock().unwrap().push(Arc::clone(&arena));
        Ok(arena)
    }

    fn communication_queue(_: &CountingEngine) -> Result<(), Error> {
        Ok(())
    }

    fn communicate_after((): &mut (), (): &mut ()) -> Result<(), Error> {
        Ok(())
    }
}

/// Returns a generator of pseudorandom numbers below a bound.
pub(crate) fn generator(mut state: u64) -> impl FnMut(usize) -> usize {
    move |count: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % count
    }
}

/// Returns a placement of each layer on a random list of some of the ranks.
pub(crate) fn random_placement(
    network: &LayerGraph,
    ranks: usize,
    mut below: impl FnMut(usize) -> usize,
) -> Placement {
    let mut list = || {
        let mut all: Vec<usize> = (0..ranks).collect();
        (1..ranks).for_each(|place| all.swap(place, below(place + 1)));
        all.truncate(1 + below(ranks));
        all
    };
    let lists = (1..network.len()).map(|_| list()).collect();
    Placement::new(network, ranks, lists).unwrap()
}

/// Returns the names of the possible checkpoints that are chosen by their index.
pub(crate) fn chosen_checkpoints(network: &LayerGraph, chosen: Vec<bool>) -> Vec<String> {
    let possible = possible_checkpoints(network).into_iter().zip(chosen);
    let chosen = possible.filter(|(_, chosen)| *chosen);
    chosen.map(|(id, _)| network.layer(id).name().to_owned()).collect()
}

/// Returns a random network of images of `side` x `side` pixels, with forks, joins, an input that
/// several layers read, and shared parameters.
pub(crate) fn random_network(side: usize, mut below: impl FnMut(usize) -> usize) -> LayerGraph {
    let mut net = LayerGraph::new("random", Shape::image(2, side, side)).unwrap();
    let mut layers: Vec<LayerId> = vec![net.input()];
    for index in 0..=below(8) {
        let name = format!("layer{index}");
        let producer = layers[below(layers.len())];
        let layer = match below(6) {
            0 | 1 => net.add(&name, Conv2d::new(2, 3).padding(1), [producer]),
            2 => net.add(&name, LayerKind::Relu, [producer]),
            3 => net.add(&name, LayerKind::BatchNorm(BatchNorm::default()), [producer]),
            4 => net.add(&name, LayerKind::Concat, [producer, producer]),
            _ => net.add(&name, LayerKind::Concat, [producer, layers[below(layers.len())]]),
        };
        layers.push(layer.unwrap());
    }
    let ends: Vec<LayerId> = layers.iter().copied().filter(|&id| net.consumers(id).is_empty()).collect();
    let end = if let [only] = ends[..] { only } else { net.add("ends", LayerKind::Concat, ends).unwrap() };
    let flat = net.add("flat", LayerKind::Flatten, [end]).unwrap();
    let a = net.add("a", Linear::new(6), [flat]).unwrap();
    let b = net.add("b", Linear::new(6), [a]).unwrap();
    let c = net.add_tied("c", Linear::new(6), [b], b).unwrap();
    net.add("loss", LayerKind::CROSS_ENTROPY, [c]).unwrap();
    net
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("DEEPPOOL_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(64),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn predicted_memory_is_what_the_runtime_allocates(
        seed: u64,
        ranks in 1usize..5,
        batch in 4usize..12,
        micro_batches in 1usize..4,
        bucket_bytes in prop::sample::select(vec![1, 500, 25 << 20]),
        overlap_all_reduce: bool,
        (clip, halves) in any::<(bool, bool)>(),
        checkpoints in prop::collection::vec(any::<bool>(), 16),
    ) {
        let mut below = generator(seed);
        let network = random_network(4, &mut below);
        let placement = random_placement(&network, ranks, &mut below);
        let optimizer = Sgd { momentum: 0.9, weight_decay: 0.0, clip_norm: clip.then_some(1.0) };
        let checkpoints = chosen_checkpoints(&network, checkpoints);
        let options =
            LowerOptions::default()
                .with_optimizer(optimizer)
                .with_overlap_all_reduce(overlap_all_reduce)
                .with_bucket_bytes(bucket_bytes)
                .with_micro_batches(micro_batches)
                .with_checkpoints(checkpoints)
                .with_precision(if halves { Precision::Bf16 } else { Precision::F32 });
        let program = lower_training(&network, &placement, batch, &options).unwrap();
        let world = ThreadWorld::new(ranks).with_timeout(Duration::from_secs(60));
        let allocated = world.run(|communicator| {
            let engine = CountingEngine::default();
            let rank = communicator.rank();
            let mut device = RankDevice::<CountingThreads>::new(engine.clone()).unwrap();
            let loaded =
                LoadedProgram::new(&mut device, Some(&communicator), &network, &program, rank).unwrap();
            let _state = RankState::new(&mut device, &network, loaded.program(), 0).unwrap();
            engine.bytes.load(Ordering::Relaxed)
        });
        let predicted: Vec<u64> = program.ranks.iter().map(|rank| rank.memory().total_bytes()).collect();
        prop_assert_eq!(&predicted, &allocated);
        prop_assert_eq!(program.memory_peak().total_bytes(), *predicted.iter().max().unwrap());
    }
}

/// With partial backpropagation, the iterations of a rotation share the kernels of forward steps,
/// of optimiser steps, and of the backward steps of each layer in any role.
#[test]
fn equal_steps_of_iterations_share_one_kernel() {
    let network = zoo::model("digits-cnn").unwrap();
    let placement = Placement::single(&network).unwrap();
    let prepared = |partial: Option<PartialBackpropagation>| {
        let options = LowerOptions::default().with_partial(partial);
        let programs = lower_rotation(&network, &placement, 8, &options).unwrap();
        let engine = CountingEngine::default();
        let mut device = RankDevice::<CountingThreads>::new(engine.clone()).unwrap();
        LoadedProgram::rotation(&mut device, None, &network, &programs, 0).unwrap();
        engine.kernels.load(Ordering::Relaxed)
    };
    let partial = PartialBackpropagation::new(&network, 4, PartialDepth::Layers).unwrap();
    let whole = prepared(None);
    // Each iteration has all forward steps, and all roles at once: only the scaling of gradients
    // differs.
    let scales = prepared(Some(partial.clone())) - whole;
    assert!(scales <= 4 * network.len() as u64, "{scales} beside {whole}");
    // With the whole batch in one role at a time, deeper roles have all kernels of the others.
    let together = prepared(Some(partial.together()));
    assert!(together - whole <= 4 * 3, "{together} and {whole}");
}

/// Bytes a sample that PyTorch 2.11 saves for its backward pass, the loss included, from
/// `benchmarks/pytorch-memory.py`: distinct storages of saved tensors, without parameters. GPT-2
/// has sequences of 1,024 and fused attention.
const SAVED_BY_PYTORCH: [(&str, f64); 6] = [
    ("resnet-50", 85.914e6),
    ("wrn-101-2", 166.797e6),
    ("vgg16", 73.359e6),
    ("inception-v3", 98.185e6),
    ("vit-b-16", 118.165e6),
    ("gpt2", 816.734e6),
];

#[test]
fn a_sample_takes_at_most_a_twentieth_more_memory_than_pytorch_saves() {
    for (model, saved) in SAVED_BY_PYTORCH {
        let network = zoo::model(model).unwrap();
        let placement = Placement::single(&network).unwrap();
        let [few, many] = [4, 36].map(|batch| {
            let program = lower_training(&network, &placement, batch, &LowerOptions::default()).unwrap();
            program.memory_peak().total_bytes()
        });
        let ratio = (many - few) as f64 / 32.0 / saved;
        assert!(ratio < 1.05, "{model}: {ratio:.3}");
    }
}

/// Variable of the process in which [`predicted_memory_is_what_the_process_allocates`] trains,
/// which runs no other test.
const CHILD: &str = "DEEPPOOL_MEMORY_CHILD";

struct ZeroBatches;

impl BatchSource for ZeroBatches {
    fn load(
        &mut self,
        _iteration: u64,
        _part: BatchPart,
        samples: Range<usize>,
        elements: Range<usize>,
        out: &mut Vec<f32>,
    ) -> Result<(), Error> {
        out.resize(samples.len() * elements.len(), 0.0);
        Ok(())
    }
}

const FEATURES: usize = 1_024;

/// Returns the resident memory of this process.
#[cfg(target_os = "linux")]
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() * 1_024
}

/// Trains one iteration. Returns the predicted memory, and the growth of the process.
#[cfg(target_os = "linux")]
fn train_one_iteration() -> (RankMemory, u64) {
    let before = resident_bytes();
    let mut net = LayerGraph::new("wide", Shape::features(FEATURES)).unwrap();
    let mut last = net.input();
    for index in 0..3 {
        last = net.add(format!("fc{index}"), Linear::new(2_048), [last]).unwrap();
        last = net.add(format!("relu{index}"), LayerKind::Relu, [last]).unwrap();
    }
    let scores = net.add("scores", Linear::new(10), [last]).unwrap();
    net.add("loss", LayerKind::CROSS_ENTROPY, [scores]).unwrap();
    let placement = Placement::single(&net).unwrap();
    let program = lower_training(&net, &placement, 1_024, &LowerOptions::default()).unwrap();
    let mut device = RankDevice::<CpuThreads>::new(CpuEngine::new()).unwrap();
    let mut loaded = LoadedProgram::new(&mut device, None, &net, &program, 0).unwrap();
    let mut state = RankState::new(&mut device, &net, loaded.program(), 0).unwrap();
    let context = LaunchContext { seed: 0, iteration: 0, learning_rate: 0.03 };
    let mut job = Iterations::new(&mut device, &mut loaded, &mut state, ZeroBatches, (), context, 1);
    CpuDriver::<Iterations<'_, CpuThreads, ZeroBatches, ()>>::new(Policy::default()).run(&mut job).unwrap();
    (program.memory_peak(), resident_bytes() - before)
}

#[test]
#[cfg(target_os = "linux")]
fn predicted_memory_is_what_the_process_allocates() {
    if std::env::var_os(CHILD).is_some() {
        let (predicted, allocated) = train_one_iteration();
        let off = allocated as f64 / predicted.total_bytes() as f64 - 1.0;
        println!(
            "{predicted:?}: {} bytes, and the process allocated {allocated}: {off:+.3}",
            predicted.total_bytes()
        );
        assert!(off.abs() < 0.1, "{} bytes were predicted, {allocated} allocated", predicted.total_bytes());
        return;
    }
    // Other tests in the same process would allocate memory, too.
    let test = std::env::current_exe().unwrap();
    let arguments = ["--exact", "memory::predicted_memory_is_what_the_process_allocates", "--nocapture"];
    let output = std::process::Command::new(test).args(arguments).env(CHILD, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("the process allocated"), "{text}");
}
