//! Networks with several losses, and with outputs that no loss reads.

use std::collections::BTreeMap;

use deeppool::Error;
use deeppool::data::{DataError, DataSource, Dataset};
use deeppool::program::{LowerOptions, LoweredTraining, Placement, lower_training};
use deeppool::train::{Evaluation, Gradients, Length, TrainConfig, evaluate, gradients, train};
use layer_engine::initial_parameters;
use layer_graph::{
    Conv2d, ElementwiseLoss, Embedding, LayerGraph, LayerKind, LayerNorm, Linear, Shape, SoftmaxCrossEntropy,
};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::random_splits::{cases, difference, losses, random_options, random_placement};

const TOKENS: usize = 6;
const BATCH: usize = 12;
/// Names and weights of the losses of [`pretraining`].
const LOSSES: [(&str, f64); 3] = [("words_loss", 1.0), ("next_loss", 0.3), ("value_loss", 2.0)];

/// A network that is pretrained as BERT is: a loss for masked words, of which one label is ignored,
/// one for the class of the sequence, and one for numbers. Only the named losses are added.
fn with_losses(names: &[&str]) -> LayerGraph {
    let mut net = LayerGraph::new("pretraining", Shape::features(TOKENS)).unwrap();
    let words = net.add("words", Embedding::new(9, 8), [net.input()]).unwrap();
    let normal = net.add("norm", LayerNorm::default(), [words]).unwrap();
    let hidden = net.add("hidden", Linear::new(8), [normal]).unwrap();
    let hidden = net.add("gelu", LayerKind::Gelu, [hidden]).unwrap();
    for (name, weight) in LOSSES.into_iter().filter(|(name, _)| names.contains(name)) {
        let loss = if name == "words_loss" {
            let scores = net.add_tied("head", Linear::new(9).without_bias(), [hidden], words).unwrap();
            net.add(name, SoftmaxCrossEntropy::ignoring(2), [scores]).unwrap()
        } else {
            let flat = net.add(format!("{name}.flatten"), LayerKind::Flatten, [hidden]).unwrap();
            let outputs = net.add(format!("{name}.linear"), Linear::new(4), [flat]).unwrap();
            let squares = ElementwiseLoss::MeanSquaredError.into();
            let kind = if name == "next_loss" { LayerKind::CROSS_ENTROPY } else { squares };
            net.add(name, kind, [outputs]).unwrap()
        };
        net.set_loss_weight(loss, weight).unwrap();
    }
    net
}

pub(crate) fn pretraining() -> LayerGraph {
    with_losses(&LOSSES.map(|(name, _)| name))
}

fn data() -> Dataset {
    Dataset::synthetic_for(&pretraining(), 80, 1).unwrap()
}

/// Features and labels of some samples.
fn batch(network: &LayerGraph) -> [Vec<f64>; 2] {
    let data = data();
    let samples = || (0..5).map(|index| (data.train().features(index), data.train().labels_of(index)));
    let all = pretraining();
    let labels = samples().flat_map(|(_, labels)| {
        network.losses().flat_map(|loss| {
            let same = all.find(network.layer(loss).name()).unwrap();
            labels[all.loss_labels(same)].iter().copied().map(f64::from).collect::<Vec<_>>()
        })
    });
    [samples().flat_map(|(features, _)| features).map(|&token| f64::from(token)).collect(), labels.collect()]
}

fn gradients_of(
    network: &LayerGraph,
    change: impl Fn(&mut BTreeMap<String, (Vec<usize>, Vec<f64>)>),
) -> Gradients {
    let mut parameters = BTreeMap::new();
    for (id, layer) in network.layers().filter(|(id, _)| network.own_parameter_count(*id) > 0) {
        assert_eq!(network.parameter_owner(id), id);
        let values = initial_parameters(layer, 0);
        let mut rest = values.as_slice();
        for part in layer.parameters() {
            let (own, others) = rest.split_at(part.elements());
            rest = others;
            parameters.insert(layer.tensor_name(&part), (part.dims, own.to_vec()));
        }
    }
    change(&mut parameters);
    let [features, labels] = batch(network);
    gradients(network, &parameters, &features, &labels).unwrap()
}

