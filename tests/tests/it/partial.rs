//! Partial backpropagation: gradients, communication and losses.

use std::collections::BTreeMap;

use collectives::{Group, ThreadWorld};
use deeppool::data::{DataSource, Dataset};
use deeppool::plan::Mode;
use deeppool::program::{
    BufferId, CollectiveOp, Contents, LowerOptions, Op, PartialBackpropagation, PartialDepth, Placement,
    Program, lower_rotation, lower_training,
};
use deeppool::runtime::{CpuThreads, Iterations, LoadedProgram, RankDevice, RankState};
use deeppool::train::InOrder;
use deeppool_tests::{Run, in_stretches, planned, scattered};
use gpu_mux::{CpuDriver, Policy};
use layer_engine::{CpuEngine, LaunchContext, Sgd};
use layer_graph::{LayerGraph, LayerId, LayerKind, Linear, Shape, zoo};
use proptest::prelude::*;

use crate::plan_independent::{TOLERANCE, distance, language_model, normalised};

pub(crate) fn by_layers(network: &LayerGraph, parts: usize) -> PartialBackpropagation {
    PartialBackpropagation::new(network, parts, PartialDepth::Layers).unwrap()
}

/// Returns options without momentum and weight decay, with which velocities are gradients.
pub(crate) fn plain() -> LowerOptions {
    LowerOptions::default().with_optimizer(Sgd { momentum: 0.0, weight_decay: 0.0, clip_norm: None })
}

/// Executes one iteration of a program, and returns the gradient of each layer that owns
/// parameters. Checks that all ranks of a layer have the same gradient.
fn gradients(network: &LayerGraph, dataset: &Dataset, program: &Program) -> BTreeMap<LayerId, Vec<f32>> {
    let ranks = ThreadWorld::new(program.ranks.len()).run(|communicator| {
        let rank = communicator.rank();
        let mut device = RankDevice::<CpuThreads>::new(CpuEngine::new()).unwrap();
        let mut loaded =
            LoadedProgram::new(&mut device, Some(&communicator), network, program, rank).unwrap();
        let own = program.ranks[rank].clone();
        let mut state = RankState::new(&mut device, network, &own, 0).unwrap();
        let samples = InOrder::new(dataset.train(), program.batch);
        let context = LaunchContext { seed: 0, iteration: 0, learning_rate: 0.01 };
        let mut iteration = Iterations::new(&mut device, &mut loaded, &mut state, samples, (), context, 1);
        let mut driver = CpuDriver::<Iterations<'_, CpuThreads, InOrder<'_>, ()>>::new(Policy::default());
        driver.run(&mut iteration).unwrap();
        let mut velocities = Vec::new();
        for (index, spec) in own.buffers[..own.state_buffers].iter().enumerate() {
            if let Contents::Velocity(layer) = spec.contents {
                velocities.push((layer, state.read(&mut device, BufferId(index), spec.elements).unwrap()));
            }
        }
        velocities
    });
    let mut all = BTreeMap::new();
    for (layer, gradient) in ranks.into_iter().flatten() {
        let before = all.insert(layer, gradient.clone());
        assert!(before.is_none_or(|before| before == gradient), "ranks differ in {layer:?}");
    }
    all
}

/// Checks that the mean gradient of a rotation of programs is the gradient of full backpropagation.
fn check_mean(
    network: &LayerGraph,
    dataset: &Dataset,
    placement: &Placement,
    batch: usize,
    options: &LowerOptions,
) {
    let whole = options.clone().with_partial(None);
    let expected = gradients(network, dataset, &lower_training(network, placement, batch, &whole).unwrap());
    let programs = lower_rotation(network, placement, batch, options).unwrap();
    let mut sums: BTreeMap<LayerId, Vec<f64>> = BTreeMap::new();
    for program in &programs {
        for (layer, gradient) in gradients(network, dataset, program) {
            let sum = sums.entry(layer).or_insert_with(|| vec![0.0; gradient.len()]);
            sum.iter_mut().zip(gradient).for_each(|(sum, value)| *sum += f64::from(value));
        }
    }
    for (layer, expected) in expected {
        let largest = expected.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
        for (sum, &expected) in sums[&layer].iter().zip(&expected) {
            let mean = sum / programs.len() as f64;
            let off = (mean - f64::from(expected)).abs() / f64::from(largest.max(1e-6));
            assert!(off < 2e-5, "{}: {mean} and {expected}", network.layer(layer).name());
        }
    }
}

