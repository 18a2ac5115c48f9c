//! The runtime and the simulator execute the same steps of a program in valid orders.

use std::time::Duration;

use collectives::{Group, LinkModel, ThreadWorld};
use deeppool::costs::{Costs, shard_sizes};
use deeppool::data::Dataset;
use deeppool::gpu_mux::{CpuDriver, Policy};
use deeppool::layer_engine::{CpuEngine, LaunchContext};
use deeppool::program::{LowerOptions, Op, Program, StepId, lower_training};
use deeppool::runtime::{CpuThreads, Iterations, LoadedProgram, Observer, RankDevice, RankState};
use deeppool::simulate::{SimulateOptions, simulate};
use deeppool::timeline::Timeline;
use deeppool::train::Epochs;
use deeppool_tests::scattered;
use layer_graph::{Conv2d, LayerGraph, LayerKind, Linear, Shape, zoo};
use layer_profile::DeviceModel;
use proptest::prelude::*;

/// Returns a small network with a fork whose branches are joined twice, so that gradients are
/// summed.
fn forked() -> LayerGraph {
    let mut net = LayerGraph::new("forked", Shape::image(1, 8, 8)).unwrap();
    let input = net.input();
    let stem = net.add("stem", Conv2d::new(4, 3).padding(1), [input]).unwrap();
    let a = net.add("a", Conv2d::new(4, 3).padding(1), [stem]).unwrap();
    let b = net.add("b", Conv2d::new(4, 1), [stem]).unwrap();
    let sum = net.add("sum", LayerKind::Add, [a, b, stem]).unwrap();
    let joined = net.add("joined", LayerKind::Concat, [sum, a, sum]).unwrap();
    let flat = net.add("flatten", LayerKind::Flatten, [joined]).unwrap();
    let scores = net.add("fc", Linear::new(10), [flat]).unwrap();
    net.add("loss", LayerKind::CROSS_ENTROPY, [scores]).unwrap();
    net
}

/// Checks that an order of a rank's steps has each step once, after its dependencies, and each lane
/// in program order.
fn check_order(program: &Program, rank: usize, order: &[usize]) {
    let steps = &program.ranks[rank].steps;
    let mut sorted = order.to_vec();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..steps.len()).collect::<Vec<_>>(), "rank {rank} does not run each step once");
    let mut position = vec![0; steps.len()];
    for (index, &step) in order.iter().enumerate() {
        position[step] = index;
    }
    for (index, step) in steps.iter().enumerate() {
        for dependency in &step.after {
            assert!(position[dependency.0] < position[index], "rank {rank}: {} too early", step.label);
        }
        let same_lane = (0..index).filter(|&earlier| steps[earlier].lane() == step.lane());
        assert!(same_lane.into_iter().all(|earlier| position[earlier] < position[index]));
    }
}

/// Returns the indices of a rank's collectives in an order of its steps.
fn collectives(program: &Program, rank: usize, order: &[usize]) -> Vec<usize> {
    let ids = order.iter().filter_map(|&step| match program.ranks[rank].steps[step].op {
        Op::Collective(id) => Some(id.0),
        _ => None,
    });
    ids.collect()
}

/// Records the steps of an iteration in the order of their starts.
#[derive(Default)]
struct Order(Vec<usize>);

impl Observer for Order {
    fn started(&mut self, step: StepId) {
        self.0.push(step.0);
    }
}

/// Executes an iteration, and returns each rank's steps in the order of their starts.
fn executed(network: &LayerGraph, program: &Program, batch: usize) -> Vec<Vec<usize>> {
    let dataset = Dataset::digits().unwrap();
    ThreadWorld::new(program.ranks.len()).run(|communicator| {
        let rank = communicator.rank();
        let mut device = RankDevice::<CpuThreads>::new(CpuEngine::new()).unwrap();
        let mut loaded =
            LoadedProgram::new(&mut device, Some(&communicator), network, program, rank).unwrap();
        let mut state = RankState::new(&mut device, network, loaded.program(), 0).unwrap();
        let mut order = Order::default();
        let samples = Epochs::new(dataset.train(), batch).shuffled(0);
        let context = LaunchContext { seed: 0, iteration: 0, learning_rate: 0.03 };
        let mut iteration =
            Iterations::new(&mut device, &mut loaded, &mut state, samples, &mut order, context, 1);
        let mut driver = CpuDriver::<Iterations<'_, CpuThreads, Epochs<'_>, ()>>::new(Policy::default());
        driver.run(&mut iteration).unwrap();
        order.0
    })
}

