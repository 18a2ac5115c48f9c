//! Time of a layer's step at batch 8 on two threads, forward or forward and backward; and of one
//! shard through all layers of a small network on the calling thread, where launch overhead
//! matters.
#![allow(missing_docs, reason = "criterion's macros make public functions")]

use criterion::{Criterion, criterion_group, criterion_main};
use layer_engine::{
    CpuEngine, CpuKernel, Engine, EngineError, KernelSpec, LaunchContext, Pass, Precision, Role, Shard,
    Signature,
};
use layer_graph::{BatchNorm, Conv2d, Layer, LayerGraph, LayerKind, Linear, Pool2d, Shape, zoo};

const CONTEXT: LaunchContext = LaunchContext { seed: 0, iteration: 0, learning_rate: 0.1 };

/// A pass with its buffers.
struct Step {
    kernel: CpuKernel<f32>,
    reads: Vec<Vec<f32>>,
    writes: Vec<Vec<f32>>,
}

impl Step {
    fn new(engine: &CpuEngine<f32>, layer: &Layer, pass: Pass, samples: usize) -> Option<Self> {
        let signature = Signature::of(layer, pass)?;
        let spec = KernelSpec::Layer { layer, pass, shard: Shard::whole(samples) };
        let kernel = engine.prepare(&spec, Precision::F32).ok()?;
        let buffers = |roles: &[Role]| {
            let lengths = roles.iter().map(|role| role.elements(layer, samples));
            lengths.map(|length| (0..length).map(|i| (i % 7) as f32 - 3.0).collect()).collect()
        };
        let labels = signature.reads.iter().position(|role| *role == Role::Labels);
        let mut reads: Vec<Vec<f32>> = buffers(&signature.reads);
        if let Some(labels) = labels {
            reads[labels].fill(1.0);
        }
        Some(Self { kernel, reads, writes: buffers(&signature.writes) })
    }

    fn run(&mut self, engine: &CpuEngine<f32>) -> Result<(), EngineError> {
        let reads: Vec<&Vec<f32>> = self.reads.iter().collect();
        let mut writes: Vec<&mut Vec<f32>> = self.writes.iter_mut().collect();
        engine.enqueue(&mut self.kernel, &reads, &mut writes, &CONTEXT, &mut ())
    }
}

fn bench_layer(criterion: &mut Criterion, name: &str, kind: impl Into<LayerKind>, input: Shape) {
    let engine = CpuEngine::with_threads(2).expect("two threads");
    let mut graph = LayerGraph::new("bench", input).expect("a valid shape");
    let id = graph.add(name, kind, [graph.input()]).expect("a layer that fits");
    let layer = graph.layer(id);
    let forward = Pass::forward(layer);
    let both = [forward, Pass::backward(layer, true)].concat();
    for (direction, passes) in [("forward", forward), ("forward+backward", &both)] {
        let mut steps: Vec<_> =
            passes.iter().filter_map(|&pass| Step::new(&engine, layer, pass, 8)).collect();
        criterion.bench_function(&format!("{name}, batch 8, {direction}"), |bencher| {
            bencher.iter(|| steps.iter_mut().try_for_each(|step| step.run(&engine)));
        });
    }
}

fn layers(criterion: &mut Criterion) {
    let conv = |channels| Conv2d::new(channels, 3).padding(1);
    bench_layer(criterion, "conv 3x3 64 to 64 at 56x56", conv(64), Shape::image(64, 56, 56));
    bench_layer(criterion, "conv 3x3 256 to 256 at 14x14", conv(256), Shape::image(256, 14, 14));
    bench_layer(criterion, "conv 1x1 256 to 64 at 56x56", Conv2d::new(64, 1), Shape::image(256, 56, 56));
    let pool = LayerKind::MaxPool2d(Pool2d::new(3, 2).padding(1));
    bench_layer(criterion, "max pool 3x3 stride 2 of 64 at 112x112", pool, Shape::image(64, 112, 112));
    bench_layer(criterion, "batch norm 64 at 56x56", BatchNorm::default(), Shape::image(64, 56, 56));
    bench_layer(criterion, "linear 4096 to 1000", Linear::new(1000), Shape::features(4096));
}

fn small_network(criterion: &mut Criterion) {
    let engine = CpuEngine::new();
    let graph = zoo::model("digits-cnn").expect("a model of the zoo");
    let mut steps = Vec::new();
    for (_, layer) in graph.layers() {
        let passes = [Pass::forward(layer), Pass::backward(layer, true)].concat();
        steps.extend(passes.into_iter().filter_map(|pass| Step::new(&engine, layer, pass, 8)));
    }
    criterion.bench_function("all layers of digits-cnn, shard of 8, one thread", |bencher| {
        bencher.iter(|| steps.iter_mut().try_for_each(|step| step.run(&engine)));
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = layers, small_network
}
criterion_main!(benches);