fn cases(usual: u32) -> ProptestConfig {
    let cases = std::env::var("DEEPPOOL_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(usual);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(12))]

    /// All iterations of the rotation have the same parameters and samples.
    #[test]
    fn mean_gradient_of_a_rotation_equals_full_gradient(
        ranks in 1usize..5,
        batch in 9usize..16,
        parts in 2usize..6,
        micro_batches in 1usize..4,
        is_language: bool,
        overlap: bool,
        bucket_bytes in prop::sample::select(vec![1, 3_000, 25 << 20]),
        seed: u64,
    ) {
        let (network, source) = if is_language {
            (language_model(), DataSource::Synthetic { seed: 0 })
        } else {
            (zoo::model("digits-cnn").unwrap(), DataSource::Digits)
        };
        let dataset = Dataset::open(&source, &network).unwrap();
        let options = plain()
            .with_partial(Some(by_layers(&network, parts)))
            .with_micro_batches(micro_batches)
            .with_overlap_all_reduce(overlap)
            .with_bucket_bytes(bucket_bytes);
        let place = if seed % 2 == 0 { scattered } else { in_stretches };
        let placement = place(&network, ranks, seed);
        check_mean(&network, &dataset, &placement.unwrap(), batch, &options);
    }
}

/// Batch normalization per shard, where each shard is in one part: statistics do not mix parts.
#[test]
fn mean_gradient_with_batch_norm_per_shard_equals_full_gradient() {
    let network = normalised();
    let dataset = Dataset::digits().unwrap();
    let everywhere = Placement::first_ranks(&network, 4, &vec![4; network.len() - 1]).unwrap();
    for parts in [2, 4] {
        let options = plain().with_partial(Some(by_layers(&network, parts)));
        check_mean(&network, &dataset, &everywhere, 12, &options);
    }
}

/// Returns a chain of linear layers with equal numbers of parameters.
pub(crate) fn equal_layers(count: usize) -> LayerGraph {
    let mut net = LayerGraph::new("equal", Shape::features(10)).unwrap();
    let mut x = net.input();
    for index in 0..count {
        x = net.add(format!("fc{index}"), Linear::new(10), [x]).unwrap();
    }
    net.add("loss", LayerKind::CROSS_ENTROPY, [x]).unwrap();
    net
}

/// Returns the number of ranks that run each layer's backward step.
fn contributors(program: &Program) -> BTreeMap<LayerId, usize> {
    let mut counts = BTreeMap::new();
    for rank in &program.ranks {
        for step in &rank.steps {
            if let Op::Backward { layer, .. } = step.op {
                *counts.entry(layer).or_insert(0) += 1;
            }
        }
    }
    counts
}

/// Returns the number of elements sent by ring collectives.
fn sent_elements(program: &Program) -> usize {
    let of_collective = |op: &CollectiveOp, ranks: usize| match op {
        CollectiveOp::AllReduce { elements } if *elements > 2 => 2 * (ranks - 1) * elements,
        CollectiveOp::Broadcast { elements } => (ranks - 1) * elements,
        _ => 0,
    };
    program.collectives.iter().map(|collective| of_collective(&collective.op, collective.ranks.len())).sum()
}

#[test]
fn equal_layers_have_their_contributors_and_send_three_quarters_of_the_elements() {
    for parts in [2, 4, 8] {
        let network = equal_layers(8);
        let everywhere = Placement::first_ranks(&network, parts, &vec![parts; network.len() - 1]).unwrap();
        let options = plain().with_partial(Some(by_layers(&network, parts)));
        let programs = lower_rotation(&network, &everywhere, 2 * parts, &options).unwrap();
        let whole = lower_training(&network, &everywhere, 2 * parts, &plain()).unwrap();
        let mut contributed = 0;
        for program in &programs {
            for index in 0..8 {
                let layer = network.find(&format!("fc{index}")).unwrap();
                // All parts contribute to the last layer, and one to the first.
                let reached = parts - (7 - index) * parts / 8;
                assert_eq!(contributors(program)[&layer], reached, "fc{index} with {parts} parts");
                contributed += reached;
            }
        }
        // Of parts * 8 contributions in each iteration.
        assert_eq!(contributed * 2 * parts, (parts + 1) * parts * parts * 8);
        let sent: usize = programs.iter().map(sent_elements).sum();
        assert_eq!(4 * sent, 3 * parts * sent_elements(&whole), "{parts} parts");
    }
}

#[test]
fn losses_do_not_depend_on_the_plan() {
    let network = zoo::model("digits-cnn").unwrap();
    let dataset = Dataset::digits().unwrap();
    // 44 iterations per epoch. CI trains five epochs.
    let epochs = std::env::var("DEEPPOOL_EPOCHS").ok().and_then(|epochs| epochs.parse().ok()).unwrap_or(1);
    for (parts, micro_batches) in [(2, 1), (4, 1), (3, 5)] {
        let optimizer = Sgd { momentum: 0.9, weight_decay: 1e-4, clip_norm: Some(2.0) };
        let lowering = LowerOptions::default()
            .with_optimizer(optimizer)
            .with_partial(Some(by_layers(&network, parts)))
            .with_micro_batches(micro_batches);
        let run = Run { network: &network, dataset: &dataset, batch: 32, epochs, lowering, background: None };
        let alone = run.with(&Placement::single(&network).unwrap()).unwrap();
        assert!(alone.losses[alone.losses.len() - 1] < 0.7 * alone.losses[0], "the loss does not fall");
        let placements = [
            (2, planned(&network, 32, 2, Mode::DataParallel), None),
            (3, planned(&network, 32, 3, Mode::Burst { amplification: 1.15 }), None),
            (4, scattered(&network, 4, 3), Some(8)),
            (4, planned(&network, 32, 4, Mode::DataParallel), None),
        ];
        for (ranks, placement, background) in placements {
            let report = Run { background, ..run.clone() }.with(&placement.unwrap()).unwrap();
            let distance = distance(&alone.losses, &report.losses);
            println!("{parts} parts, {ranks} ranks, background {background:?}: {distance:.1e}");
            assert!(distance <= TOLERANCE, "{parts} parts, {ranks} ranks: {distance:.1e}");
        }
    }
}

/// All samples have the same role. Each role is drawn with the same probability.
#[test]
fn mean_gradient_of_skipping_for_the_whole_batch_equals_full_gradient() {
    let network = zoo::model("digits-cnn").unwrap();
    let dataset = Dataset::digits().unwrap();
    let options = plain().with_partial(Some(by_layers(&network, 4).together().at_random()));
    check_mean(&network, &dataset, &scattered(&network, 3, 1).unwrap(), 13, &options);
}

/// The drawn role depends only on the seed and the iteration.
#[test]
fn random_skipping_does_not_depend_on_the_plan() {
    let network = zoo::model("digits-cnn").unwrap();
    let dataset = Dataset::digits().unwrap();
    let losses_of = |partial: PartialBackpropagation, placement: &Placement, background| {
        let lowering = LowerOptions::default().with_partial(Some(partial));
        let run = Run { network: &network, dataset: &dataset, batch: 32, epochs: 1, lowering, background };
        run.with(placement).unwrap().losses
    };
    let together = by_layers(&network, 4).together();
    let alone = Placement::single(&network).unwrap();
    let drawn = losses_of(together.clone().at_random(), &alone, None);
    let in_turn = losses_of(together.clone(), &alone, None);
    // Drawn roles differ from roles in turn.
    assert!(distance(&drawn, &in_turn) > TOLERANCE);
    for (placement, background) in
        [(planned(&network, 32, 2, Mode::DataParallel), Some(8)), (scattered(&network, 3, 5), None)]
    {
        let losses = losses_of(together.clone().at_random(), &placement.unwrap(), background);
        let distance = distance(&drawn, &losses);
        assert!(distance <= TOLERANCE, "{distance:.1e}");
    }
}

/// A shard may have samples of several parts.
#[test]
fn synchronized_batch_norm_losses_do_not_depend_on_the_plan() {
    let network = normalised();
    let dataset = Dataset::digits().unwrap();
    let optimizer = Sgd { momentum: 0.9, weight_decay: 1e-4, clip_norm: Some(0.5) };
    for (parts, micro_batches) in [(2, 1), (5, 1), (3, 2)] {
        let lowering = LowerOptions::default()
            .with_optimizer(optimizer)
            .with_sync_batch_norm(true)
            .with_partial(Some(by_layers(&network, parts)))
            .with_micro_batches(micro_batches);
        let run =
            Run { network: &network, dataset: &dataset, batch: 32, epochs: 1, lowering, background: None };
        let alone = run.with(&Placement::single(&network).unwrap()).unwrap();
        assert!(alone.losses[alone.losses.len() - 1] < 0.7 * alone.losses[0], "the loss does not fall");
        for (ranks, seed) in [(2, 0), (3, 1), (4, 2)] {
            let placement = if seed == 0 {
                planned(&network, 32, ranks, Mode::DataParallel)
            } else {
                scattered(&network, ranks, seed)
            };
            let report = run.with(&placement.unwrap()).unwrap();
            let distance = distance(&alone.losses, &report.losses);
            println!("{parts} parts, {ranks} ranks: {distance:.1e}");
            assert!(distance <= TOLERANCE, "{parts} parts, {ranks} ranks: {distance:.1e}");
        }
    }
}

#[test]
fn invalid_partial_backpropagation_returns_errors() {
    let network = zoo::model("digits-cnn").unwrap();
    let alone = Placement::single(&network).unwrap();
    let error_of = |options: &LowerOptions, batch| {
        lower_rotation(&network, &alone, batch, options).unwrap_err().to_string()
    };
    let partial = plain().with_partial(Some(by_layers(&network, 4)));
    assert!(error_of(&partial, 3).contains("at most the samples of the batch"));
    let other = plain().with_partial(Some(by_layers(&zoo::model("vgg16").unwrap(), 4)));
    assert!(error_of(&other, 8).contains("layers of the network"));
    for parts in [0, 1] {
        let error = PartialBackpropagation::new(&network, parts, PartialDepth::Layers).unwrap_err();
        assert!(error.to_string().contains("at least 2"), "{error}");
    }
}
