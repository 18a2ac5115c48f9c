//! The splits that are possible in a network.

use super::analysis::output_views;
use super::part;
use super::{Division, LayerPart, Split, SplitValues, TensorView, Values};
use crate::{Conv2d, ConvTranspose2d, GraphError, Layer, LayerGraph, LayerId, LayerKind, Scale};

/// Splits of the layers of a network, with the view in which each tensor is divided.
///
/// A tensor has one view. Its units are features by default; channels for images; heads for the
/// inputs and output of an attention, or groups of heads that share a key head. Element-wise
/// layers, poolings and flattening keep the units of their input. The positions are those of a
/// sequence.
///
/// ```
/// use layer_graph::{Division, LayerGraph, LayerKind, Linear, Shape};
/// use layer_graph::{NetworkSplits, Split, TensorView};
///
/// let mut network = LayerGraph::new("perceptron", Shape::features(5))?;
/// let hidden = network.add("fc1", Linear::new(8), [network.input()])?;
/// let relu = network.add("relu", LayerKind::Relu, [hidden])?;
/// let scores = network.add("fc2", Linear::new(3), [relu])?;
///
/// let splits = NetworkSplits::new(&network);
/// assert_eq!(splits.splits(scores), [Split::Copies, Split::Features, Split::Inputs]);
/// assert_eq!(splits.view(relu), TensorView { positions: 1, outer: 1, units: 8, inner: 1 });
/// let part = splits.part(scores, Division { split: Split::Inputs, parts: 3 }, 1)?;
/// assert_eq!(part.units, 3..6);
/// assert_eq!(part.layer.input_shapes(), [Shape::features(3)]);
/// assert_eq!(part.parameters[0].elements(), 3 * 3);
/// # Ok::<(), layer_graph::GraphError>(())
/// ```
#[derive(Debug, Clone)]
pub struct NetworkSplits<'n> {
    network: &'n LayerGraph,
    /// View of the output of each layer, by its index.
    views: Vec<TensorView>,
}

impl<'n> NetworkSplits<'n> {
    /// Analyses a network.
    ///
    /// Complexity: O(layers + edges), up to the inverse Ackermann function.
    #[must_use]
    pub fn new(network: &'n LayerGraph) -> Self {
        Self { network, views: output_views(network) }
    }

    /// Returns the splits with at least two parts that are possible for a layer. Empty for the
    /// network's inputs. A loss can be split by positions only.
    ///
    /// # Panics
    /// If the layer is not in the network, as all functions with a layer's id.
    #[must_use]
    pub fn splits(&self, id: LayerId) -> Vec<Split> {
        Split::ALL.into_iter().filter(|&split| self.max_parts(id, split) > 1).collect()
    }

    /// Returns the maximum number of parts of a layer: 1 if the split is not possible, and
    /// `usize::MAX` for [`Split::Copies`].
    #[must_use]
    pub fn max_parts(&self, id: LayerId, split: Split) -> usize {
        let layer = self.network.layer(id);
        if matches!(layer.kind, LayerKind::Input) || (layer.kind.is_loss() && split != Split::Positions) {
            return 1;
        }
        match split {
            Split::Positions => self.positions(id, layer).unwrap_or(1),
            Split::Copies => usize::MAX,
            Split::Features if self.is_divisible_by_features(id, layer) => self.view(id).units,
            Split::Inputs if self.is_divisible_by_inputs(id, layer) => self.input_view(id).units,
            Split::Features | Split::Inputs => 1,
        }
    }

