//! The parts of a split layer.

use std::ops::Range;

use super::view::even_range;
use super::{Division, TensorView};
use crate::infer::output_shape;
use crate::{Conv2d, ConvTranspose2d, GraphError, Layer, LayerKind, LayerTensor, Scale, Shape, TensorBox};

/// A part of a split layer.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerPart {
    /// The part as a layer. It has the name of the whole layer.
    pub layer: Layer,
    /// Division of the whole layer.
    pub division: Division,
    /// Index of the part, from 0.
    pub index: usize,
    /// Units of the part: of the output's view for [`Split::Features`](super::Split::Features), of
    /// the input's view for [`Split::Inputs`](super::Split::Inputs), positions for
    /// [`Split::Positions`](super::Split::Positions), and all units of the output for a whole
    /// layer.
    pub units: Range<usize>,
    /// Box of each of the part's parameters in the whole layer's parameter, in the order of
    /// [`Layer::parameters`] of the part. The part's parameters are the first ones of the whole
    /// layer: all, or all but the bias.
    pub parameters: Vec<TensorBox>,
    /// Box of each of the part's statistics in the whole layer's, in the order of
    /// [`Layer::statistics`].
    pub statistics: Vec<TensorBox>,
}

/// Returns a part that is the whole layer. `view` is that of its output.
pub(super) fn whole(layer: &Layer, view: TensorView, (division, index): (Division, usize)) -> LayerPart {
    let boxes = |tensors: Vec<LayerTensor>| tensors.into_iter().map(|tensor| TensorBox::whole(tensor.dims));
    LayerPart {
        layer: layer.clone(),
        division,
        index,
        units: 0..view.units,
        parameters: boxes(layer.parameters()).collect(),
        statistics: boxes(layer.statistics()).collect(),
    }
}

/// Returns a part of a layer that is divided by the units of its output. `inputs` are the views of
/// the inputs of which the part reads these units; empty if it reads whole inputs. `view` is the
/// view of the output.
pub(super) fn by_features(
    layer: &Layer,
    inputs: &[TensorView],
    view: TensorView,
    (division, index): (Division, usize),
) -> Result<LayerPart, GraphError> {
    let units = view.part(division.parts, index);
    let share = |count: usize| count / view.units * units.len();
    let mut kind = layer.kind.clone();
    // Number of outer rows of the view of the parameters and statistics.
    let mut outer = view.outer;
    let positions = layer.output.elements() / layer.output.innermost();
    match &mut kind {
        LayerKind::Linear(linear) => {
            linear.out_features = share(linear.out_features);
            outer /= positions;
        }
        LayerKind::Scale(Scale::Features) => outer /= positions,
        LayerKind::Embedding(embedding) => {
            embedding.features = share(embedding.features);
            outer = outer / positions * embedding.vocabulary;
        }
        LayerKind::PositionEmbedding(embedding) => outer = outer / positions * embedding.positions,
        LayerKind::Conv2d(conv) => {
            conv.out_channels = share(conv.out_channels);
            conv.groups = if conv.groups > 1 { share(conv.groups) } else { 1 };
        }
        LayerKind::ConvTranspose2d(conv) => {
            conv.out_channels = share(conv.out_channels);
            conv.groups = if conv.groups > 1 { share(conv.groups) } else { 1 };
        }
        LayerKind::GroupNorm(norm) => norm.groups = share(norm.groups),
        LayerKind::MultiHeadAttention(attention) => {
            if let Some(biases) = &mut attention.alibi {
                biases.first += attention.heads / view.units * units.start;
            }
            attention.heads = share(attention.heads);
            outer = attention.relative.map_or(outer, |relative| relative.buckets);
        }
        _ => {}
    }
    let cut = |(shape, &view): (&Shape, &TensorView)| cut(layer, shape, view, units.len());
    let inputs = match inputs {
        [] => layer.inputs.clone(),
        views => layer.inputs.iter().zip(views).map(cut).collect::<Result<Vec<_>, _>>()?,
    };
    let boxes = |tensors: Vec<LayerTensor>| -> Vec<TensorBox> {
        let outer_of = |tensor: &LayerTensor| outer * input_rows(&layer.kind, tensor);
        tensors.iter().map(|tensor| box_of(tensor, outer_of(tensor), view.units, &units)).collect()
    };
    let mut part = with_inputs(layer, kind, inputs)?;
    if let (LayerKind::MultiHeadAttention(attention), true) = (&layer.kind, layer.kind.draws_by_element()) {
        part.random_box = attention.sizes(&layer.inputs).map(|sizes| {
            let mut weights = TensorBox::whole(sizes.weights());
            let of_unit = sizes.heads / view.units;
            weights.ranges[0] = units.start * of_unit..units.end * of_unit;
            weights
        });
    } else if layer.kind.draws_by_element() {
        part.random_box = Some(view.range(units.clone()));
    }
    Ok(LayerPart {
        layer: part,
        division,
        index,
        parameters: boxes(layer.parameters()),
        statistics: boxes(layer.statistics()),
        units,
    })
}

