//! The CPU engine and libtorch, on two threads each: a training step of every layer shape of VGG-16
//! and Inception-V3 at batch 8, forward and backward, and the whole iteration of VGG-16. Criterion
//! reports the CPU engine's times; libtorch's times and the ratios are printed afterwards.
#![allow(missing_docs, reason = "criterion's macros make public functions")]

mod workload;

use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use layer_engine::{CpuEngine, Engine, EngineError, TorchEngine};
use layer_graph::{Dropout, Layer, LayerKind, Shape, zoo};
use tch::{Device, Kind, Tensor};
use workload::Workload;

const BATCH: usize = 8;
const THREADS: usize = 2;
const SAMPLES: usize = 10;

/// Returns the layers of a model, each shape once.
fn shapes(model: &str) -> Vec<(String, Layer)> {
    let graph = zoo::model(model).expect("a model of the zoo");
    let mut seen: Vec<(LayerKind, Vec<Shape>)> = Vec::new();
    let mut layers = Vec::new();
    for (_, layer) in graph.computing_layers() {
        let key = (layer.kind().clone(), layer.input_shapes().to_vec());
        if !seen.contains(&key) {
            seen.push(key);
            layers.push((format!("{model}/{}", layer.name()), layer.clone()));
        }
    }
    layers
}

/// Returns a closure that runs the workload once.
fn prepared_run<E: Engine<Scalar = f32>>(workload: Result<Workload<'_, E>, EngineError>) -> impl FnMut() {
    let mut workload = workload.expect("an engine that has all kernels of the zoo");
    move || workload.run().expect("a layer that runs")
}

/// Returns a closure that runs libtorch's native dropout on `elements` elements, forward and
/// backward. `TorchEngine` draws the masks of this project instead, once per iteration.
fn torch_dropout(rule: &Dropout, elements: usize) -> impl FnMut() + use<> {
    let probability = rule.probability;
    let [input, output_gradient] = [(); 2]
        .map(|()| Tensor::ones([i64::try_from(elements).expect("a size")], (Kind::Float, Device::Cpu)));
    tch::set_num_threads(i32::try_from(THREADS).expect("a few"));
    move || {
        let (_, mask) = input.native_dropout(probability, true);
        let _ = Tensor::native_dropout_backward(&output_gradient, &mask, 1.0 / (1.0 - probability));
    }
}

/// Measures `ours` with criterion and `theirs` with the same number of runs after each sample, so
/// that variations of the machine's speed affect both. Returns the sample with the median ratio, or
/// `None` if a filter excludes the benchmark.
fn measure(
    criterion: &mut Criterion,
    name: &str,
    mut ours: impl FnMut(),
    mut theirs: impl FnMut(),
) -> Option<[Duration; 2]> {
    fn time(runs: u64, run: &mut impl FnMut()) -> Duration {
        let start = Instant::now();
        (0..runs).for_each(|_| run());
        start.elapsed()
    }
    let mut samples: Vec<[Duration; 2]> = Vec::new();
    criterion.bench_function(name, |bencher| {
        bencher.iter_custom(|runs| {
            let [ours, theirs] = [time(runs, &mut ours), time(runs, &mut theirs)];
            samples.push([ours, theirs].map(|took| took.div_f64(runs as f64)));
            ours
        });
    });
    // Criterion warms up before its samples.
    let mut samples = samples.split_off(samples.len().saturating_sub(SAMPLES));
    samples.sort_unstable_by(|a, b| ratio(*a).total_cmp(&ratio(*b)));
    samples.get(samples.len() / 2).copied()
}

fn ratio([ours, theirs]: [Duration; 2]) -> f64 {
    ours.as_secs_f64() / theirs.as_secs_f64()
}

struct Ratio {
    name: String,
    kind: &'static str,
    measured: [Duration; 2],
}

impl Ratio {
    fn value(&self) -> f64 {
        ratio(self.measured)
    }
}

fn geometric_mean<'r>(ratios: impl Iterator<Item = &'r Ratio> + Clone) -> f64 {
    let count = ratios.clone().count();
    (ratios.map(|ratio| ratio.value().ln()).sum::<f64>() / count as f64).exp()
}

fn engines(criterion: &mut Criterion) {
    let cpu = CpuEngine::<f32>::with_threads(THREADS).expect("threads");
    let torch = TorchEngine::<f32>::with_threads(THREADS).expect("threads");
    let mut ratios = Vec::new();
    for (name, layer) in ["vgg16", "inception-v3"].into_iter().flat_map(shapes) {
        let kind = layer.kind().label();
        let name = format!("{name} ({kind})");
        let ours = prepared_run(Workload::layer(&cpu, &layer, BATCH));
        let measured = match layer.kind() {
            LayerKind::Dropout(rule) => {
                let theirs = torch_dropout(rule, BATCH * layer.output_shape().elements());
                measure(criterion, &name, ours, theirs)
            }
            _ => measure(criterion, &name, ours, prepared_run(Workload::layer(&torch, &layer, BATCH))),
        };
        if let Some(measured) = measured {
            ratios.push(Ratio { name, kind, measured });
        }
    }
    ratios.sort_by(|a, b| a.value().total_cmp(&b.value()));
    println!("\nforward and backward at batch {BATCH}, CpuEngine / libtorch, {THREADS} threads each:");
    for ratio in &ratios {
        let Ratio { name, measured: [ours, theirs], .. } = ratio;
        println!("{:6.2}  {name}: {ours:.1?} / {theirs:.1?}", ratio.value());
    }
    let mut kinds: Vec<&str> = ratios.iter().map(|ratio| ratio.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for kind in kinds {
        let of_kind = ratios.iter().filter(|ratio| ratio.kind == kind);
        println!(
            "{:6.2}  geometric mean of {kind} ({} shapes)",
            geometric_mean(of_kind.clone()),
            of_kind.count()
        );
    }
    if let Some(worst) = ratios.last() {
        println!("{:6.2}  geometric mean of all {} shapes", geometric_mean(ratios.iter()), ratios.len());
        println!("{:6.2}  worst: {}", worst.value(), worst.name);
    }
    let graph = zoo::model("vgg16").expect("a model of the zoo");
    let ours = prepared_run(Workload::iteration(&cpu, &graph, BATCH));
    let theirs = prepared_run(Workload::iteration(&torch, &graph, BATCH));
    if let Some([ours, theirs]) = measure(criterion, "vgg16 iteration", ours, theirs) {
        let ratio = ratio([ours, theirs]);
        println!("{ratio:6.2}  whole iteration of vgg16: {ours:.1?} / {theirs:.1?}");
    }
    println!("on {}", cpu.describe().name);
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(SAMPLES)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = engines
}
criterion_main!(benches);
