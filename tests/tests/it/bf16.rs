//! Training with activations and gradients of 16 bits, compared with single precision.

use deeppool::Error;
use deeppool::data::{DataSource, Dataset};
use deeppool::plan::Mode;
use deeppool::program::{
    LowerOptions, LoweredTraining, PartialBackpropagation, PartialDepth, Placement, lower_training,
    possible_checkpoints,
};
use deeppool::train::{BackgroundConfig, Length, TrainConfig, TrainReport, Weights, evaluate, train};
use deeppool_tests::{in_stretches, planned, scattered};
use layer_engine::{Precision, Sgd};
use layer_graph::{Embedding, LayerGraph, LayerKind, Linear, Shape, zoo};

use crate::plan_independent::{language_model, normalised};

/// Maximum difference of losses, relative to the first loss.
const TOLERANCE: f64 = 2e-2;
const BATCH: usize = 32;

/// Trains the first iterations of a network.
fn run(
    (network, dataset): (&LayerGraph, &Dataset),
    placement: &Placement,
    lowering: &LowerOptions,
    (iterations, background): (u64, Option<usize>),
) -> TrainReport {
    let training = LoweredTraining::new(network, placement.clone(), BATCH, lowering.clone());
    let job = |batch| BackgroundConfig::new(network, dataset, batch).with_micro_batches(2);
    let config = TrainConfig::new(dataset, &training)
        .with_length(Length::Iterations(iterations))
        .with_background(background.map(job));
    train(&config, &|_| {}).unwrap()
}

/// Returns the maximum difference of two loss curves, relative to the first loss.
fn distance(losses: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(losses.len(), expected.len());
    losses.iter().zip(expected).map(|(a, b)| (a - b).abs() / expected[0]).fold(0.0, f64::max)
}

fn bf16(lowering: LowerOptions) -> LowerOptions {
    lowering.with_precision(Precision::Bf16)
}

#[test]
fn digits_cnn_losses_match_single_precision_with_any_plan() {
    let network = zoo::model("digits-cnn").unwrap();
    let of = (&network, &Dataset::digits().unwrap());
    let single = Placement::single(&network).unwrap();
    let expected = run(of, &single, &LowerOptions::default(), (50, None)).losses;
    let lowering = bf16(LowerOptions::default());
    let alone = run(of, &single, &lowering, (50, None)).losses;
    assert_ne!(alone, expected, "nothing was rounded");
    assert!(alone[49] < 0.5 * alone[0], "the loss does not fall");
    assert!(distance(&alone, &expected) <= TOLERANCE);
    for ranks in 2..=4 {
        let placements = [
            ("data parallel", planned(&network, BATCH, ranks, Mode::DataParallel)),
            ("burst", planned(&network, BATCH, ranks, Mode::Burst { amplification: 1.15 })),
            ("scattered", scattered(&network, ranks, ranks as u64)),
        ];
        for (name, placement) in placements {
            let background = (ranks == 3 && name == "scattered").then_some(8);
            let report = run(of, &placement.unwrap(), &lowering, (50, background));
            let distances = [&expected, &alone].map(|other| distance(&report.losses, other));
            println!("{ranks} ranks, {name}: {distances:?} from f32 and from one rank");
            assert!(distances.iter().all(|&distance| distance <= TOLERANCE), "{ranks} ranks, {name}");
            assert_eq!(report.background_samples_per_s > 0.0, background.is_some());
        }
    }
}

/// Tokens, shared parameters, clipping, micro-batches and recomputation.
#[test]
fn language_model_losses_match_single_precision() {
    let network = language_model();
    let of = (&network, &Dataset::open(&DataSource::Synthetic { seed: 0 }, &network).unwrap());
    let optimizer = Sgd { momentum: 0.9, weight_decay: 1e-4, clip_norm: Some(2.0) };
    let lowering = LowerOptions::default().with_optimizer(optimizer);
    let single = Placement::single(&network).unwrap();
    let expected = run(of, &single, &lowering, (20, None)).losses;
    for (ranks, micro_batches) in [(1, 1), (2, 3), (4, 1)] {
        let placement = in_stretches(&network, ranks, ranks as u64).unwrap();
        let checkpoints = possible_checkpoints(&network).into_iter().skip(2).step_by(3);
        let names: Vec<String> = checkpoints.map(|id| network.layer(id).name().to_owned()).collect();
        let kept = bf16(lowering.clone()).with_micro_batches(micro_batches);
        let losses = run(of, &placement, &kept, (20, None)).losses;
        let distance = distance(&losses, &expected);
        println!("{ranks} ranks, {micro_batches} micro-batches: {distance:.1e}");
        assert!(distance <= TOLERANCE, "{ranks} ranks: {distance:.1e}");
        let recomputed = run(of, &placement, &kept.with_checkpoints(names), (20, None)).losses;
        assert_eq!(recomputed, losses, "{ranks} ranks");
    }
}

