//! Losses on 1 to 4 emulated GPUs, compared with those of processors with the same placement: by
//! own kernels and by the emulated libraries, in each precision, and with both orders of images.

use std::time::Duration;

use cuda_emulator::Setting;
use deeppool::data::Dataset;
use deeppool::program::{LowerOptions, LoweredTraining, Placement};
use deeppool::train::{Length, TrainConfig, train, train_on_gpus};
use layer_engine::{ImageLayout, KernelChoice, Precision};
use layer_graph::hf::from_config;
use layer_graph::{
    Dropout, Embedding, LayerGraph, LayerId, LayerKind, LayerNorm, Linear, MultiHeadAttention,
    PositionEmbedding, Recurrence, RecurrentCell, RelativePositions, Shape, Slice, SoftmaxCrossEntropy, zoo,
};

use crate::emulated::on_emulated_gpus;
use crate::gpu_networks::alternating_placement;
use crate::several_losses::pretraining;
use crate::shrunk::shrunk;

/// Maximum number of GPUs.
const GPUS: usize = 4;

/// Seeds of the order of warps and blocks.
const ORDERS: [i64; 3] = [0, 7, 11];

/// Ways to compute products, with the maximum relative difference of losses from processors.
const WAYS: [(KernelChoice, Precision, ImageLayout, f64); 8] = [
    (KernelChoice::Own, Precision::F32, ImageLayout::ChannelsFirst, 1e-5),
    (KernelChoice::Vendor, Precision::F32, ImageLayout::ChannelsFirst, 1e-5),
    (KernelChoice::Vendor, Precision::Tf32, ImageLayout::ChannelsFirst, 1e-2),
    (KernelChoice::Own, Precision::Bf16, ImageLayout::ChannelsFirst, 2e-2),
    (KernelChoice::Vendor, Precision::Bf16, ImageLayout::ChannelsFirst, 2e-2),
    (KernelChoice::Vendor, Precision::F32, ImageLayout::ChannelsLast, 1e-5),
    (KernelChoice::Vendor, Precision::Tf32, ImageLayout::ChannelsLast, 1e-2),
    (KernelChoice::Vendor, Precision::Bf16, ImageLayout::ChannelsLast, 2e-2),
];

/// Whether to train on every number of GPUs, and all iterations.
fn is_full() -> bool {
    std::env::var_os("DEEPPOOL_GPU_FULL_LOSSES").is_some_and(|value| value == "1")
}

fn config_of<'a>(
    data: &'a Dataset,
    training: &'a LoweredTraining<'a>,
    iterations: u64,
    learning_rate: f64,
) -> TrainConfig<'a> {
    TrainConfig::new(data, training)
        .with_length(Length::Iterations(iterations))
        .with_learning_rate(learning_rate)
}

