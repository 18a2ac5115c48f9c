//! Whether a network can be trained on a data set.

use layer_graph::{Layer, LayerGraph, LayerKind};

use super::{DataError, Dataset};

pub(super) fn check(dataset: &Dataset, network: &LayerGraph) -> Result<(), DataError> {
    let expected = network.layer(network.input()).output_shape();
    if dataset.shape() != expected {
        return Err(DataError::InputShape {
            dataset: dataset.name().into(),
            found: dataset.shape().clone(),
            network: network.name().into(),
            expected: expected.clone(),
        });
    }
    if losses(network).next().is_none() {
        return Err(no_loss(network));
    }
    match losses(network).find(|&(_, classes)| classes != dataset.classes()) {
        Some((layer, classes)) => Err(DataError::Classes {
            dataset: dataset.name().into(),
            found: dataset.classes(),
            network: network.name().into(),
            layer: layer.name().into(),
            expected: classes,
        }),
        None => Ok(()),
    }
}

/// The network's loss layers, each with the number of classes that it tells apart.
pub(super) fn losses(network: &LayerGraph) -> impl Iterator<Item = (&Layer, usize)> {
    network.layers().filter_map(|(_, layer)| match (layer.kind(), layer.input_shapes()) {
        (LayerKind::SoftmaxCrossEntropy, [scores]) => Some((layer, scores.elements())),
        _ => None,
    })
}

pub(super) fn no_loss(network: &LayerGraph) -> DataError {
    DataError::NoLoss { network: network.name().into() }
}
