//! Drops of programs, states, devices and drivers in every order, with work in flight on an
//! emulated GPU. Memory that is freed too early is an access out of bounds there.

use std::ops::Range;

use cuda_emulator::Emulator;
use deeppool::Error;
use deeppool::program::{BatchPart, LowerOptions, Placement, Program, lower_training};
use deeppool::runtime::{
    BatchSource, Gpu, GpuDriver, GpuEngine, Iterations, LoadedProgram, RankDevice, RankDriver, RankState,
};
use gpu_mux::Policy;
use layer_engine::LaunchContext;
use layer_graph::LayerGraph;

use crate::emulated::on_emulated_gpus;
use crate::gpu_order::network;

const BATCH: usize = 4;

/// Source of samples that has none from an iteration on, so that a run ends with work in flight.
struct SamplesUntil {
    iteration: u64,
}

impl BatchSource for SamplesUntil {
    fn load(
        &mut self,
        iteration: u64,
        _: BatchPart,
        samples: Range<usize>,
        elements: Range<usize>,
        out: &mut Vec<f32>,
    ) -> Result<(), Error> {
        if iteration >= self.iteration {
            return Err(Error::Program("the samples are used up".to_owned()));
        }
        out.extend((0..samples.len() * elements.len()).map(|place| (place % 5) as f32));
        Ok(())
    }
}

/// Objects of a rank in an arbitrary order.
enum Owned<'a> {
    Device(#[expect(dead_code, reason = "it is there to be dropped")] Box<RankDevice<Gpu>>),
    Loaded(#[expect(dead_code, reason = "it is there to be dropped")] Box<LoadedProgram<Gpu>>),
    State(#[expect(dead_code, reason = "it is there to be dropped")] RankState<Gpu>),
    Driver(#[expect(dead_code, reason = "it is there to be dropped")] Box<GpuDriver<'a, SamplesUntil, ()>>),
    Engine(#[expect(dead_code, reason = "it is there to be dropped")] GpuEngine),
}

/// Runs iterations until the samples are used up at the given iteration, and drops everything in an
/// order: `order` has the positions of a permutation.
fn run_and_drop(net: &LayerGraph, program: &Program, policy: Policy, until: u64, order: &[usize]) {
    let engine = GpuEngine::new(0).unwrap();
    let mut device = RankDevice::<Gpu>::new(engine.clone()).unwrap();
    let mut loaded = LoadedProgram::new(&mut device, None, net, program, 0).unwrap();
    let mut state = RankState::new(&mut device, net, loaded.program(), 1).unwrap();
    let mut driver: GpuDriver<'_, SamplesUntil, ()> = GpuDriver::new(&engine, policy).unwrap();
    let source = SamplesUntil { iteration: until };
    let context = LaunchContext { seed: 0, iteration: 0, learning_rate: 0.1 };
    let iterations = Iterations::new(&mut device, &mut loaded, &mut state, source, (), context, until + 1);
    let error = driver.run(iterations).unwrap_err().to_string();
    assert!(error.contains("the samples are used up"), "{error}");

    let mut owned = [
        Some(Owned::Device(Box::new(device))),
        Some(Owned::Loaded(Box::new(loaded))),
        Some(Owned::State(state)),
        Some(Owned::Driver(Box::new(driver))),
        Some(Owned::Engine(engine)),
    ];
    for &place in order {
        owned[place] = None;
    }
}

/// Returns all permutations of the numbers below `count`.
fn permutations(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let shorter = permutations(count - 1);
    let insert = |order: &Vec<usize>| -> Vec<Vec<usize>> {
        (0..count)
            .map(|place| {
                let mut order = order.clone();
                order.insert(place, count - 1);
                order
            })
            .collect()
    };
    shorter.iter().flat_map(insert).collect()
}

#[test]
fn objects_of_a_rank_are_dropped_in_every_order_with_work_in_flight() {
    let name = "gpu_ownership::objects_of_a_rank_are_dropped_in_every_order_with_work_in_flight";
    on_emulated_gpus(name, 1, |emulator: &Emulator| {
        let net = network();
        let placement = Placement::single(&net).unwrap();
        let program = lower_training(&net, &placement, BATCH, &LowerOptions::default()).unwrap();
        let orders = permutations(5);
        assert_eq!(orders.len(), 120);
        for (number, order) in orders.iter().enumerate() {
            // Kernel by kernel, and by graphs, which are captured after two iterations.
            let until = if number % 2 == 0 { 1 } else { 4 };
            run_and_drop(&net, &program, Policy::priority(), until, order);
            assert_eq!(emulator.faults(), [""; 0], "{order:?}");
            assert_eq!(emulator.leaks(), [""; 0], "{order:?}");
            assert_eq!(emulator.misuse(), [""; 0], "{order:?}");
        }
    });
}
