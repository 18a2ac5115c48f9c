//! Gradients in double precision.

use std::collections::BTreeMap;

use deeppool::layer_engine::initial_parameters;
use deeppool::layer_graph::{LayerGraph, zoo};
use deeppool::train::gradients;

const SAMPLES: usize = 3;

type Parameters = BTreeMap<String, (Vec<usize>, Vec<f64>)>;

fn parameters(network: &LayerGraph) -> Parameters {
    let mut all = Parameters::new();
    for (_, layer) in network.layers() {
        let values = initial_parameters(layer, 0);
        let mut rest = values.as_slice();
        for part in layer.parameters() {
            let (own, others) = rest.split_at(part.elements());
            rest = others;
            all.insert(layer.tensor_name(&part), (part.dims, own.to_vec()));
        }
    }
    all
}

fn features(network: &LayerGraph) -> Vec<f64> {
    let count = SAMPLES * network.layer(network.input()).output_shape().elements();
    (0..count).map(|i| (i as f64 * 0.7).sin()).collect()
}

#[test]
fn gradients_match_finite_differences_of_the_loss() {
    let network = zoo::model("digits-cnn").expect("in the zoo");
    let (mut parameters, features, labels) = (parameters(&network), features(&network), [3.0, 0.0, 9.0]);
    let found = gradients(&network, &parameters, &features, &labels).expect("a network of known kinds");
    assert!(found.of_parameters.keys().eq(parameters.keys()));
    for (name, (dims, gradient)) in &found.of_parameters {
        assert_eq!(*dims, parameters[name].0);
        let largest = (0..gradient.len())
            .max_by(|&a, &b| gradient[a].abs().total_cmp(&gradient[b].abs()))
            .expect("it has elements");
        let mut loss_at = |by: f64| {
            let values = &mut parameters.get_mut(name).expect("the same names").1;
            let before = values[largest];
            values[largest] += by;
            let loss = gradients(&network, &parameters, &features, &labels).expect("as before").loss;
            parameters.get_mut(name).expect("the same names").1[largest] = before;
            loss
        };
        let expected = (loss_at(1e-6) - loss_at(-1e-6)) / 2e-6;
        let got = gradient[largest];
        assert!((got - expected).abs() < 1e-8, "{name}[{largest}]: {got}, by differences {expected}");
        assert!(got.abs() > 1e-6, "{name} has no gradient");
    }
}

#[test]
fn inputs_of_other_sizes_are_rejected() {
    let network = zoo::model("digits-cnn").expect("in the zoo");
    let (all, features, labels) = (parameters(&network), features(&network), [3.0, 0.0, 9.0]);
    let error = |parameters: &Parameters, features: &[f64], labels: &[f64]| {
        gradients(&network, parameters, features, labels).expect_err("it does not fit").to_string()
    };
    assert!(error(&all, &features, &labels[1..]).contains("2 labels, 1 a sample"));
    assert!(error(&all, &features[1..], &labels).contains("whole samples"));
    assert!(error(&all, &[], &[]).contains("whole samples"));
    assert!(error(&all, &features, &[3.0, 10.0, 9.0]).contains("label 10"));
    let mut fewer = all.clone();
    fewer.remove("fc1.bias");
    assert!(error(&fewer, &features, &labels).contains("none called `fc1.bias`"));
    let mut turned = all;
    turned.get_mut("fc2.weight").expect("it has one").0.reverse();
    assert!(error(&turned, &features, &labels).contains("`fc2.weight` of [64, 10], which is [10, 64]"));
}
