//! Buffers that share an arena: values are not overwritten while they are needed.
#![allow(unsafe_code)]

use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use collectives::{Group, HostArena, ThreadCommunicator, ThreadWorld};
use deeppool::Error;
use deeppool::program::{
    ARENA_ALIGNMENT, BUCKET_ALIGNMENT, BatchPart, BufferId, Contents, LowerOptions, Op,
    PartialBackpropagation, PartialDepth, Placement, Program, RankProgram, Step, StepId, lower_rotation,
};
use deeppool::runtime::{
    BatchSource, Iterations, LoadedProgram, LossMetrics, Observer, RankDevice, RankState, TimeSpan,
};
use gpu_mux::{CpuDriver, JobState, Policy, PolledJob};
use layer_engine::{LaunchContext, Pass, Precision, Role, Sgd};
use layer_graph::{LayerGraph, LayerKind};
use proptest::prelude::*;

use crate::memory::{
    CountingEngine, CountingThreads, chosen_checkpoints, generator, random_network, random_placement,
};

/// Number of iterations of each job.
const ITERATIONS: u64 = 3;

/// Pseudorandom samples: the same for the same position in the same iteration.
struct RandomBatches(u64);

impl BatchSource for RandomBatches {
    fn load(
        &mut self,
        iteration: u64,
        part: BatchPart,
        samples: Range<usize>,
        elements: Range<usize>,
        out: &mut Vec<f32>,
    ) -> Result<(), Error> {
        for sample in samples {
            let mut state = self.0 ^ (iteration << 32) ^ sample as u64;
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 40) as f32 / (1_u64 << 24) as f32
            };
            next();
            match part {
                BatchPart::Features => out.extend(elements.clone().map(|_| next() - 0.5)),
                BatchPart::Labels => out.push((next() * 6.0).floor()),
            }
        }
        Ok(())
    }
}

/// The steps that use one value of a buffer: from one that overwrites it to the last that reads it.
struct Uses {
    buffer: usize,
    left: Vec<usize>,
}

/// Returns the values of all buffers of an arena but those that are read after an iteration.
fn values(program: &RankProgram) -> Vec<Uses> {
    let mut values = Vec::new();
    for (buffer, spec) in program.buffers.iter().enumerate().skip(program.state_buffers) {
        if matches!(spec.contents, Contents::Constant(_) | Contents::Operand(_, Role::Metrics)) {
            continue;
        }
        let is_update = |step: &Step| match step.op {
            Op::Collective(_) => !matches!(spec.contents, Contents::Moved(_)),
            Op::AddGradient | Op::ScaleGradient { .. } | Op::OptimizerStep { .. } => true,
            Op::Forward { pass: Pass::ForwardInPlace, .. }
            | Op::Backward { pass: Pass::BackwardInPlace, .. } => step.writes[0].0 == buffer,
            _ => false,
        };
        let mut left: Vec<usize> = Vec::new();
        for (index, step) in program.steps.iter().enumerate() {
            let writes = step.writes.iter().any(|id| id.0 == buffer);
            if writes && !is_update(step) && !left.is_empty() {
                values.push(Uses { buffer, left: std::mem::take(&mut left) });
            }
            if writes || step.reads.iter().any(|id| id.0 == buffer) {
                left.push(index);
            }
        }
        values.push(Uses { buffer, left });
    }
    values
}

/// Overwrites the memory of each value by NaN after its last use, and records the metrics.
struct Poison {
    programs: Vec<RankProgram>,
    arena: Option<Arc<HostArena<f32>>>,
    iteration: usize,
    values: Vec<Uses>,
    metrics: Arc<Mutex<Vec<Option<[f32; 2]>>>>,
}

impl Poison {
    fn new(programs: Vec<RankProgram>, arena: Option<Arc<HostArena<f32>>>) -> Self {
        let values = values(&programs[0]);
        Self { programs, arena, iteration: 0, values, metrics: Arc::default() }
    }
}

impl Observer for Poison {
    fn ended(&mut self, steps: &[StepId], _: TimeSpan) {
        let Some(arena) = &self.arena else { return };
        let program = &self.programs[self.iteration % self.programs.len()];
        for value in &mut self.values {
            let uses = value.left.len();
            value.left.retain(|step| !steps.contains(&StepId(*step)));
            if uses > 0 && value.left.is_empty() {
                let spec = &program.buffers[value.buffer];
                // SAFETY: all steps that use the buffer have ended, and no step runs now.
                unsafe { arena.view(spec.offset.unwrap(), spec.scalars()) }.unwrap().fill(f32::NAN);
            }
        }
    }