/// Trains on 1 to 4 GPUs, data parallel and with layers on some of the GPUs: in each way on one
/// GPU, and in two ways, one of images with channels last, with each placement on several. Without
/// [`is_full`], on one and on three GPUs, and four iterations, of which the last ones are graphs.
fn check_losses(
    name: &str,
    net: &LayerGraph,
    data: &Dataset,
    (batch, iterations, learning_rate): (usize, u64, f64),
) {
    on_emulated_gpus(name, GPUS, |emulator| {
        let iterations = if is_full() { iterations } else { 4 };
        let mut placements = vec![Placement::single(net).unwrap()];
        for gpus in if is_full() { 2..=GPUS } else { 3..=3 } {
            placements
                .push(Placement::first_ranks(net, gpus, &vec![gpus; net.layers().count() - 1]).unwrap());
            placements.push(alternating_placement(net, gpus));
        }
        for (index, placement) in placements.into_iter().enumerate() {
            let gpus = placement.world();
            let lowered = |precision| {
                let lowering = LowerOptions::default().with_sync_batch_norm(true).with_precision(precision);
                LoweredTraining::new(net, placement.clone(), batch, lowering)
            };
            let on_processors = |precision| {
                let training = lowered(precision);
                let config = config_of(data, &training, iterations, learning_rate);
                train(&config, &|_| {}).unwrap().losses
            };
            let [single, half] = [Precision::F32, Precision::Bf16].map(on_processors);
            let has_images = net.layer(net.input()).output_shape().as_image().is_some();
            let mut ways = if index == 0 { vec![0, 1, 2, 3, 4] } else { vec![index % 5, (index + 2) % 5] };
            if has_images {
                ways.truncate(if index == 0 { 5 } else { 1 });
                ways.extend(if index == 0 { 5..8 } else { 6 + index % 2..7 + index % 2 });
            }
            for (kernels, precision, layout, limit) in ways.into_iter().map(|way| WAYS[way]) {
                let processors = if precision == Precision::Bf16 { &half } else { &single };
                emulator.set(Setting::OrderSeed, ORDERS[index % ORDERS.len()]);
                let training = lowered(precision);
                let config = config_of(data, &training, iterations, learning_rate);
                let config = config.with_kernels(Some(kernels)).with_image_layout(Some(layout));
                let report = train_on_gpus(&config, Duration::from_secs(600), &|_| {}).unwrap();
                assert_eq!([processors.len(), report.losses.len()], [iterations as usize; 2]);
                assert!(report.losses.iter().all(|loss| loss.is_finite()), "{:?}", report.losses);
                let pairs = processors.iter().zip(&report.losses);
                let difference = pairs.map(|(a, b)| (a - b).abs() / a.abs()).fold(0.0, f64::max);
                let case = format!(
                    "{}, placement {index}, {gpus} GPUs, {kernels:?}, {precision:?}, {layout:?}",
                    net.name()
                );
                println!("{case}: {difference:.1e}");
                assert!(difference <= limit, "{case}: {difference:.1e}");
                assert!(precision == Precision::F32 || difference > 1e-7, "{case}: {difference:.1e}");
                assert_eq!(report.image_order.map(|order| order.layout), Some(layout), "{case}");
                let mut parts = report.kernels.iter().flat_map(|kernel| &kernel.parts);
                let is_own = kernels == KernelChoice::Own;
                assert!(!report.kernels.is_empty() && parts.all(|part| (part.chosen == "own") == is_own));
            }
        }
        assert!(emulator.misuse().is_empty(), "{:?}", emulator.misuse());
        assert!(emulator.leaks().is_empty(), "{:?}", emulator.leaks());
    });
}

#[test]
fn losses_of_a_digits_cnn_match_those_of_processors() {
    let name = "gpu_losses::losses_of_a_digits_cnn_match_those_of_processors";
    check_losses(name, &zoo::model("digits-cnn").unwrap(), &Dataset::digits().unwrap(), (8, 50, 0.03));
}

#[test]
fn losses_of_a_residual_network_match_those_of_processors() {
    let net = shrunk("resnet-18", 16, 4);
    let data = Dataset::synthetic_for(&net, 64, 0).unwrap();
    // Steps are so small that norms of few values do not amplify rounding.
    let name = "gpu_losses::losses_of_a_residual_network_match_those_of_processors";
    check_losses(name, &net, &data, (16, 10, 1e-4));
}

/// Returns a translation network: an LSTM encoder and a GRU decoder, whose outputs attend to those
/// of the encoder. Its tokens are seven of the source, then five of the target. Its loss has
/// smoothed labels, and ignores one of them.
fn translator() -> LayerGraph {
    let mut net = LayerGraph::new("translator", Shape::features(12)).unwrap();
    let tokens = net.input();
    let mut then = |name: &str, kind: LayerKind, inputs: &[LayerId]| net.add(name, kind, inputs).unwrap();
    let words = then("embedding", Embedding::new(16, 8).into(), &[tokens]);
    let source = then("source", Slice { start: 0, length: 7 }.into(), &[words]);
    let gates = then("encoder.ih_l0", Linear::new(4 * 16).into(), &[source]);
    let source = then("encoder.hh_l0", Recurrence::new(RecurrentCell::Lstm).into(), &[gates]);
    let target = then("target", Slice { start: 7, length: 5 }.into(), &[words]);
    let gates = then("decoder.ih_l0", Linear::new(3 * 16).into(), &[target]);
    let target = then("decoder.hh_l0", Recurrence::new(RecurrentCell::Gru).into(), &[gates]);
    let attention = MultiHeadAttention::new(2, false).with_relative_positions(RelativePositions::new(6, 5));
    let context = then("attention", attention.into(), &[target, source, source]);
    let both = then("add", LayerKind::Add, &[context, target]);
    let scores = then("head", Linear::new(16).into(), &[both]);
    let rule = SoftmaxCrossEntropy { label_smoothing: 0.1, ignored_label: Some(3) };
    then("loss", rule.into(), &[scores]);
    net
}