    /// Returns the values of the tensors of a layer that is split, with at least two parts.
    #[must_use]
    pub fn values(&self, id: LayerId, split: Split) -> SplitValues {
        use Values::{Addends, Copies, Positions, Ranges};
        match (split, &self.network.layer(id).kind) {
            (Split::Copies, _) => SplitValues::WHOLE,
            (Split::Inputs, _) => SplitValues::new([Ranges, Ranges, Addends], Ranges),
            (
                Split::Features,
                LayerKind::Conv2d(Conv2d { groups: 1, .. })
                | LayerKind::ConvTranspose2d(ConvTranspose2d { groups: 1, .. })
                | LayerKind::Linear(_)
                | LayerKind::Embedding(_),
            ) => SplitValues::new([Copies, Addends, Ranges], Ranges),
            (Split::Features, _) => SplitValues::new([Ranges; 3], Ranges),
            // The parts of the loss of a sample are summed.
            (Split::Positions, kind) if kind.is_loss() => {
                SplitValues::new([Positions, Positions, Addends], Addends)
            }
            (Split::Positions, LayerKind::PositionEmbedding(embedding)) if !embedding.repeated => {
                SplitValues::new([Positions; 3], Ranges)
            }
            (Split::Positions, _) => SplitValues::new([Positions; 3], Addends),
        }
    }

    /// Returns whether the parts of a layer that is split would read ranges of an input of the
    /// network, which is whole on each rank.
    #[must_use]
    pub fn divides_input(&self, id: LayerId, split: Split) -> bool {
        self.values(id, split).input == Values::Ranges
            && self.network.producers(id).into_iter().any(|producer| self.network.is_input(producer))
    }

    /// Returns the view of one sample of a layer's output, and of its gradient.
    #[must_use]
    pub fn view(&self, id: LayerId) -> TensorView {
        self.views[id.index()]
    }

    /// Returns a part of a layer: a layer of another shape with the same name. `index` is the index
    /// of the part, from 0.
    ///
    /// With one part, it is the layer itself.
    ///
    /// # Errors
    /// [`GraphError::Split`] if the layer cannot be divided in this way, or there is no part of
    /// this index.
    pub fn part(&self, id: LayerId, division: Division, index: usize) -> Result<LayerPart, GraphError> {
        let layer = self.network.layer(id);
        let Division { split, parts } = division;
        let max = self.max_parts(id, split);
        let fail = |problem| Err(GraphError::Split { layer: layer.name.clone(), problem });
        if parts == 0 {
            return fail("be split into 0 parts".into());
        }
        if parts > max {
            let label = split.label();
            return fail(format!("be split by {label} into {parts} parts, but into at most {max}"));
        }
        if index >= parts {
            return fail(format!("be split into {parts} parts with a part {index}: parts count from 0"));
        }
        match split {
            Split::Features if parts > 1 => {
                let cuts_inputs = self.values(id, split).input == Values::Ranges;
                let inputs = self.network.producers(id).into_iter().map(|producer| self.view(producer));
                let inputs: Vec<TensorView> = if cuts_inputs { inputs.collect() } else { Vec::new() };
                part::by_features(layer, &inputs, self.view(id), (division, index))
            }
            Split::Positions if parts > 1 => part::by_positions(layer, max, (division, index)),
            Split::Inputs if parts > 1 => part::by_inputs(layer, self.input_view(id), (division, index)),
            _ => Ok(part::whole(layer, self.view(id), (division, index))),
        }
    }

    /// Returns whether the parts of two layers with the same parameters, divided in these ways,
    /// hold the same of them, and gradients that are reduced in the same way: only then can both
    /// layers be split. False if one of the divisions is not possible.
    #[must_use]
    pub fn hold_same_parameters(&self, of: [(LayerId, Division); 2]) -> bool {
        let held = |(id, division): (LayerId, Division)| {
            // With one part, all splits are the same.
            let split = if division.is_whole() { Split::Copies } else { division.split };
            let part = self.part(id, division, 0).ok()?;
            Some((division.parts, part.parameters, self.values(id, split).parameter_gradient))
        };
        let [first, second] = of.map(held);
        first.is_some() && first == second
    }

