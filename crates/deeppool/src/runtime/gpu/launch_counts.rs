//! Launches and bytes of one training iteration on one GPU, beside those of PyTorch.

use std::collections::BTreeMap;
use std::slice;

use cuda::{Driver, Priority, Stream};
use cuda_emulator::{Emulator, Setting};
use layer_engine::{CudaEngine, Sgd};
use layer_graph::{LayerGraph, Shape, zoo};
use serde_json::Value;

use super::Gpu;
use super::calls::{CommunicationLane, KernelQueue};
use super::clock::LaunchTimes;
use super::engine::GpuEngine;
use super::launch_table::LaunchTable;
use super::units::UnitWork;
use crate::program::{LowerOptions, Op, Placement, RankProgram, StepId, lower_training};
use crate::runtime::{LoadedProgram, RankDevice, RankState};

/// Number of launches, and upper bound of the bytes that they read and write.
type Counts = (usize, u64);

/// Returns the layers of a network on square images with another side.
fn resized(model: &str, side: usize) -> LayerGraph {
    let full = zoo::model(model).unwrap();
    let mut net = LayerGraph::new(model, Shape::image(3, side, side)).unwrap();
    for (id, layer) in full.computing_layers() {
        net.add(layer.name(), layer.kind().clone(), full.producers(id)).unwrap();
    }
    net
}

/// Returns the kind of a step: its direction and the kind of its layer, or its operation.
fn kind(net: &LayerGraph, program: &RankProgram, step: StepId) -> String {
    match &program.steps[step.0].op {
        Op::Forward { layer, .. } => format!("forward {}", net.layer(*layer).kind().label()),
        Op::Backward { layer, .. } => format!("backward {}", net.layer(*layer).kind().label()),
        Op::SumGradients => "sum of gradients".into(),
        Op::SquaredNorm => "squared norm".into(),
        Op::OptimizerStep { .. } => "update".into(),
        other => format!("{other:?}"),
    }
}

/// Returns the counts of the kernels of an iteration by kind. Copies of samples, labels and metrics
/// are left out.
fn counts(net: &LayerGraph, batch: usize, clip_norm: Option<f64>) -> BTreeMap<String, Counts> {
    let path = Emulator::library().unwrap();
    let context = Driver::open_first_of(slice::from_ref(&path)).unwrap().context(0).unwrap();
    let engine = GpuEngine::of_engine(CudaEngine::on(&context));
    let rule = Sgd { momentum: 0.9, weight_decay: 0.0, clip_norm };
    let options = LowerOptions::default().with_optimizer(rule);
    let program = lower_training(net, &Placement::single(net).unwrap(), batch, &options).unwrap();
    let mut device = RankDevice::<Gpu>::new(engine.clone()).unwrap();
    let loaded = LoadedProgram::new(&mut device, None, net, &program, 0).unwrap();
    let state = RankState::new(&mut device, net, loaded.program(), 0).unwrap();
    let stream = Stream::new(engine.context(), Priority::Background).unwrap();
    let queue = KernelQueue::on(&stream, &engine, LaunchTimes::default()).unwrap();
    let lane = CommunicationLane::on(&stream, LaunchTimes::default());
    let table = LaunchTable::new(&engine, &loaded, &loaded.programs[0], &state, (queue, Some(lane))).unwrap();
    let mut counts = BTreeMap::new();
    for unit in &table.units {
        let UnitWork::Compute(steps) = &unit.work else { continue };
        for step in steps {
            let (launches, bytes): &mut Counts =
                counts.entry(kind(net, loaded.program(), step.first)).or_default();
            *launches += step.call.kernel.launches();
            *bytes += step.call.kernel.traffic_bytes();
        }
    }
    counts
}

/// Returns PyTorch's counts for a network and batch, summed over some of its operators.
fn of_pytorch(model: &str, side: usize, is_counted: impl Fn(&Value) -> bool, batch: u64) -> Counts {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/pytorch-counts.json");
    let document: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let networks = document["networks"].as_array().unwrap();
    let network = networks.iter().find(|net| net["network"] == model && net["input"][1] == side).unwrap();
    let number = |value: &Value| value.as_u64().unwrap();
    let operators = network["operators"].as_array().unwrap().iter().filter(|operator| is_counted(operator));
    operators.fold((0, 0), |(launches, bytes), operator| {
        let own = number(&operator["bytes"]["fixed"]) + batch * number(&operator["bytes"]["a_sample"]);
        (launches + number(&operator["launches"]) as usize, bytes + own)
    })
}

fn total(counts: &BTreeMap<String, Counts>) -> Counts {
    counts.values().fold((0, 0), |sum, own| (sum.0 + own.0, sum.1 + own.1))
}

/// An iteration has at most as many launches as PyTorch's and moves at most as many bytes. The
/// update of all parameters is one launch that moves at most as many as PyTorch's.
#[test]
fn iterations_are_counted_beside_those_of_pytorch() {
    let emulator = Emulator::new().unwrap();
    emulator.set(Setting::Devices, 1);
    for (side, batch) in [(32, 32), (224, 2)] {
        let counts = counts(&resized("resnet-18", side), batch, None);
        for (kind, (launches, bytes)) in &counts {
            println!("{kind:30} {launches:4} launches {:9.1} MB", *bytes as f64 / 1e6);
        }
        let (own, theirs) = (total(&counts), of_pytorch("resnet-18", side, |_| true, batch as u64));
        println!("resnet-18 on {side}x{side}, batch {batch}: {own:?}, PyTorch {theirs:?}");
        assert!(own.0 <= theirs.0 && own.1 <= theirs.1, "{own:?}, PyTorch {theirs:?}");
        let (launches, bytes) = counts["update"];
        let limit = of_pytorch("resnet-18", side, |operator| operator["phase"] == "update", 0);
        assert!(launches <= limit.0 && bytes <= limit.1, "{launches} launches, {bytes} bytes: {limit:?}");
        // Sums and rectifiers are computed with the normalisation before them. In the backward pass
        // they are computed with the moments of the normalisation that reads their result; those of
        // three blocks have a second normalisation, whose moments are a launch.
        let own = |kind: &str| counts.get(kind).map_or(0, |count| count.0);
        let forward = own("forward batch_norm") + own("forward add") + own("forward relu");
        assert_eq!(forward, 2 * 20);
        assert_eq!((own("sum of gradients"), own("backward relu")), (8, 10));
        assert_eq!(own("backward batch_norm"), 20 + 3);
    }
    let clipped = counts(&resized("resnet-18", 32), 1, Some(1.0));
    // The second launch adds the sums of the blocks.
    assert_eq!((clipped["update"].0, clipped["squared norm"].0), (1, 2));
}