#[test]
fn losses_of_a_translator_match_those_of_processors() {
    let net = translator();
    let data = Dataset::synthetic_for(&net, 64, 0).unwrap();
    let name = "gpu_losses::losses_of_a_translator_match_those_of_processors";
    check_losses(name, &net, &data, (8, 10, 0.03));
}

#[test]
fn losses_of_a_transformer_match_those_of_processors() {
    let net = transformer();
    let data = Dataset::synthetic_for(&net, 64, 0).unwrap();
    let name = "gpu_losses::losses_of_a_transformer_match_those_of_processors";
    check_losses(name, &net, &data, (8, 10, 0.03));
}

#[test]
fn losses_of_a_llama_match_those_of_processors() {
    let config = r#"{
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 11, "hidden_size": 16,
        "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 8
    }"#;
    let net = from_config("llama", config, Some(6)).unwrap().network;
    let data = Dataset::synthetic_for(&net, 64, 0).unwrap();
    let name = "gpu_losses::losses_of_a_llama_match_those_of_processors";
    check_losses(name, &net, &data, (8, 10, 0.03));
}

#[test]
fn losses_of_a_recurrent_language_model_match_those_of_processors() {
    let mut net = LayerGraph::new("gru", Shape::features(6)).unwrap();
    let tokens = net.add("embedding", Embedding::new(11, 10), [net.input()]).unwrap();
    let [forward, backward] = [false, true].map(|reversed| {
        let gates = net.add(format!("gates.{reversed}"), Linear::new(3 * 12), [tokens]).unwrap();
        let rule = Recurrence { reversed, ..Recurrence::new(RecurrentCell::Gru) };
        net.add(format!("gru.{reversed}"), rule, [gates]).unwrap()
    });
    let both = net.add("both", LayerKind::Concat, [forward, backward]).unwrap();
    let scores = net.add("head", Linear::new(11), [both]).unwrap();
    net.add("loss", SoftmaxCrossEntropy::smoothed(0.1), [scores]).unwrap();
    let data = Dataset::synthetic_for(&net, 64, 0).unwrap();
    let name = "gpu_losses::losses_of_a_recurrent_language_model_match_those_of_processors";
    check_losses(name, &net, &data, (8, 10, 0.03));
}

/// Three losses with weights, on several GPUs, of which one ignores a label and one has numbers.
#[test]
fn several_losses_match_those_of_processors() {
    let net = pretraining();
    let data = Dataset::synthetic_for(&net, 64, 0).unwrap();
    check_losses("gpu_losses::several_losses_match_those_of_processors", &net, &data, (8, 10, 0.03));
}

/// A language model of two blocks, with every kind of layer of GPT-2.
fn transformer() -> LayerGraph {
    let mut net = LayerGraph::new("transformer", Shape::features(6)).unwrap();
    let input = net.input();
    let mut then = |kind: LayerKind, from: &[LayerId]| {
        let name = format!("layer{}", net.layers().count());
        net.add(name, kind, from).unwrap()
    };
    let tokens = then(Embedding::new(11, 16).into(), &[input]);
    let placed = then(PositionEmbedding::new(8).into(), &[tokens]);
    let mut x = then(Dropout::new(0.1).into(), &[placed]);
    for _ in 0..2 {
        let y = then(LayerNorm::default().into(), &[x]);
        let y = then(Linear::new(48).into(), &[y]);
        let y = then(MultiHeadAttention::new(2, true).with_dropout(0.1).into(), &[y]);
        let y = then(Linear::new(16).into(), &[y]);
        x = then(LayerKind::Add, &[x, y]);
        let y = then(LayerNorm::default().into(), &[x]);
        let y = then(Linear::new(64).into(), &[y]);
        let y = then(LayerKind::GeluTanh, &[y]);
        let y = then(Linear::new(16).into(), &[y]);
        x = then(LayerKind::Add, &[x, y]);
    }
    let x = then(LayerNorm::default().into(), &[x]);
    let head = then(Linear::new(11).into(), &[x]);
    then(LayerKind::CROSS_ENTROPY, &[head]);
    net
}
