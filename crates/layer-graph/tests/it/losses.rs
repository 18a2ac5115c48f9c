//! Tests of networks with several losses and with outputs that no loss reads.

use layer_graph::{ElementwiseLoss, GraphError, LayerGraph, LayerId, LayerKind, Linear, Shape, zoo};
use proptest::prelude::*;

/// A network with a main loss of 3 classes for each of 2 positions, and an auxiliary loss of 2
/// numbers.
fn two_losses() -> (LayerGraph, [LayerId; 2]) {
    let mut network = LayerGraph::new("two losses", Shape::sequence(2, 4)).unwrap();
    let trunk = network.add("trunk", Linear::new(3), [network.input()]).unwrap();
    let main = network.add("loss", LayerKind::CROSS_ENTROPY, [trunk]).unwrap();
    let flat = network.add("flatten", LayerKind::Flatten, [trunk]).unwrap();
    let numbers = network.add("numbers", Linear::new(2), [flat]).unwrap();
    let squares = ElementwiseLoss::MeanSquaredError;
    let other = network.add("numbers_loss", squares, [numbers]).unwrap();
    (network, [main, other])
}

#[test]
fn labels_of_losses_follow_one_another() {
    let (network, [main, other]) = two_losses();
    assert_eq!(network.losses().collect::<Vec<_>>(), [main, other]);
    assert_eq!([main, other].map(|id| network.loss_labels(id)), [0..2, 2..4]);
    assert_eq!(network.label_count(), 4);
    assert!(network.loss_labels(network.input()).is_empty());
    assert!(network.unused_layers().is_empty());
}

#[test]
fn loss_weights_round_trip_through_json_and_are_omitted_if_1() {
    let (mut network, [_, other]) = two_losses();
    let plain = network.clone();
    assert!(!plain.to_json().contains("loss_weight"));
    network.set_loss_weight(other, 0.4).unwrap();
    assert_ne!(network, plain);
    assert!((network.layer(other).loss_weight() - 0.4).abs() < 1e-15);
    let text = network.to_json();
    assert_eq!(text.matches("loss_weight").count(), 1, "{text}");
    assert_eq!(LayerGraph::from_json(&text).unwrap(), network);
    network.set_loss_weight(other, 1.0).unwrap();
    assert_eq!(network, plain);
    for (weight, expected) in [("0", "weight 0 of a loss"), ("-2", "weight -2"), ("1e300", "weight 1000")] {
        let text = text.replace("\"loss_weight\": 0.4", &format!("\"loss_weight\": {weight}"));
        let error = LayerGraph::from_json(&text).unwrap_err().to_string();
        assert!(error.starts_with("layer `numbers_loss`: ") && error.contains(expected), "{error}");
    }
}

#[test]
fn only_losses_have_weights_which_are_positive_numbers() {
    let (mut network, [main, _]) = two_losses();
    let trunk = network.find("trunk").unwrap();
    let error = network.set_loss_weight(trunk, 2.0).unwrap_err();
    assert!(matches!(error, GraphError::Shape { .. }), "{error}");
    for weight in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-50] {
        network.set_loss_weight(main, weight).unwrap_err();
    }
    assert_eq!(network, two_losses().0);
}

#[test]
fn no_layer_of_the_zoo_is_unused() {
    for name in zoo::names() {
        let network = zoo::model(name).unwrap();
        assert_eq!(network.losses().count(), 1, "{name}");
        assert!(network.unused_layers().is_empty(), "{name}");
    }
}

#[test]
fn used_layers_keep_the_parameters_of_an_unused_owner() {
    let mut network = LayerGraph::new("tied", Shape::features(4)).unwrap();
    let owner = network.add("unused", Linear::new(4), [network.input()]).unwrap();
    let first = network.add_tied("first", Linear::new(4), [network.input()], owner).unwrap();
    let second = network.add_tied("second", Linear::new(4), [first], owner).unwrap();
    let loss = network.add("loss", LayerKind::CROSS_ENTROPY, [second]).unwrap();
    network.set_loss_weight(loss, 0.3).unwrap();
    let trained = network.without_unused_layers().unwrap();
    let [first, second, loss] = ["first", "second", "loss"].map(|name| trained.find(name).unwrap());
    assert_eq!(trained.len(), 4);
    assert_eq!([first, second].map(|id| trained.parameter_owner(id)), [first, first]);
    assert_eq!(trained.layer(loss), network.layer(network.find("loss").unwrap()));
}

fn reaches_loss(network: &LayerGraph, id: LayerId) -> bool {
    network.layer(id).kind().is_loss()
        || network.consumers(id).into_iter().any(|(consumer, _)| reaches_loss(network, consumer))
}

proptest! {
    /// The layers that remain are those from which a loss can be reached, found by walking forward
    /// from each, and their edges are the same.
    #[test]
    fn remaining_layers_are_those_that_reach_a_loss(
        choices in proptest::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 1..12),
    ) {
        let mut network = LayerGraph::new("random", Shape::features(3)).unwrap();
        let mut open = vec![network.input()];
        for (place, (producer, is_loss)) in choices.iter().enumerate() {
            let (name, input) = (format!("layer{place}"), *producer.get(&open));
            if *is_loss {
                network.add(name, LayerKind::CROSS_ENTROPY, [input]).unwrap();
            } else {
                open.push(network.add(name, LayerKind::Relu, [input]).unwrap());
            }
        }
        let has_loss = network.losses().next().is_some();
        let trained = network.without_unused_layers().unwrap();
        for (id, layer) in network.computing_layers() {
            let remains = trained.find(layer.name());
            prop_assert_eq!(remains.is_some(), !has_loss || reaches_loss(&network, id));
            let names = |network: &LayerGraph, id| -> Vec<String> {
                network.producers(id).iter().map(|&id| network.layer(id).name().to_owned()).collect()
            };
            if let Some(remains) = remains {
                prop_assert_eq!(names(&trained, remains), names(&network, id));
                prop_assert_eq!(trained.layer(remains), layer);
            }
        }
    }
}
