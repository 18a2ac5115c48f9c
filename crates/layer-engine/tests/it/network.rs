//! Gradients of a whole network, compared with differences of the loss.

use std::collections::HashMap;

use layer_engine::{CpuEngine, Pass, Role, Shard, initial_parameters};
use layer_graph::{LayerGraph, LayerId, zoo};

use crate::single_layer::{SingleLayer, numbers};

const SAMPLES: usize = 4;

struct Network {
    graph: LayerGraph,
    layers: HashMap<LayerId, SingleLayer<f64>>,
    input: Vec<f64>,
}

impl Network {
    fn new(model: &str) -> Self {
        let graph = zoo::model(model).unwrap();
        let layers = graph.computing_layers().map(|(id, layer)| {
            let shard = Shard::whole(SAMPLES);
            let mut single = SingleLayer::new(layer.clone(), shard, CpuEngine::new());
            if layer.parameter_count() > 0 {
                single.set(Role::Parameters, initial_parameters(layer, 0));
            }
            (id, single)
        });
        let layers = layers.collect();
        let input = numbers("image", SAMPLES * graph.layer(graph.input()).output_shape().elements());
        Self { graph, layers, input }
    }

    fn ids(&self) -> Vec<LayerId> {
        self.graph.layers().map(|(id, _)| id).skip(1).collect()
    }

    /// Runs the forward passes and returns the mean loss.
    fn forward(&mut self) -> f64 {
        let mut loss = 0.0;
        for id in self.ids() {
            for (slot, producer) in self.graph.producers(id).into_iter().enumerate() {
                let value = match self.layers.get(&producer) {
                    Some(layer) => layer.buffers[&Role::Output].clone(),
                    None => self.input.clone(),
                };
                self.layers.get_mut(&id).unwrap().set(Role::Input(slot), value);
            }
            let layer = self.layers.get_mut(&id).unwrap();
            layer.forward();
            loss = layer.buffers[&Role::Output].iter().sum::<f64>() / SAMPLES as f64;
        }
        loss
    }

    fn backward(&mut self) {
        for id in self.ids().into_iter().rev() {
            let consumers = self.graph.consumers(id);
            let elements = self.layers[&id].buffers[&Role::Output].len();
            let gradient = if consumers.is_empty() {
                vec![1.0 / SAMPLES as f64; elements]
            } else {
                let branches = consumers
                    .iter()
                    .map(|(consumer, slot)| &self.layers[consumer].buffers[&Role::InputGradient(*slot)]);
                let mut sum = vec![0.0; elements];
                for branch in branches {
                    sum.iter_mut().zip(branch).for_each(|(sum, term)| *sum += term);
                }
                sum
            };
            let wants_input = self.graph.producers(id) != [self.graph.input()];
            let layer = self.layers.get_mut(&id).unwrap();
            layer.set(Role::OutputGradient, gradient);
            for &pass in Pass::backward(&layer.layer, wants_input) {
                layer.run(pass).unwrap();
            }
        }
    }
}

#[test]
fn gradients_of_digits_cnn_match_differences_of_its_loss() {
    let mut network = Network::new("digits-cnn");
    network.forward();
    network.backward();
    let mut checked = 0;
    for id in network.ids() {
        let count = network.graph.layer(id).parameter_count();
        if count == 0 {
            continue;
        }
        let gradient = network.layers[&id].buffers[&Role::ParameterGradient].clone();
        let largest = (0..count).max_by(|&a, &b| gradient[a].abs().total_cmp(&gradient[b].abs())).unwrap();
        for index in [0, count / 3, largest, count - 1] {
            let mut shifted = |step| {
                let parameters =
                    network.layers.get_mut(&id).unwrap().buffers.get_mut(&Role::Parameters).unwrap();
                let before = parameters[index];
                parameters[index] += step;
                let loss = network.forward();
                network.layers.get_mut(&id).unwrap().buffers.get_mut(&Role::Parameters).unwrap()[index] =
                    before;
                loss
            };
            let step = 1e-6;
            let expected = (shifted(step) - shifted(-step)) / (2.0 * step);
            let name = network.graph.layer(id).name();
            let got = gradient[index];
            assert!((got - expected).abs() < 1e-8, "{name}[{index}]: {got}, by differences {expected}");
            checked += 1;
        }
    }
    assert_eq!(checked, 4 * 6, "all six layers with parameters");
}
