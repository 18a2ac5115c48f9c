//! Choice of the view of every tensor of a network.
//!
//! Layers that map each unit of their inputs to the same unit of their output give both tensors the
//! same `outer` and `units`. Tensors are grouped into classes that are connected by such layers.
//! Convolutions, poolings, batch normalisations of images and attentions require a certain `outer`,
//! and a number of units that divides theirs.

use std::collections::HashMap;

use petgraph::unionfind::UnionFind;

use super::TensorView;
use crate::{Conv2d, ConvTranspose2d, Layer, LayerGraph, LayerKind, Scale};

/// Returns the view of the output of each layer, by the layer's index. A tensor whose readers and
/// writer require different views has one unit.
///
/// Complexity: O(layers + edges), up to the inverse Ackermann function.
pub(super) fn output_views(network: &LayerGraph) -> Vec<TensorView> {
    let mut classes = UnionFind::<usize>::new(network.len());
    for (id, _) in network.layers().filter(|(_, layer)| maps_units(layer)) {
        for producer in network.producers(id) {
            classes.union(producer.index(), id.index());
        }
    }
    let mut required: HashMap<usize, [usize; 2]> = HashMap::new();
    for (id, layer) in network.layers() {
        let inputs = network.producers(id).into_iter().enumerate();
        let inputs =
            inputs.filter_map(|(slot, producer)| Some((producer.index(), required_of_input(layer, slot)?)));
        let output = required_of_output(layer).map(|view| (id.index(), view));
        for (tensor, view) in inputs.chain(output) {
            let known = required.entry(classes.find_mut(tensor)).or_insert(view);
            // [1, 1] stands for conflicting requirements: no other view is compatible with it.
            *known =
                if known[0] == view[0] { [known[0], greatest_divisor(known[1], view[1])] } else { [1, 1] };
        }
    }
    let mut views = Vec::with_capacity(network.len());
    for (id, layer) in network.layers() {
        let (elements, innermost) = (layer.output.elements(), layer.output.innermost());
        // Without requirements, the features of the class's first tensor are the units.
        let by_features = [elements / innermost, innermost];
        let [outer, units] = *required.entry(classes.find(id.index())).or_insert(by_features);
        let divided = outer * units;
        let positions = match layer.output.dims() {
            [positions, _] if outer % positions == 0 => *positions,
            _ => 1,
        };
        views.push(if elements % divided == 0 {
            TensorView { positions, outer, units, inner: elements / divided }
        } else {
            TensorView::undivided(elements)
        });
    }
    views
}

/// Returns whether each unit of a layer's output depends on the same unit of each input, and on no
/// other, for inputs and output of the same `outer` and `units`.
fn maps_units(layer: &Layer) -> bool {
    match &layer.kind {
        LayerKind::Conv2d(Conv2d { groups, .. })
        | LayerKind::ConvTranspose2d(ConvTranspose2d { groups, .. }) => *groups > 1,
        LayerKind::BatchNorm(_)
        | LayerKind::GroupNorm(_)
        | LayerKind::PositionEmbedding(_)
        | LayerKind::RotaryEmbedding(_)
        | LayerKind::MaxPool2d(_)
        | LayerKind::AvgPool2d(_)
        | LayerKind::AdaptiveAvgPool2d(_)
        | LayerKind::Pad(_)
        | LayerKind::Flatten
        | LayerKind::Add
        | LayerKind::Multiply
        | LayerKind::Scale(_)
        | LayerKind::Dropout(_) => true,
        kind => kind.is_activation(),
    }
}

/// Returns `[outer, units]` that a layer requires of the input with this index. A number of units
/// that divides the required one meets the requirement, too.
fn required_of_input(layer: &Layer, slot: usize) -> Option<[usize; 2]> {
    let channels = || Some([1, layer.inputs[0].dims()[0]]);
    match &layer.kind {
        &LayerKind::Conv2d(Conv2d { groups, .. })
        | &LayerKind::ConvTranspose2d(ConvTranspose2d { groups, .. })
            if groups > 1 =>
        {
            Some([1, groups])
        }
        LayerKind::GroupNorm(norm) => Some([1, norm.groups]),
        LayerKind::Conv2d(_)
        | LayerKind::ConvTranspose2d(_)
        | LayerKind::MaxPool2d(_)
        | LayerKind::AvgPool2d(_)
        | LayerKind::AdaptiveAvgPool2d(_)
        | LayerKind::Pad(_)
        | LayerKind::Scale(Scale::Channels) => channels(),
        // The parameters of a batch normalisation of vectors can be divided as any vector.
        LayerKind::BatchNorm(_) if layer.inputs[0].dims().len() > 1 => channels(),
        LayerKind::Multiply if layer.inputs[0] != layer.inputs[1] => channels(),
        LayerKind::RotaryEmbedding(rule) => {
            let input = &layer.inputs[0];
            Some([input.elements() / input.innermost(), input.innermost() / rule.width])
        }
        LayerKind::MultiHeadAttention(attention) => {
            let sizes = attention.sizes(&layer.inputs)?;
            let rows = match (attention.is_fused(layer.inputs.len()), slot) {
                _ if attention.padding && slot + 1 == layer.inputs.len() => return None,
                (true, _) => 3 * sizes.positions,
                (_, 0) => sizes.positions,
                _ => sizes.key_positions,
            };
            Some([rows, sizes.key_heads])
        }
        _ => None,
    }
}

/// Returns `[outer, units]` that a layer requires of its output, as [`required_of_input`] does.
fn required_of_output(layer: &Layer) -> Option<[usize; 2]> {
    match &layer.kind {
        &LayerKind::Conv2d(Conv2d { groups, out_channels, .. })
        | &LayerKind::ConvTranspose2d(ConvTranspose2d { groups, out_channels, .. }) => {
            Some([1, if groups > 1 { groups } else { out_channels }])
        }
        LayerKind::MultiHeadAttention(attention) => {
            let sizes = attention.sizes(&layer.inputs)?;
            Some([sizes.positions, sizes.key_heads])
        }
        _ => None,
    }
}

/// Returns the greatest common divisor (Euclid).
fn greatest_divisor(mut a: usize, mut b: usize) -> usize {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}