/// Returns the simulated steps of a rank in the order of their starts, and of the program for equal
/// starts.
fn started(timeline: &Timeline, rank: usize) -> Vec<usize> {
    let of_rank = timeline.events().iter().filter(|event| event.rank == rank);
    let mut steps: Vec<(Duration, StepId)> =
        of_rank.filter_map(|event| Some((event.start, event.step?))).collect();
    steps.sort_unstable();
    steps.into_iter().map(|(_, step)| step.0).collect()
}

fn check(network: &LayerGraph, ranks: usize, batch: usize, seed: u64, lowering: &LowerOptions) {
    let placement = scattered(network, ranks, seed).unwrap();
    let program = lower_training(network, &placement, batch, lowering).unwrap();
    let profile =
        DeviceModel::named("cpu-core").unwrap().profile(network, &shard_sizes(batch, ranks)).unwrap();
    let link = LinkModel::threads_of_one_host();
    let costs = Costs::new(network, &profile, &link);
    let options = SimulateOptions::default().with_iterations(2).with_timeline(true);
    let simulated = simulate(&program, &costs, &options).unwrap();

    let timeline = simulated.timeline.unwrap();

    for (rank, executed) in executed(network, &program, batch).iter().enumerate() {
        let simulated = started(&timeline, rank);
        check_order(&program, rank, &simulated);
        check_order(&program, rank, executed);
        // Both start a rank's collectives in program order.
        let ids = collectives(&program, rank, &simulated);
        assert!(ids.is_sorted());
        assert_eq!(ids, collectives(&program, rank, executed));
    }
    // Events of a lane do not overlap.
    for (i, a) in timeline.events().iter().enumerate() {
        for b in &timeline.events()[i + 1..] {
            let together = a.start < b.start + b.duration && b.start < a.start + a.duration;
            assert!(!(a.rank == b.rank && a.work.lane() == b.work.lane() && together), "{a:?} and {b:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn runtime_and_simulator_run_the_same_steps(
        ranks in 1usize..5,
        batch in 200usize..400,
        seed: u64,
        overlap_all_reduce: bool,
        bucket_bytes in prop::sample::select(vec![1, 5_000, 25 << 20]),
    ) {
        let lowering = LowerOptions::default();
        let lowering = lowering.with_overlap_all_reduce(overlap_all_reduce).with_bucket_bytes(bucket_bytes);
        check(&forked(), ranks, batch, seed, &lowering);
    }
}

#[test]
fn runtime_and_simulator_run_the_same_steps_of_digits_cnn() {
    for ranks in [2, 4] {
        check(&zoo::model("digits-cnn").unwrap(), ranks, 300, ranks as u64, &LowerOptions::default());
    }
}

/// An output is moved once per set of ranks in each direction, not once per edge.
#[test]
fn consumers_on_the_same_ranks_share_a_redistribution() {
    let network = forked();
    let ranks = |name: &str| if name == "stem" { vec![0] } else { vec![0, 1] };
    let placed = network.computing_layers().map(|(_, layer)| ranks(layer.name())).collect();
    let placement = deeppool::program::Placement::new(&network, 2, placed).unwrap();
    let program = lower_training(&network, &placement, 8, &LowerOptions::default()).unwrap();
    let moves = program.collectives.iter().filter(|collective| collective.label.contains("of stem"));
    let labels: Vec<&str> = moves.map(|collective| collective.label.as_str()).collect();
    assert_eq!(labels, ["redistribute activations of stem", "redistribute gradient of stem"]);
}
