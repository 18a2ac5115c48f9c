//! Training of networks with all kinds of layers on emulated GPUs, compared with CPUs.

use std::time::Duration;

use deeppool::data::Dataset;
use deeppool::program::{LowerOptions, LoweredTraining, Placement};
use deeppool::train::{Length, TrainConfig, train, train_on_gpus};
use gpu_mux::Policy;
use layer_graph::{LayerGraph, LayerKind};

use crate::emulated::on_emulated_gpus;
use crate::shrunk::{shrunk, shrunk_without};

const RANKS: usize = 2;
const BATCH: usize = 8;
const MAX_DIFFERENCE: f64 = 1e-4;

/// Places consecutive layers on all ranks, on the last, and on all others; the loss is on the last.
pub(crate) fn alternating_placement(net: &LayerGraph, world: usize) -> Placement {
    let turn = |(place, (_, layer)): (usize, (_, &layer_graph::Layer))| match (place / 3 % 3, layer.kind()) {
        (_, LayerKind::SoftmaxCrossEntropy(_)) | (1, _) => vec![world - 1],
        (2, _) => (0..world - 1).collect(),
        _ => (0..world).collect(),
    };
    Placement::new(net, world, net.computing_layers().enumerate().map(turn).collect()).unwrap()
}

/// Returns the maximum relative differences of the losses of three iterations: between GPUs and
/// CPUs, and, as a measure of rounding, between CPUs with this placement and with one rank.
/// Normalisations are over the global batch.
fn loss_differences(net: &LayerGraph, policy: Policy) -> (f64, f64) {
    let data = Dataset::synthetic_for(net, 64, 0).unwrap();
    let lowering = LowerOptions::default().with_sync_batch_norm(true);
    let lowered = |placement| LoweredTraining::new(net, placement, BATCH, lowering.clone());
    let (both, alone) =
        (lowered(alternating_placement(net, RANKS)), lowered(Placement::single(net).unwrap()));
    let config = |training| {
        TrainConfig::new(&data, training)
            .with_length(Length::Iterations(3))
            // Steps are so small that norms of few values do not amplify rounding.
            .with_learning_rate(1e-4)
            .with_policy(policy)
    };
    let processors = train(&config(&both), &|_| {}).unwrap().losses;
    let one = train(&config(&alone), &|_| {}).unwrap().losses;
    let gpus = train_on_gpus(&config(&both), Duration::from_secs(60), &|_| {}).unwrap().losses;
    assert_eq!((processors.len(), gpus.len()), (3, 3));
    let difference = |a: &[f64], b: &[f64]| {
        assert!(a.iter().chain(b).all(|loss| loss.is_finite()), "{a:?} {b:?}");
        a.iter().zip(b).map(|(a, b)| (a - b).abs() / a.abs().max(b.abs())).fold(0.0, f64::max)
    };
    (difference(&processors, &gpus), difference(&processors, &one))
}

#[test]
fn losses_on_gpus_match_losses_on_cpus() {
    on_emulated_gpus("gpu_networks::losses_on_gpus_match_losses_on_cpus", RANKS, |emulator| {
        // One block of each kind: in deeper networks rounding alone exceeds the limit between CPUs.
        let repeated = ["Mixed_5c", "Mixed_5d", "Mixed_6c", "Mixed_6d", "Mixed_6e", "Mixed_7c"];
        // Takes a minute longer.
        let times = if std::env::var_os("DEEPPOOL_GPU_FULL_RESNET").is_some() { 1 } else { 8 };
        for (model, net) in [
            ("resnet-18", shrunk("resnet-18", 32, times)),
            ("inception-v3", shrunk_without("inception-v3", 107, 8, &repeated)),
            ("vit-b-16", shrunk("vit-b-16", 32, 16)),
        ] {
            for (how, policy) in [("in graphs", Policy::default()), ("by kernels", Policy::priority())] {
                let (difference, rounding) = loss_differences(&net, policy);
                println!("{model}, small, {how}: {difference:.1e}, between CPUs {rounding:.1e}");
                assert!(difference <= MAX_DIFFERENCE, "{model}, {how}: {difference:.1e}");
            }
        }
        assert!(emulator.misuse().is_empty(), "{:?}", emulator.misuse());
        assert!(emulator.leaks().is_empty(), "{:?}", emulator.leaks());
    });
}
