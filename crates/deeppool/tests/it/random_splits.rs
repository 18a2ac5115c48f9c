//! Random placements with split layers, and the losses of training with them.

use deeppool::data::Dataset;
use deeppool::program::{LowerOptions, LoweredTraining, Placement, possible_checkpoints};
use deeppool::train::{Length, TrainConfig, train};
use layer_engine::Sgd;
use layer_graph::{
    Division, Dropout, Embedding, LayerGraph, LayerId, LayerKind, LayerNorm, Linear, MixtureOfExperts,
    MultiHeadAttention, NetworkSplits, PositionEmbedding, RelativePositions, RotaryEmbedding, Shape,
    SoftmaxCrossEntropy, Split,
};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::RngCore;

use crate::shrunk::shrunk_without;

/// Returns the number of cases of `DEEPPOOL_CASES`, or `default`.
pub(crate) fn cases(default: usize) -> usize {
    std::env::var("DEEPPOOL_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(default)
}

/// Returns a random number below `limit`.
pub(crate) fn below(random: &mut ChaCha8Rng, limit: usize) -> usize {
    random.next_u32() as usize % limit
}

/// Places each layer on random ranks of `0..world`, in a random order, with a random division.
/// Layers that share parameters have the same parts of them, or are whole.
pub(crate) fn random_placement(network: &LayerGraph, world: usize, random: &mut ChaCha8Rng) -> Placement {
    let splits = NetworkSplits::new(network);
    let mut ranks: Vec<Vec<usize>> = Vec::new();
    let mut divisions = Vec::new();
    for (id, _) in network.computing_layers() {
        let mut all: Vec<usize> = (0..world).collect();
        (1..world).rev().for_each(|last| all.swap(last, below(random, last + 1)));
        let mut possible = splits.splits(id);
        possible.retain(|&split| !splits.divides_input(id, split));
        let has_parts = !possible.is_empty() && world > 1 && below(random, 4) > 0;
        let owner = network.parameter_owner(id);
        if owner == id {
            let division = if has_parts {
                let split = possible[below(random, possible.len())];
                let parts = 1 + below(random, world.min(splits.max_parts(id, split)));
                Division { split, parts }
            } else {
                Division::WHOLE
            };
            all.truncate(division.parts * (1 + below(random, world / division.parts)));
            divisions.push((id, division));
        } else {
            let owner_place = owner.index() - network.inputs().len();
            all.clone_from(&ranks[owner_place]);
            let of_owner = divisions[owner_place].1;
            let same = possible.iter().map(|&split| Division { split, parts: of_owner.parts });
            let mut same =
                same.filter(|&division| splits.hold_same_parameters([(id, division), (owner, of_owner)]));
            let division = same.next().unwrap_or(Division::WHOLE);
            if division.is_whole() {
                divisions[owner_place].1 = Division::WHOLE;
            }
            divisions.push((id, division));
        }
        ranks.push(all);
    }
    Placement::new(network, world, ranks).unwrap().with_divisions(network, divisions).unwrap()
}

/// Returns random options of lowering, with synchronised batch normalisation: results do not depend
/// on the placement.
pub(crate) fn random_options(network: &LayerGraph, random: &mut ChaCha8Rng) -> LowerOptions {
    let clip_norm = (below(random, 2) > 0).then_some(0.5);
    let possible = possible_checkpoints(network).into_iter();
    let checkpoints = possible.filter(|_| below(random, 3) == 0).collect::<Vec<_>>();
    let names = checkpoints.into_iter().map(|id| network.layer(id).name().to_owned());
    LowerOptions::default()
        .with_sync_batch_norm(true)
        .with_optimizer(Sgd { momentum: 0.9, weight_decay: 1e-4, clip_norm })
        .with_bucket_bytes([1, 1 << 10, 25 << 20][below(random, 3)])
        .with_overlap_all_reduce(below(random, 4) > 0)
        .with_micro_batches(1 + below(random, 3))
        .with_checkpoints(names.collect())
}

/// Returns the losses of training on threads: of the given number of iterations, with batches and a
/// learning rate.
pub(crate) fn losses(
    network: &LayerGraph,
    placement: &Placement,
    options: &LowerOptions,
    data: &Dataset,
    (batch, iterations, learning_rate): (usize, u64, f64),
) -> Vec<f64> {
    let training = LoweredTraining::new(network, placement.clone(), batch, options.clone());
    let config = TrainConfig::new(data, &training)
        .with_length(Length::Iterations(iterations))
        .with_learning_rate(learning_rate);
    train(&config, &|_| {}).unwrap().losses
}

/// Returns the largest difference of losses.
pub(crate) fn difference(some: &[f64], others: &[f64]) -> f64 {
    assert_eq!(some.len(), others.len());
    assert!(some.iter().chain(others).all(|loss| loss.is_finite()), "{some:?} {others:?}");
    some.iter().zip(others).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// Adds a layer named by its number.
fn then(net: &mut LayerGraph, kind: impl Into<LayerKind>, from: &[LayerId]) -> LayerId {
    let name = format!("layer{}", net.layers().count());
    net.add(name, kind, from).unwrap()
}

/// Returns a language model of one block with two attentions, a perceptron, a mixture of experts
/// and dropout. The attentions share the numbers of relative positions, and the head shares its
/// weight with the embedding. One of the labels is ignored.
pub(crate) fn tied_transformer() -> LayerGraph {
    let mut network = LayerGraph::new("tied-transformer", Shape::features(5)).unwrap();
    let net = &mut network;
    let tokens = then(net, Embedding::new(11, 12), &[net.input()]);
    let placed = then(net, PositionEmbedding::new(6), &[tokens]);
    let x = then(net, Dropout::new(0.1), &[placed]);
    let y = then(net, LayerNorm::default(), &[x]);
    let relative = RelativePositions::new(4, 4);
    let attention = || MultiHeadAttention::new(3, true).with_dropout(0.1).with_relative_positions(relative);
    let [q, k, v] = [12; 3].map(|features| then(net, Linear::new(features), &[y]));
    let [q, k] = [q, k].map(|heads| then(net, RotaryEmbedding::new(4, 100.0), &[heads]));
    let first = then(net, attention(), &[q, k, v]);
    let [q, k, v] = [12; 3].map(|features| then(net, Linear::new(features), &[first]));
    let y = net.add_tied("attention", attention(), [q, k, v], first).unwrap();
    let y = then(net, Linear::new(12), &[y]);
    let y = then(net, Dropout::new(0.1), &[y]);
    let x = then(net, LayerKind::Add, &[x, y]);
    let y = then(net, LayerNorm::default(), &[x]);
    let y = then(net, Linear::new(20), &[y]);
    let y = then(net, LayerKind::GeluTanh, &[y]);
    let y = then(net, Linear::new(12), &[y]);
    let x = then(net, LayerKind::Add, &[x, y]);
    let y = then(net, LayerNorm::default(), &[x]);
    let scores = then(net, Linear::new(3).without_bias(), &[y]);
    let y = then(net, MixtureOfExperts::new(3, 2, 7), &[y, scores]);
    let x = then(net, LayerKind::Add, &[x, y]);
    let x = then(net, LayerNorm::default(), &[x]);
    let head = net.add_tied("head", Linear::new(11).without_bias(), [x], tokens).unwrap();
    net.add("loss", SoftmaxCrossEntropy::ignoring(3), [head]).unwrap();
    network
}

/// Returns a residual network of two blocks, of which one has a convolution in its shortcut.
pub(crate) fn small_resnet() -> LayerGraph {
    shrunk_without("resnet-18", 16, 8, &["layer1.1", "layer2.1", "layer3", "layer4"])
}

/// Places a digits-cnn on the ranks `0..world`, at least two and an even number, with convolutions
/// split by output and by input channels, linear layers by output and by input features, and
/// repeated layers.
pub(crate) fn split_digits_placement(network: &LayerGraph, world: usize) -> Placement {
    let ranks = network.computing_layers().map(|(_, layer)| match layer.name() {
        "conv1" | "gelu1" | "fc1" => (0..world).rev().collect(),
        "loss" => vec![1],
        _ => vec![0, 1],
    });
    let divisions = [
        ("conv1", Split::Features, 2),
        ("conv2_3x3", Split::Inputs, 2),
        ("gelu2_3x3", Split::Features, 2),
        ("pool1", Split::Copies, 2),
        ("conv3", Split::Inputs, 2),
        ("fc1", Split::Features, world),
        ("gelu4", Split::Features, 2),
        ("fc2", Split::Inputs, 2),
    ];
    let divisions = divisions.map(|(name, split, parts)| {
        (network.find(name).expect("the network has this layer"), Division { split, parts })
    });
    Placement::new(network, world, ranks.collect()).unwrap().with_divisions(network, divisions).unwrap()
}
