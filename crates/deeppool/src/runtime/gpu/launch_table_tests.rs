//! A launch table of a program that lacks a part is an error that names the part.

use std::net::TcpListener;
use std::slice;
use std::thread;
use std::time::Duration;

use collectives::{NcclCommunicator, NcclWorld};
use cuda::nccl::Nccl;
use cuda::{Driver, Priority, Stream};
use cuda_emulator::{Emulator, Setting};
use layer_engine::{CudaEngine, LaunchContext};
use layer_graph::{Conv2d, LayerGraph, LayerKind, Linear, Shape};

use super::Gpu;
use super::calls::{CommunicationLane, KernelQueue};
use super::clock::LaunchTimes;
use super::engine::GpuEngine;
use super::launch_table::LaunchTable;
use super::units::UnitWork;
use crate::program::{LowerOptions, Op, Placement, Program, lower_training};
use crate::runtime::{LoadedProgram, RankDevice, RankState};

const BATCH: usize = 4;
const RANKS: usize = 2;

fn network() -> LayerGraph {
    let mut net = LayerGraph::new("net", Shape::image(1, 6, 6)).unwrap();
    let conv = net.add("conv", Conv2d::new(2, 3), [net.input()]).unwrap();
    let conv = net.add("conv2", Conv2d::new(2, 3), [conv]).unwrap();
    let relu = net.add("relu", LayerKind::Relu, [conv]).unwrap();
    let flat = net.add("flatten", LayerKind::Flatten, [relu]).unwrap();
    let scores = net.add("scores", Linear::new(10), [flat]).unwrap();
    net.add("loss", LayerKind::CROSS_ENTROPY, [scores]).unwrap();
    net
}

/// A program with all-reduces of several buffers, redistributions and metrics on rank 0.
fn program(net: &LayerGraph) -> Program {
    let ranks = net.computing_layers().map(|(_, layer)| match layer.name() {
        "scores" | "loss" => vec![0],
        _ => vec![0, 1],
    });
    let placement = Placement::new(net, RANKS, ranks.collect()).unwrap();
    lower_training(net, &placement, BATCH, &LowerOptions::default()).unwrap()
}

/// Calls `test` with an engine and the communicator of rank 0 of two. The other rank only creates
/// the same groups.
fn on_rank_0(test: impl FnOnce(&GpuEngine, &NcclCommunicator) + Send) {
    let emulator = Emulator::new().unwrap();
    emulator.set(Setting::Devices, 2);
    let path = Emulator::library().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let rank = |rank: usize| {
        let context = Driver::open_first_of(slice::from_ref(&path)).unwrap().context(rank).unwrap();
        let world = NcclWorld::new(rank, RANKS, rank)
            .with_address("127.0.0.1", port)
            .with_timeout(Duration::from_secs(30))
            .with_library(Nccl::open_first_of(slice::from_ref(&path)).unwrap())
            .connect_on(&context)
            .unwrap();
        (GpuEngine::of_engine(CudaEngine::on(&context)), world)
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let (engine, world) = rank(1);
            let (net, mut device) = (network(), RankDevice::<Gpu>::new(engine).unwrap());
            LoadedProgram::new(&mut device, Some(&world), &net, &program(&net), 1).unwrap();
        });
        let (engine, world) = rank(0);
        test(&engine, &world);
    });
    assert_eq!(emulator.leaks(), [""; 0]);
}

/// Returns the error of a launch table, or `None` if it can be made.
fn error(
    engine: &GpuEngine,
    loaded: &LoadedProgram<Gpu>,
    state: &RankState<Gpu>,
    has_lane: bool,
) -> Option<String> {
    let stream = Stream::new(engine.context(), Priority::Background).unwrap();
    let queue = KernelQueue::on(&stream, engine, LaunchTimes::default()).unwrap();
    let lane = CommunicationLane::on(&stream, LaunchTimes::default());
    let lane = Some(lane).filter(|_| has_lane);
    let made = LaunchTable::new(engine, loaded, &loaded.programs[0], state, (queue, lane));
    made.err().map(|error| error.to_string())
}