    fn finished_iteration(&mut self, _: u64, metrics: &[LossMetrics], _: Instant) -> Result<(), Error> {
        let metrics = metrics.first().map(|metrics| [metrics.loss, metrics.correct]);
        self.metrics.lock().unwrap().push(metrics);
        self.iteration += 1;
        self.values = values(&self.programs[self.iteration % self.programs.len()]);
        Ok(())
    }
}

/// Gives each buffer its own part of the arena.
fn without_sharing(mut programs: Vec<Program>) -> Vec<Program> {
    for rank in 0..programs[0].ranks.len() {
        // The buffers of a bucket first, each only once.
        let mut order: Vec<BufferId> = Vec::new();
        let state = programs[0].ranks[rank].state_buffers;
        let steps = programs.iter().flat_map(|program| &program.ranks[rank].steps);
        for step in steps.filter(|step| matches!(step.op, Op::Collective(_)) && step.writes.len() > 1) {
            if !order.contains(&step.writes[0]) {
                order.extend(&step.writes);
            }
        }
        let in_buckets = order.len();
        let all = (state..programs[0].ranks[rank].buffers.len()).map(BufferId);
        order.extend(all.filter(|id| !order.contains(id)).collect::<Vec<_>>());
        for program in &mut programs {
            let (own, mut end) = (&mut program.ranks[rank], 0_usize);
            for (place, id) in order.iter().enumerate() {
                let alignment = if place < in_buckets { BUCKET_ALIGNMENT } else { ARENA_ALIGNMENT };
                let offset = end.next_multiple_of(alignment);
                own.buffers[id.0].offset = Some(offset);
                end = offset + own.buffers[id.0].scalars();
            }
            own.arena_elements = end;
        }
    }
    programs
}

/// Loads a job of one rank on a device, with the observer that overwrites unused memory.
fn load(
    device: &mut RankDevice<CountingThreads>,
    communicator: &ThreadCommunicator,
    network: &LayerGraph,
    programs: &[Program],
    poisons: bool,
) -> (LoadedProgram<CountingThreads>, RankState<CountingThreads>, Poison) {
    let rank = if programs[0].world() > 1 { communicator.rank() } else { 0 };
    let loaded = LoadedProgram::rotation(device, Some(communicator), network, programs, rank).unwrap();
    let state = RankState::new(device, network, loaded.program(), 7).unwrap();
    let own = programs.iter().map(|program| program.of_rank(rank).unwrap().clone()).collect();
    let arena = device.engine.arenas.lock().unwrap().last().cloned().filter(|_| poisons);
    (loaded, state, Poison::new(own, arena))
}

/// The metrics of each iteration of the foreground on each rank, and of its background job.
type AllMetrics = Vec<[Vec<Option<[f32; 2]>>; 2]>;

