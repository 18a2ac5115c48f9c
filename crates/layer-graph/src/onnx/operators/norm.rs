//! Normalisation operators. Each function converts a node and defines its output; it returns an
//! error that names the node if this use of the operator is invalid or has no layer.

use crate::onnx::OnnxError;
use crate::onnx::builder::Builder;
use crate::onnx::node::Node;
use crate::onnx::numbers::{axis, shortest_decimal, size};
use crate::{BatchNorm, GroupNorm, LayerId, LayerNorm, LocalResponseNorm, RmsNorm};

/// Adds the layer of a `BatchNormalization` node. A multiplication and an addition of constants by
/// channel that follow it are merged into the layer.
pub(super) fn batch<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let input = builder.layer(node, node.input(0)?)?;
    let shape = builder.shape(input).clone();
    if shape.dims().len() > 3 {
        let problem = format!("a sample of shape {shape}: only images, signals and vectors have layers");
        return Err(node.unsupported(problem));
    }
    if node.int("spatial", 1)? == 0 {
        return Err(node.unsupported("statistics of each pixel (`spatial` 0)"));
    }
    let (channels, rank) = (shape.dims()[0], shape.dims().len() + 1);
    check_parameters(builder, node, 1..5, channels)?;
    let norm = BatchNorm {
        epsilon: node.float("epsilon", 1e-5)?,
        // ONNX weights the running statistics with it, [`BatchNorm`] the current batch.
        momentum: shortest_decimal((1.0 - node.float("momentum", 0.9)?) as f32),
    };
    let mut output = node.output()?;
    for operator in ["Mul", "Add"] {
        output = builder.merge_reader(output, operator, channels, 1, rank).map_or(output, |(made, _)| made);
    }
    // Before operator set 14, a normalisation by the batch has the running statistics as outputs.
    let is_trained = match builder.opset {
        14.. => node.int("training_mode", 0)? != 0,
        _ => node.outputs().count() > 1,
    };
    builder.counts.batch_norms += 1;
    builder.counts.frozen += usize::from(!is_trained);
    let layer = builder.add_inner(node, norm, &[input])?;
    builder.define(output, layer)
}

/// Adds the layer of a `LayerNormalization` node.
pub(super) fn layer<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let (input, features) = rows(builder, node)?;
    if node.optional_input(2).is_none() {
        return Err(node.unsupported("a layer normalisation without a bias"));
    }
    check_parameters(builder, node, 1..3, features)?;
    builder.add(node, LayerNorm { epsilon: node.float("epsilon", 1e-5)? }, &[input])
}

/// Adds the layer of an `RMSNormalization` node.
pub(super) fn root_mean_square<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let (input, features) = rows(builder, node)?;
    check_parameters(builder, node, 1..2, features)?;
    builder.add(node, RmsNorm::new(node.float("epsilon", 1e-5)?), &[input])
}

/// Returns the layer whose innermost dimension a node normalises, and the size of this dimension.
fn rows<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(LayerId, usize), OnnxError> {
    let input = builder.layer(node, node.input(0)?)?;
    let shape = builder.shape(input);
    let rank = shape.dims().len() + 1;
    if axis(node.int("axis", -1)?, rank) != Some(rank - 1) {
        return Err(node.unsupported("an axis that is not the last one"));
    }
    Ok((input, shape.innermost()))
}

/// Adds the layer of a `GroupNormalization` node.
pub(super) fn group<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let groups = node.int("num_groups", 0)?;
    let groups = size(groups).ok_or_else(|| node.invalid(format!("`num_groups` is {groups}")))?;
    if builder.opset < 21 {
        return Err(node.unsupported("parameters of each group, before operator set 21"));
    }
    let input = builder.layer(node, node.input(0)?)?;
    add_group_norm(builder, node, input, groups)
}

/// Adds the layer of an `InstanceNormalization` node of images. In files of PyTorch, those of other
/// shapes are steps of a group normalisation.
pub(super) fn instance<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let input = builder.layer(node, node.input(0)?)?;
    let shape = builder.shape(input);
    let Some((channels, ..)) = shape.as_image() else {
        return Err(node.unsupported(format!("a sample of shape {shape}: only images have layers")));
    };
    add_group_norm(builder, node, input, channels)
}

fn add_group_norm<'a>(
    builder: &mut Builder<'a>,
    node: Node<'a>,
    input: LayerId,
    groups: usize,
) -> Result<(), OnnxError> {
    let channels = builder.shape(input).dims()[0];
    check_parameters(builder, node, 1..3, channels)?;
    builder.add(node, GroupNorm { groups, epsilon: node.float("epsilon", 1e-5)? }, &[input])
}

/// Adds the layer of an `LRN` node.
pub(super) fn local_response<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let input: LayerId = builder.layer(node, node.input(0)?)?;
    let neighbours = node.int("size", 0)?;
    let Some(neighbours) = size(neighbours).filter(|size| *size > 0) else {
        return Err(node.invalid(format!("`size` is {neighbours}, not at least 1")));
    };
    if neighbours % 2 == 0 {
        return Err(node.unsupported("an even number of neighbours"));
    }
    let norm = LocalResponseNorm {
        size: neighbours,
        alpha: node.float("alpha", 1e-4)?,
        beta: node.float("beta", 0.75)?,
        k: node.float("bias", 1.0)?,
    };
    builder.add(node, norm, &[input])
}

/// Checks that the inputs at the given positions are constants with one number for each channel.
fn check_parameters<'a>(
    builder: &Builder<'a>,
    node: Node<'a>,
    positions: std::ops::Range<usize>,
    channels: usize,
) -> Result<(), OnnxError> {
    for position in positions {
        let dims = &builder.parameter(node, position)?.dims;
        if *dims != [channels] {
            return Err(node.invalid(format!("input {position} is of dimensions {dims:?}, not [{channels}]")));
        }
    }
    Ok(())
}
