//! Checks that a network can be trained on a data set.

use layer_graph::{Layer, LayerGraph, LayerId, LayerKind};

use super::label_rule::losses;
use super::{DataError, Dataset};

impl Dataset {
    /// Checks that a network can be trained on this data set: its [samples' shape] is that of the
    /// data, the data have [labels](Self::labels) for each of its losses in order, with the same
    /// number of classes, or none, and of labels per sample, and all features are numbers of tokens
    /// if an embedding reads them.
    ///
    /// # Errors
    /// [`DataError::InputShape`], [`DataError::LossCount`], [`DataError::Classes`],
    /// [`DataError::IgnoredLabel`], [`DataError::LabelCount`], [`DataError::Token`] or
    /// [`DataError::NoLoss`].
    ///
    /// [samples' shape]: LayerGraph::sample_shape
    pub fn fits(&self, network: &LayerGraph) -> Result<(), DataError> {
        let expected = network.sample_shape();
        if *self.shape() != expected {
            return Err(DataError::InputShape {
                dataset: self.name().into(),
                found: self.shape().clone(),
                network: network.name().into(),
                expected,
            });
        }
        let losses = losses(network);
        if losses.is_empty() {
            return Err(no_loss(network));
        }
        if losses.len() != self.labels().len() {
            return Err(DataError::LossCount {
                dataset: self.name().into(),
                found: self.labels().len(),
                network: network.name().into(),
                expected: losses.iter().map(|(layer, _)| layer.name().to_owned()).collect(),
            });
        }
        for ((layer, expected), found) in losses.iter().zip(self.labels()) {
            let (dataset_name, network, layer_name) =
                (self.name().into(), network.name().into(), layer.name().into());
            if found.classes != expected.classes {
                return Err(DataError::Classes {
                    dataset: dataset_name,
                    found: found.classes,
                    network,
                    layer: layer_name,
                    expected: expected.classes,
                });
            }
            if found.ignored.is_some() && found.ignored != expected.ignored {
                return Err(DataError::IgnoredLabel {
                    dataset: dataset_name,
                    found: found.ignored,
                    network,
                    layer: layer_name,
                    expected: expected.ignored,
                });
            }
            if found.count != expected.count {
                return Err(DataError::LabelCount {
                    dataset: dataset_name,
                    found: found.count,
                    network,
                    layer: layer_name,
                    expected: expected.count,
                });
            }
        }
        check_tokens(self, network)
    }
}

/// Checks that every feature of an input is a token, if an embedding reads the input.
fn check_tokens(dataset: &Dataset, network: &LayerGraph) -> Result<(), DataError> {
    network.inputs().try_for_each(|input| check_tokens_of(dataset, network, input))
}

fn check_tokens_of(dataset: &Dataset, network: &LayerGraph, input: LayerId) -> Result<(), DataError> {
    let Some((layer, vocabulary)) = vocabulary(network, input) else { return Ok(()) };
    let elements = network.input_elements(input);
    let is_token = |feature: f32| feature.fract() == 0.0 && (0.0..vocabulary as f32).contains(&feature);
    let parts = [("training", dataset.train()), ("test", dataset.test())];
    let all = parts.iter().flat_map(|&(part, samples)| {
        let elements = elements.clone();
        (0..samples.len()).flat_map(move |index| {
            let of_input = samples.features(index).get(elements.clone()).unwrap_or_default();
            of_input.iter().map(move |&feature| (part, index, feature))
        })
    });
    match { all }.find(|&(.., feature)| !is_token(feature)) {
        Some((part, index, feature)) => Err(DataError::Token {
            dataset: dataset.name().into(),
            part,
            index,
            feature,
            network: network.name().into(),
            layer: layer.name().into(),
            vocabulary,
        }),
        None => Ok(()),
    }
}

/// Returns the embedding with the smallest number of tokens that reads an input of the network,
/// with this number; `None` if there is none.
pub(super) fn vocabulary(network: &LayerGraph, input: LayerId) -> Option<(&Layer, usize)> {
    let readers = network.consumers(input).into_iter().map(|(reader, _)| network.layer(reader));
    let embeddings = readers.filter_map(|layer| match layer.kind() {
        LayerKind::Embedding(embedding) => Some((layer, embedding.vocabulary)),
        _ => None,
    });
    embeddings.min_by_key(|&(_, vocabulary)| vocabulary)
}

/// Returns the error for a network without a loss layer.
pub(super) fn no_loss(network: &LayerGraph) -> DataError {
    DataError::NoLoss { network: network.name().into() }
}