#[test]
fn every_missing_part_is_an_error_that_names_it() {
    on_rank_0(|engine, world| {
        let net = network();
        let program = program(&net);
        let mut device = RankDevice::<Gpu>::new(engine.clone()).unwrap();
        let mut loaded = LoadedProgram::new(&mut device, Some(world), &net, &program, 0).unwrap();
        let mut state = RankState::new(&mut device, &net, loaded.program(), 0).unwrap();
        assert_eq!(error(engine, &loaded, &state, true), None);
        let expect = |error: Option<String>, label: &str, part: &str| {
            let error = error.unwrap_or_else(|| panic!("{label} without {part} is no error"));
            assert!(error.contains(&format!("`{label}` has no {part}")), "{error}");
        };

        let steps = loaded.program().steps.clone();
        let (mut kernels, mut collectives, mut buckets) = (0, 0, 0);
        for (index, step) in steps.iter().enumerate() {
            if let Some(kernel) = loaded.programs[0].kernels[index].take() {
                expect(error(engine, &loaded, &state, true), &step.label, "kernel");
                loaded.programs[0].kernels[index] = Some(kernel);
                kernels += 1;
            }
            if let Some(group) = loaded.programs[0].communicators[index].take() {
                expect(error(engine, &loaded, &state, true), &step.label, "communicator");
                loaded.programs[0].communicators[index] = Some(group);
                collectives += 1;
            }
            if let Some(bucket) = loaded.programs[0].buckets[index].take() {
                expect(error(engine, &loaded, &state, true), &step.label, "memory of its bucket");
                loaded.programs[0].buckets[index] = Some(bucket);
                buckets += 1;
            }
            let buffer = match step.op {
                Op::LoadBatch { .. } => "buffer for its samples",
                Op::Collective(_)
                    if step.bucket(&loaded.program().buffers).is_none() && step.reads.is_empty() =>
                {
                    "single buffer"
                }
                _ => continue,
            };
            let writes = std::mem::take(&mut loaded.programs[0].program.steps[index].writes);
            expect(error(engine, &loaded, &state, true), &step.label, buffer);
            loaded.programs[0].program.steps[index].writes = writes;
        }
        assert!(kernels > 5 && collectives > 1 && buckets > 0, "{kernels} {collectives} {buckets}");
        let first = steps.iter().find(|step| matches!(step.op, Op::Collective(_))).unwrap();
        expect(error(engine, &loaded, &state, false), &first.label, "communication lane");
        let last = loaded.scratch.pop().unwrap();
        let missing = error(engine, &loaded, &state, true);
        loaded.scratch.push(last);
        assert!(missing.as_ref().is_none_or(|error| error.contains("it has no buffer")), "{missing:?}");
        state.buffers.clear();
        assert!(error(engine, &loaded, &state, true).unwrap().contains("it has no buffer"));
    });
}

#[test]
fn kernels_that_need_a_context_fail_without_one() {
    on_rank_0(|engine, world| {
        let net = network();
        let program = program(&net);
        let mut device = RankDevice::<Gpu>::new(engine.clone()).unwrap();
        let loaded = LoadedProgram::new(&mut device, Some(world), &net, &program, 0).unwrap();
        let state = RankState::new(&mut device, &net, loaded.program(), 0).unwrap();
        let stream = Stream::new(engine.context(), Priority::Background).unwrap();
        let queue = KernelQueue::on(&stream, engine, LaunchTimes::default()).unwrap();
        let lane = CommunicationLane::on(&stream, LaunchTimes::default());
        let table =
            LaunchTable::new(engine, &loaded, &loaded.programs[0], &state, (queue, Some(lane))).unwrap();
        let optimizer = table.units.iter().find_map(|unit| {
            let UnitWork::Compute(steps) = &unit.work else { return None };
            steps.iter().find(|step| step.call.kernel.reads_context())
        });
        let optimizer = optimizer.expect("the optimizer reads the learning rate");
        let label = &loaded.program().steps[optimizer.first.0].label;
        let error = table.queue.launch([&*optimizer.call]).unwrap_err().to_string();
        assert!(error.contains("context") && error.lines().count() == 1, "{label}: {error}");
        table.queue.begin(&LaunchContext { seed: 0, iteration: 0, learning_rate: 0.1 }).unwrap();
        table.queue.launch([&*optimizer.call]).unwrap();
        stream.synchronize().unwrap();
    });
}