/// Trains a few iterations of a job on several ranks, with a background job on each.
fn train(network: &LayerGraph, [foreground, background]: [&[Program]; 2], poisons: bool) -> AllMetrics {
    let world = ThreadWorld::new(foreground[0].world()).with_timeout(Duration::from_secs(60));
    world.run(|communicator| {
        let mut device = RankDevice::<CountingThreads>::new(CountingEngine::default()).unwrap();
        let mut beside = RankDevice::<CountingThreads>::new(device.engine.clone()).unwrap();
        let (mut loaded, mut state, poison) = load(&mut device, &communicator, network, foreground, poisons);
        let (mut other, mut other_state, other_poison) =
            load(&mut beside, &communicator, network, background, poisons);
        let metrics = [Arc::clone(&poison.metrics), Arc::clone(&other_poison.metrics)];
        let context = LaunchContext { seed: 3, iteration: 0, learning_rate: 0.05 };
        let mut driver = CpuDriver::new(Policy::default());
        driver
            .add(Iterations::new(
                &mut beside,
                &mut other,
                &mut other_state,
                RandomBatches(5),
                other_poison,
                context,
                ITERATIONS,
            ))
            .set_weight(NonZeroU32::MIN);
        let mut job = Iterations::new(
            &mut device,
            &mut loaded,
            &mut state,
            RandomBatches(1),
            poison,
            context,
            ITERATIONS,
        );
        driver.run(&mut job).unwrap();
        for job in driver.background_mut().flatten() {
            while matches!(job.poll().unwrap(), JobState::Ready(_)) {
                job.run().unwrap();
            }
        }
        drop(driver);
        metrics.map(|metrics| metrics.lock().unwrap().clone())
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("DEEPPOOL_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(300),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn losses_do_not_depend_on_shared_memory(
        seed: u64,
        ranks in 1usize..4,
        batch in 4usize..10,
        micro_batches in 1usize..4,
        bucket_bytes in prop::sample::select(vec![1, 500, 25 << 20]),
        (overlap_all_reduce, sync_batch_norm, clip, halves) in any::<(bool, bool, bool, bool)>(),
        partial in prop::option::weighted(0.3, Just(2usize)),
        checkpoints in prop::collection::vec(any::<bool>(), 16),
    ) {
        let mut below = generator(seed);
        let network = random_network(4, &mut below);
        let placement = random_placement(&network, ranks, &mut below);
        let optimizer = Sgd { momentum: 0.9, weight_decay: 0.0, clip_norm: clip.then_some(1.0) };
        let checkpoints = chosen_checkpoints(&network, checkpoints);
        let partial = partial.and_then(|parts| {
            PartialBackpropagation::new(&network, parts, PartialDepth::Layers).ok()
        });
        let options = LowerOptions::default()
            .with_optimizer(optimizer)
            .with_overlap_all_reduce(overlap_all_reduce)
            .with_sync_batch_norm(sync_batch_norm)
            .with_bucket_bytes(bucket_bytes)
            .with_micro_batches(micro_batches)
            .with_checkpoints(checkpoints)
            .with_partial(partial)
            .with_precision(if halves { Precision::Bf16 } else { Precision::F32 });
        let Ok(programs) = lower_rotation(&network, &placement, batch, &options) else {
            return Err(TestCaseError::reject("options that exclude each other"));
        };
        let alone = Placement::single(&network).unwrap();
        let background = lower_rotation(&network, &alone, 3, &LowerOptions::default()).unwrap();
        let shared = train(&network, [&programs, &background], true);
        let [programs, background] = [programs, background].map(without_sharing);
        let apart = train(&network, [&programs, &background], false);
        let bits = |all: AllMetrics| -> Vec<Option<[u32; 2]>> {
            let metrics = all.into_iter().flatten().flatten();
            metrics.map(|metrics| metrics.map(|metrics| metrics.map(f32::to_bits))).collect()
        };
        let (shared, apart) = (bits(shared), bits(apart));
        prop_assert!(shared.iter().flatten().count() >= ITERATIONS as usize);
        prop_assert_eq!(shared, apart);
    }
}

#[test]
fn buffers_that_are_used_at_the_same_time_may_not_share_memory() {
    let mut network = LayerGraph::new("small", layer_graph::Shape::features(4)).unwrap();
    let scores = network.add("scores", layer_graph::Linear::new(6), [network.input()]).unwrap();
    network.add("loss", LayerKind::CROSS_ENTROPY, [scores]).unwrap();
    let placement = Placement::single(&network).unwrap();
    let programs = lower_rotation(&network, &placement, 4, &LowerOptions::default()).unwrap();
    let load = |change: &dyn Fn(&mut RankProgram)| {
        let mut programs = programs.clone();
        change(&mut programs[0].ranks[0]);
        let mut device = RankDevice::<CountingThreads>::new(CountingEngine::default()).unwrap();
        LoadedProgram::rotation(&mut device, None, &network, &programs, 0).map(drop)
    };
    assert!(load(&|_| ()).is_ok());
    let all_first = load(&|program| {
        let state = program.state_buffers;
        program.buffers[state..].iter_mut().for_each(|buffer| buffer.offset = Some(0));
    });
    let message = all_first.unwrap_err().to_string();
    assert!(message.contains("share memory at the same time"), "{message}");
    let outside = load(&|program| program.arena_elements = 8);
    assert!(outside.unwrap_err().to_string().contains("is not in the arena"));
    let later = load(&|program| program.steps[0].after.push(StepId(1)));
    assert!(later.unwrap_err().to_string().contains("waits for a later step"));
}
