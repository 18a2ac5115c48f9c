//! The passes of layers in training. The loss layer overwrites its input if nothing else needs it:
//! the memory of the scores then also holds the probabilities, and the gradient of the scores.

use layer_engine::{Pass, Role, Signature};
use layer_graph::{LayerGraph, LayerId};

/// Returns the forward passes of a layer in training, in the order in which they run.
pub(crate) fn forward_passes(network: &LayerGraph, id: LayerId) -> &'static [Pass] {
    if overwrites_input(network, id) { &[Pass::ForwardInPlace] } else { Pass::forward(network.layer(id)) }
}

/// Returns the backward passes of a layer, in the order in which they run. `input_gradient` is
/// whether the gradient of its inputs is needed.
pub(crate) fn backward_passes(network: &LayerGraph, id: LayerId, input_gradient: bool) -> &'static [Pass] {
    if input_gradient && overwrites_input(network, id) {
        return &[Pass::BackwardInPlace];
    }
    Pass::backward(network.layer(id), input_gradient)
}

/// Returns whether a layer overwrites its input: it has the passes for it, no other layer reads the
/// input, and the layer that computes the input does not read it in its backward pass. Samples,
/// which are not computed, are not overwritten.
fn overwrites_input(network: &LayerGraph, id: LayerId) -> bool {
    if Signature::of(network.layer(id), Pass::ForwardInPlace).is_none() {
        return false;
    }
    let [producer] = network.producers(id)[..] else { return false };
    let layer = network.layer(producer);
    let passes = [true, false].map(|input_gradient| Pass::backward(layer, input_gradient)).concat();
    let mut signatures = passes.into_iter().filter_map(|pass| Signature::of(layer, pass));
    !network.is_input(producer)
        && network.consumers(producer).len() == 1
        && !signatures.any(|signature| signature.reads.contains(&Role::Output))
}

#[cfg(test)]
mod tests {
    use super::*;
    use layer_graph::{LayerKind, Linear, Shape, zoo};

    fn loss_of(network: &LayerGraph) -> LayerId {
        network.layers().map(|(id, _)| id).next_back().unwrap()
    }

    #[test]
    fn losses_of_the_zoo_overwrite_their_scores() {
        for model in ["gpt2", "resnet-50", "digits-cnn"] {
            let network = zoo::model(model).unwrap();
            let loss = loss_of(&network);
            assert_eq!(forward_passes(&network, loss), [Pass::ForwardInPlace], "{model}");
            assert_eq!(backward_passes(&network, loss, true), [Pass::BackwardInPlace], "{model}");
            assert!(backward_passes(&network, loss, false).is_empty(), "{model}");
        }
    }

    /// Scores that are samples, that the rectifier's backward pass reads, or that another layer
    /// reads, are not overwritten.
    #[test]
    fn needed_scores_are_not_overwritten() {
        let new = || LayerGraph::new("test", Shape::features(3)).unwrap();
        let loss = |mut network: LayerGraph, scores| {
            let id = network.add("loss", LayerKind::CROSS_ENTROPY, [scores]).unwrap();
            forward_passes(&network, id)
        };
        let network = new();
        let input = network.input();
        assert_eq!(loss(network, input), [Pass::Forward]);
        let mut network = new();
        let fc = network.add("fc", Linear::new(4), [input]).unwrap();
        assert_eq!(loss(network.clone(), fc), [Pass::ForwardInPlace]);
        let mut with_relu = network.clone();
        let relu = with_relu.add("relu", LayerKind::Relu, [fc]).unwrap();
        assert_eq!(loss(with_relu, relu), [Pass::Forward]);
        network.add("other", LayerKind::Relu, [fc]).unwrap();
        assert_eq!(loss(network, fc), [Pass::Forward]);
    }
}