    /// Returns the number of positions of a layer that computes each position of its output, or of
    /// the loss, from the same position of its inputs. `None` for other layers.
    fn positions(&self, id: LayerId, layer: &Layer) -> Option<usize> {
        let of_inputs = || {
            let mut inputs = self.network.producers(id).into_iter().map(|input| self.view(input).positions);
            let first = inputs.next()?;
            inputs.all(|other| other == first).then_some(first)
        };
        let of_output = self.view(id).positions;
        match &layer.kind {
            // Tokens are loaded.
            LayerKind::Embedding(_) => {
                let mut tokens = self.network.producers(id).into_iter();
                tokens.all(|id| self.network.is_input(id)).then_some(of_output)
            }
            LayerKind::PositionEmbedding(embedding) => {
                // The parts have the vectors of their positions, or the one of all.
                let is_divided = |count| embedding.repeated || count == embedding.positions;
                of_inputs().filter(|&count| count == of_output && is_divided(count))
            }
            // The limit of an expert is one of a sample.
            LayerKind::MixtureOfExperts(rule) if rule.capacity.is_some() => None,
            LayerKind::Linear(_)
            | LayerKind::MixtureOfExperts(_)
            | LayerKind::LayerNorm(_)
            | LayerKind::RmsNorm(_)
            | LayerKind::Add
            | LayerKind::Multiply
            | LayerKind::RotaryEmbedding(_)
            | LayerKind::Scale(Scale::Constant(_) | Scale::Features)
            | LayerKind::Dropout(_) => of_inputs().filter(|&count| count == of_output),
            LayerKind::SoftmaxCrossEntropy(_) => of_inputs(),
            kind => of_inputs().filter(|&count| kind.is_activation() && count == of_output),
        }
    }

    /// Returns the view of a layer's first input.
    fn input_view(&self, id: LayerId) -> TensorView {
        self.network.producers(id).first().map_or(TensorView::undivided(1), |&input| self.view(input))
    }

    /// Returns whether the units of a layer's output are units of the layer's features, channels or
    /// heads.
    fn is_divisible_by_features(&self, id: LayerId, layer: &Layer) -> bool {
        let (input, output) = (self.input_view(id), self.view(id));
        let dim = output.divided_dim(layer.output.dims());
        let innermost = Some(layer.output.dims().len() - 1);
        match &layer.kind {
            LayerKind::Linear(_)
            | LayerKind::Embedding(_)
            | LayerKind::PositionEmbedding(_)
            | LayerKind::Scale(Scale::Features) => dim == innermost,
            LayerKind::Conv2d(_)
            | LayerKind::ConvTranspose2d(_)
            | LayerKind::MaxPool2d(_)
            | LayerKind::AvgPool2d(_)
            | LayerKind::AdaptiveAvgPool2d(_)
            | LayerKind::Pad(_)
            | LayerKind::BatchNorm(_)
            | LayerKind::GroupNorm(_)
            | LayerKind::Scale(Scale::Channels) => dim == Some(0),
            // A part would have all of the padding, and only its own queries, keys and values.
            LayerKind::MultiHeadAttention(attention) if attention.padding => false,
            LayerKind::MultiHeadAttention(_) => {
                let mut inputs = self.network.producers(id).into_iter().map(|input| self.view(input));
                dim == innermost && inputs.all(|input| input.units == output.units)
            }
            kind => {
                let keeps_units = matches!(
                    kind,
                    LayerKind::Flatten
                        | LayerKind::Add
                        | LayerKind::Multiply
                        | LayerKind::RotaryEmbedding(_)
                        | LayerKind::Scale(_)
                        | LayerKind::Dropout(_)
                );
                (keeps_units || kind.is_activation())
                    && dim.is_some()
                    && input.divided_dim(layer.inputs[0].dims()).is_some()
            }
        }
    }

    /// Returns whether the units of a layer's input are units of its input features or channels.
    fn is_divisible_by_inputs(&self, id: LayerId, layer: &Layer) -> bool {
        let dim = || self.input_view(id).divided_dim(layer.inputs[0].dims());
        match &layer.kind {
            LayerKind::Linear(_) => dim() == Some(layer.inputs[0].dims().len() - 1),
            LayerKind::Conv2d(Conv2d { groups, .. })
            | LayerKind::ConvTranspose2d(ConvTranspose2d { groups, .. }) => *groups == 1 && dim() == Some(0),
            _ => false,
        }
    }
}