#[test]
fn gradients_are_the_weighted_sum_of_those_of_each_loss() {
    let all = gradients_of(&pretraining(), |_| {});
    let mut expected = Gradients { loss: 0.0, of_parameters: BTreeMap::new() };
    for (name, _) in LOSSES {
        // Its weight is that of the whole network.
        let one = gradients_of(&with_losses(&[name]), |_| {});
        expected.loss += one.loss;
        for (name, (dims, values)) in one.of_parameters {
            let zeros = || (dims, vec![0.0; values.len()]);
            let (_, sum) = expected.of_parameters.entry(name).or_insert_with(zeros);
            sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
    }
    assert!((all.loss - expected.loss).abs() < 1e-12, "{} {}", all.loss, expected.loss);
    assert!(all.of_parameters.keys().eq(expected.of_parameters.keys()));
    for (name, (_, values)) in &all.of_parameters {
        for (got, expected) in values.iter().zip(&expected.of_parameters[name].1) {
            assert!((got - expected).abs() < 1e-12, "{name}: {got}, expected {expected}");
        }
    }
}

#[test]
fn gradients_match_finite_differences_of_the_sum_of_losses() {
    let network = pretraining();
    let found = gradients_of(&network, |_| {});
    for (name, (_, gradient)) in &found.of_parameters {
        let largest = (0..gradient.len()).max_by(|&a, &b| gradient[a].abs().total_cmp(&gradient[b].abs()));
        let largest = largest.unwrap();
        let loss_at = |by: f64| {
            gradients_of(&network, |parameters| parameters.get_mut(name).unwrap().1[largest] += by).loss
        };
        let expected = (loss_at(1e-6) - loss_at(-1e-6)) / 2e-6;
        let got = gradient[largest];
        assert!((got - expected).abs() < 1e-8, "{name}[{largest}]: {got}, by differences {expected}");
        assert!(got.abs() > 1e-6, "{name} has no gradient");
    }
}

/// Losses do not depend on the placement: of split layers, layers that are computed again, and
/// several micro-batches.
#[test]
fn losses_are_the_same_with_any_placement() {
    let (network, data, training) = (pretraining(), data(), (BATCH, 6, 0.05));
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let single = Placement::single(&network).unwrap();
    let expected = losses(&network, &single, &LowerOptions::default(), &data, training);
    assert!(expected[5] < 0.9 * expected[0], "{expected:?}");
    for case in 0..cases(16) {
        let placement = random_placement(&network, 1 + case % 4, &mut random);
        let mut options = random_options(&network, &mut random);
        options.optimizer = LowerOptions::default().optimizer;
        let found = losses(&network, &placement, &options, &data, training);
        let worst = difference(&found, &expected);
        assert!(worst < 1e-4, "case {case}: {worst}, {placement:?}, {options:?}");
    }
}

/// The loss of a test is the weighted sum of those of all losses, and each is that of the network
/// that has this loss alone, with any placement.
#[test]
fn evaluation_has_the_results_of_each_loss() {
    let (network, data) = (pretraining(), data());
    let of_placement = |placement: Placement| -> Evaluation {
        let training = LoweredTraining::new(&network, placement, 5, LowerOptions::default());
        evaluate(&TrainConfig::new(&data, &training)).unwrap()
    };
    let expected = of_placement(Placement::single(&network).unwrap());
    let names: Vec<&str> = expected.of_losses.iter().map(|one| one.layer.as_str()).collect();
    assert_eq!(names, LOSSES.map(|(name, _)| name));
    let sum: f64 = expected.of_losses.iter().map(|one| one.weight * one.loss).sum();
    assert!((sum - expected.loss).abs() < 1e-12);
    assert_eq!(expected.accuracy, expected.of_losses[0].accuracy);
    let has_accuracy: Vec<bool> = expected.of_losses.iter().map(|one| one.accuracy.is_some()).collect();
    assert_eq!(has_accuracy, [true, true, false]);
    let mut random = ChaCha8Rng::seed_from_u64(4);
    for world in [2, 3, 4] {
        let found = of_placement(random_placement(&network, world, &mut random));
        for (found, expected) in found.of_losses.iter().zip(&expected.of_losses) {
            assert!((found.loss - expected.loss).abs() < 1e-5, "{found:?}, expected {expected:?}");
            let accuracies = [found, expected].map(|one| one.accuracy.unwrap_or(-1.0));
            assert!((accuracies[0] - accuracies[1]).abs() < 1e-6, "{found:?}, expected {expected:?}");
        }
    }
}

/// An image classifier with an auxiliary classifier, as those of Inception have.
fn auxiliary() -> LayerGraph {
    let mut net = LayerGraph::new("auxiliary", Shape::image(1, 8, 8)).unwrap();
    let conv = net.add("conv", Conv2d::new(4, 3).padding(1), [net.input()]).unwrap();
    let relu = net.add("relu", LayerKind::Relu, [conv]).unwrap();
    let early = net.add("early", LayerKind::Flatten, [relu]).unwrap();
    let aux = net.add("aux", Linear::new(10), [early]).unwrap();
    let aux = net.add("aux_loss", LayerKind::CROSS_ENTROPY, [aux]).unwrap();
    net.set_loss_weight(aux, 0.4).unwrap();
    let conv = net.add("conv2", Conv2d::new(4, 3).padding(1), [relu]).unwrap();
    let flat = net.add("flatten", LayerKind::Flatten, [conv]).unwrap();
    let scores = net.add("fc", Linear::new(10), [flat]).unwrap();
    net.add("loss", LayerKind::CROSS_ENTROPY, [scores]).unwrap();
    net
}

#[test]
fn auxiliary_classifiers_learn_the_labels_of_images() {
    let network = auxiliary();
    let data = Dataset::open(&DataSource::Digits, &network).unwrap();
    let digits = Dataset::digits().unwrap();
    assert_eq!(data.train().labels_of(7), digits.train().labels_of(7).repeat(2));
    assert!(matches!(digits.fits(&network), Err(DataError::LossCount { found: 1, .. })));
    let placement = Placement::new(&network, 2, [0, 0, 1, 1, 1, 0, 0, 0, 0].map(|rank| vec![rank]).to_vec());
    let training = LoweredTraining::new(&network, placement.unwrap(), 32, LowerOptions::default());
    let config = TrainConfig::new(&data, &training).with_length(Length::Epochs(3)).with_learning_rate(0.03);
    let report = train(&config, &|_| {}).unwrap();
    let Evaluation { of_losses, .. } = &report.epochs[2].test;
    assert!(of_losses.iter().all(|one| one.accuracy.unwrap() > 0.85), "{of_losses:?}");
}

#[test]
fn networks_that_cannot_be_trained_are_refused() {
    let error = |network: &LayerGraph| {
        let placement = Placement::single(network).unwrap();
        lower_training(network, &placement, 4, &LowerOptions::default()).unwrap_err()
    };
    let mut network = LayerGraph::new("network", Shape::features(4)).unwrap();
    let scores = network.add("fc", Linear::new(2), [network.input()]).unwrap();
    assert!(matches!(error(&network), Error::NoLoss { .. }));
    let loss = network.add("loss", LayerKind::CROSS_ENTROPY, [scores]).unwrap();
    network.add("pooled", LayerKind::Tanh, [scores]).unwrap();
    assert!(matches!(error(&network), Error::UnusedLayer { layer, .. } if layer == "pooled"));
    let mut network = network.without_unused_layers().unwrap();
    let placement = Placement::single(&network).unwrap();
    lower_training(&network, &placement, 4, &LowerOptions::default()).unwrap();
    network.add("scaled", LayerKind::Relu, [loss]).unwrap();
    assert!(matches!(error(&network), Error::ReadLoss { loss, .. } if loss == "loss"));
}

/// An input that only an unused layer reads is a part of the samples that no step loads.
#[test]
fn inputs_of_unused_layers_are_not_read() {
    let mut network = LayerGraph::new("network", Shape::features(4)).unwrap();
    let other = network.add_input("other", Shape::features(3)).unwrap();
    network.add("unused", LayerKind::Relu, [other]).unwrap();
    let scores = network.add("fc", Linear::new(2), [network.input()]).unwrap();
    network.add("loss", LayerKind::CROSS_ENTROPY, [scores]).unwrap();
    let network = network.without_unused_layers().unwrap();
    let data = Dataset::synthetic_for(&network, 40, 0).unwrap();
    assert_eq!(data.train().sample_elements(), 7);
    let single = Placement::single(&network).unwrap();
    let found = losses(&network, &single, &LowerOptions::default(), &data, (8, 4, 0.1));
    assert!(found[3] < found[0], "{found:?}");
}