/// Gradients and moments of batch normalisation are scaled.
#[test]
fn partial_backpropagation_matches_single_precision() {
    for network in [zoo::model("digits-cnn").unwrap(), normalised()] {
        let of = (&network, &Dataset::digits().unwrap());
        let partial = PartialBackpropagation::new(&network, 2, PartialDepth::Layers).unwrap();
        let lowering = LowerOptions::default().with_partial(Some(partial)).with_sync_batch_norm(true);
        let single = Placement::single(&network).unwrap();
        let expected = run(of, &single, &lowering, (30, None)).losses;
        for (ranks, placement) in [(1, single), (3, scattered(&network, 3, 1).unwrap())] {
            let losses = run(of, &placement, &bf16(lowering.clone()), (30, None)).losses;
            let distance = distance(&losses, &expected);
            println!("{} on {ranks} ranks: {distance:.1e}", network.name());
            assert!(distance <= TOLERANCE, "{} on {ranks} ranks: {distance:.1e}", network.name());
        }
    }
}

#[test]
fn evaluation_matches_single_precision() {
    let network = zoo::model("digits-cnn").unwrap();
    let dataset = Dataset::digits().unwrap();
    let weights = Weights::initial(&network, 0).unwrap();
    let accuracy = |precision, gpus: usize| {
        let ranks =
            (1..network.len()).map(|layer| if layer % 2 == 0 { vec![0] } else { (0..gpus).collect() });
        let placement = Placement::new(&network, gpus, ranks.collect()).unwrap();
        let lowering = LowerOptions::default().with_precision(precision);
        let training = LoweredTraining::new(&network, placement, BATCH, lowering);
        evaluate(&TrainConfig::new(&dataset, &training).with_initial(Some(&weights))).unwrap().score()
    };
    let expected = accuracy(Precision::F32, 1);
    for gpus in [1, 3] {
        let got = accuracy(Precision::Bf16, gpus);
        assert!((got - expected).abs() <= 0.02, "{got} on {gpus} ranks, {expected} in f32");
    }
}

#[test]
fn odd_samples_that_move_are_an_error() {
    let mut network = LayerGraph::new("odd", Shape::features(5)).unwrap();
    let odd = network.add("odd", Linear::new(7), [network.input()]).unwrap();
    let scores = network.add("scores", Linear::new(4), [odd]).unwrap();
    network.add("loss", LayerKind::CROSS_ENTROPY, [scores]).unwrap();
    let lower = |ranks: [usize; 3], precision| {
        let ranks = ranks.map(|rank| vec![rank]).to_vec();
        let placement = Placement::new(&network, 2, ranks).unwrap();
        let lowering = LowerOptions::default().with_precision(precision);
        lower_training(&network, &placement, 4, &lowering)
    };
    assert!(lower([0, 1, 1], Precision::F32).is_ok());
    assert!(lower([0, 0, 1], Precision::Bf16).is_ok());
    let error = lower([0, 1, 1], Precision::Bf16).unwrap_err();
    assert_eq!(
        error.to_string(),
        "in bf16 a sample that moves between ranks needs an even number of elements, and layer `odd` has 7: \
         plan data parallelism (--mode dp), or give --precision f32 or tf32"
    );
}

#[test]
fn tokens_that_other_layers_than_embeddings_read_are_an_error() {
    let mut network = LayerGraph::new("tokens", Shape::features(4)).unwrap();
    let input = network.input();
    let words = network.add("words", Embedding::new(9, 4), [input]).unwrap();
    let words = network.add("flat", LayerKind::Flatten, [words]).unwrap();
    let values = network.add("values", Linear::new(16), [input]).unwrap();
    let sum = network.add("sum", LayerKind::Add, [words, values]).unwrap();
    network.add("loss", LayerKind::CROSS_ENTROPY, [sum]).unwrap();
    let placement = Placement::single(&network).unwrap();
    let lower = |lowering| lower_training(&network, &placement, 4, &lowering);
    assert!(lower(LowerOptions::default()).is_ok());
    let error = lower(bf16(LowerOptions::default())).unwrap_err();
    assert!(matches!(&error, Error::Tokens { layer } if layer == "values"), "{error}");
}

/// All networks of the zoo have embeddings only where 16 bits are possible.
#[test]
fn programs_of_the_zoo_are_lowered_in_16_bits() {
    for model in zoo::names() {
        let network = zoo::model(model).unwrap();
        let placement = Placement::single(&network).unwrap();
        let of = |lowering: LowerOptions| {
            let program = lower_training(&network, &placement, 64, &lowering).unwrap();
            program.memory_peak()
        };
        // With few samples, gradients of parameters fill the fullest moment instead of activations.
        let (single, half) = (of(LowerOptions::default()), of(bf16(LowerOptions::default())));
        assert!(half.activations_bytes < single.activations_bytes, "{model}");
        assert!(half.parameters_bytes < single.parameters_bytes, "{model}");
        // Master parameters beside the velocities.
        assert_eq!(half.optimizer_bytes, 2 * single.optimizer_bytes, "{model}");
    }
}