/// Returns a part of a layer that is divided by the units of its input, which has the given view.
pub(super) fn by_inputs(
    layer: &Layer,
    view: TensorView,
    (division, index): (Division, usize),
) -> Result<LayerPart, GraphError> {
    let units = view.part(division.parts, index);
    let mut kind = layer.kind.clone();
    let positions = match &mut kind {
        LayerKind::Linear(linear) => {
            linear.bias &= units.start == 0;
            layer.inputs[0].elements() / layer.inputs[0].innermost()
        }
        LayerKind::Conv2d(Conv2d { bias, .. }) | LayerKind::ConvTranspose2d(ConvTranspose2d { bias, .. }) => {
            *bias &= units.start == 0;
            1
        }
        _ => 1,
    };
    let part = with_inputs(layer, kind, vec![cut(layer, &layer.inputs[0], view, units.len())?])?;
    let mut parameters = Vec::new();
    for tensor in layer.parameters().iter().take(part.parameters().len()) {
        // The rows of a weight are output features, but those of a transposed convolution are input
        // channels. A bias has one dimension.
        parameters.push(match tensor.dims[..] {
            [_, _, ..] if matches!(layer.kind, LayerKind::ConvTranspose2d(_)) => {
                box_of(tensor, view.outer, view.units, &units)
            }
            [rows, _, ..] => box_of(tensor, rows * (view.outer / positions), view.units, &units),
            _ => TensorBox::whole(tensor.dims.clone()),
        });
    }
    Ok(LayerPart { layer: part, division, index, units, parameters, statistics: Vec::new() })
}

/// Returns a part of a layer of `positions` positions that is divided by them.
pub(super) fn by_positions(
    layer: &Layer,
    positions: usize,
    (division, index): (Division, usize),
) -> Result<LayerPart, GraphError> {
    let units = even_range(positions, division.parts, index);
    let cut = |shape: &Shape| {
        let rest = shape.dims().iter().skip(1).copied();
        Shape::new(std::iter::once(units.len()).chain(rest).collect::<Vec<_>>())
    };
    let mut kind = layer.kind.clone();
    match &mut kind {
        LayerKind::PositionEmbedding(embedding) if !embedding.repeated => embedding.positions = units.len(),
        LayerKind::RotaryEmbedding(rule) => rule.first += units.start,
        _ => {}
    }
    let mut part = with_inputs(layer, kind, layer.inputs.iter().map(cut).collect())?;
    match &part.kind {
        kind if kind.draws_by_element() => {
            let view = TensorView { positions, ..TensorView::undivided(layer.output.elements()) };
            part.random_box = Some(view.position_range(units.clone()));
        }
        LayerKind::SoftmaxCrossEntropy(_) => part.mean_positions = Some(positions),
        _ => {}
    }
    let of_part = |tensor: LayerTensor| {
        let mut region = TensorBox::whole(tensor.dims);
        match (&layer.kind, &mut region.ranges[..]) {
            (LayerKind::PositionEmbedding(embedding), [_, positions, _]) if !embedding.repeated => {
                *positions = units.clone();
            }
            _ => {}
        }
        region
    };
    let parameters = layer.parameters().into_iter().map(of_part).collect();
    Ok(LayerPart { layer: part, division, index, units, parameters, statistics: Vec::new() })
}

/// Returns the shape of a tensor of which a part has a number of units. `layer` is the layer that
/// reads it.
fn cut(layer: &Layer, shape: &Shape, view: TensorView, units: usize) -> Result<Shape, GraphError> {
    let problem = || GraphError::Split {
        layer: layer.name.clone(),
        problem: format!("divide an input of shape {shape} into {} units", view.units),
    };
    let dim = view.divided_dim(shape.dims()).ok_or_else(problem)?;
    let mut dims = shape.dims().to_vec();
    dims[dim] = dims[dim] / view.units * units;
    Ok(Shape::new(dims))
}

/// Returns a layer with another kind and other inputs, and the output that follows from them.
fn with_inputs(layer: &Layer, kind: LayerKind, inputs: Vec<Shape>) -> Result<Layer, GraphError> {
    let output = output_shape(&layer.name, &kind, &inputs)?;
    Ok(Layer::new(layer.name.clone(), kind, inputs, output))
}

/// Returns the number of rows of a parameter, each of which has all units of the output: the input
/// channels of a transposed convolution, or 1.
fn input_rows(kind: &LayerKind, tensor: &LayerTensor) -> usize {
    match (kind, &tensor.dims[..]) {
        (LayerKind::ConvTranspose2d(ConvTranspose2d { groups: 1, .. }), [rows, _, ..]) => *rows,
        _ => 1,
    }
}

/// Returns the box of a range of the units of a tensor that is viewed as `outer` rows of
/// `all_units` units.
fn box_of(tensor: &LayerTensor, outer: usize, all_units: usize, units: &Range<usize>) -> TensorBox {
    let inner = tensor.elements() / (outer * all_units);
    TensorView { positions: 1, outer, units: all_units, inner }.range(units.clone())
}
