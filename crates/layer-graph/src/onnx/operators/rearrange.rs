//! Operators that change the shape or order of elements. Each function converts a node and defines
//! its output; it returns an error that names the node if this use of the operator is invalid,
//! mixes samples of the batch or has no layer.

use crate::onnx::OnnxError;
use crate::onnx::builder::Builder;
use crate::onnx::constants::BATCH_SIZE;
use crate::onnx::dims;
use crate::onnx::node::Node;
use crate::onnx::numbers::axis;
use crate::{LayerId, LayerKind, Permute, Reshape, Shape};

/// Converts a `Flatten` node of whole samples to a flattening or a reshape.
pub(super) fn flatten<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let input = builder.layer(node, node.input(0)?)?;
    let shape = builder.shape(input);
    let along = node.int("axis", 1)?;
    if axis(along, shape.dims().len() + 1) != Some(1) {
        return Err(node.unsupported(format!("axis {along}: only whole samples become vectors")));
    }
    let vector = vec![shape.elements()];
    add_reshape(builder, node, input, vector)
}

/// Converts a `Reshape` node to a reshape. Its new shape must be a constant that keeps the batch.
pub(super) fn reshape<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let input = builder.layer(node, node.input(0)?)?;
    let requested = builder.list(node, 1, "shape", "its shape")?;
    let requested = requested.ok_or_else(|| node.invalid("it has no shape"))?;
    if node.int("allowzero", 0)? != 0 && requested.contains(&0) {
        return Err(node.invalid("a dimension of 0"));
    }
    let [batch, sample @ ..] = requested else { return Err(node.invalid("its shape has no dimensions")) };
    // Exporters write the batch size of the traced run, which is 1 if the batch is open.
    let traced = builder.batch.unwrap_or(1);
    let keeps_batch = matches!(*batch, 0 | -1 | BATCH_SIZE) || *batch == traced;
    if !keeps_batch || sample.is_empty() || sample.contains(&BATCH_SIZE) {
        let requested = requested.iter().map(|&dim| match dim {
            BATCH_SIZE => "batch".to_owned(),
            dim => dim.to_string(),
        });
        let requested = requested.collect::<Vec<_>>().join(", ");
        return Err(
            node.unsupported(format!("shape [{requested}] mixes samples of the batch, which is of {traced}"))
        );
    }
    let shape = builder.shape(input);
    let target = dims::reshape(sample, shape.dims());
    let target =
        target.ok_or_else(|| node.invalid(format!("cannot make {requested:?} of samples of {shape}")))?;
    add_reshape(builder, node, input, target)
}

/// Converts a `Squeeze` node, which removes dimensions of 1, to a reshape.
pub(super) fn squeeze<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let axes = axes(builder, node)?;
    let input = builder.layer(node, node.input(0)?)?;
    let shape = builder.shape(input);
    let target = dims::squeeze(Some(&axes), &with_batch(shape));
    let target =
        target.ok_or_else(|| node.invalid(format!("axes {axes:?} are not all 1 in samples of {shape}")))?;
    add_reshape(builder, node, input, target[1..].to_vec())
}

/// Converts an `Unsqueeze` node, which inserts dimensions of 1, to a reshape.
pub(super) fn unsqueeze<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let axes = axes(builder, node)?;
    let input = builder.layer(node, node.input(0)?)?;
    let shape = builder.shape(input);
    let target = dims::unsqueeze(&axes, &with_batch(shape)).filter(|dims| dims[0] == BATCH_MARKER);
    let target = target
        .ok_or_else(|| node.unsupported(format!("axes {axes:?} of samples of {shape} and their batch")))?;
    add_reshape(builder, node, input, target[1..].to_vec())
}

/// Converts a `Transpose` node to a permutation. It must keep the batch in front.
pub(super) fn transpose<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let input = builder.layer(node, node.input(0)?)?;
    let rank = builder.shape(input).dims().len() + 1;
    let order = node.ints("perm").ok_or_else(|| node.unsupported("without `perm` it moves the batch"))?;
    let positions: Vec<_> = order.iter().filter_map(|&position| axis(position, rank)).collect();
    let [0, sample @ ..] = positions.as_slice() else {
        return Err(node.unsupported(format!("`perm` {order:?} moves the batch")));
    };
    // A repeated axis 0 wraps to an invalid order, which adding the layer rejects.
    let order: Vec<_> = sample.iter().map(|&position| position.wrapping_sub(1)).collect();
    if order.iter().copied().eq(0..rank - 1) {
        return builder.define(node.output()?, input);
    }
    builder.add(node, Permute { order }, &[input])
}

/// Returns the axes of a `Squeeze` or `Unsqueeze`.
fn axes<'a>(builder: &Builder<'a>, node: Node<'a>) -> Result<Vec<i64>, OnnxError> {
    let axes = builder.list(node, 1, "axes", "its list of axes")?;
    // Without axes, a `Squeeze` would also remove a batch of 1.
    axes.map(<[i64]>::to_vec).ok_or_else(|| node.unsupported("axes that are not given as constants"))
}

/// Placeholder for the batch among dimensions. No real dimension has this size, so removing or
/// moving the batch is detected.
const BATCH_MARKER: usize = usize::MAX;

fn with_batch(shape: &Shape) -> Vec<usize> {
    [&[BATCH_MARKER], shape.dims()].concat()
}

/// Reshapes samples to the given dimensions, unless they have them already.
fn add_reshape<'a>(
    builder: &mut Builder<'a>,
    node: Node<'a>,
    input: LayerId,
    dims: Vec<usize>,
) -> Result<(), OnnxError> {
    let from = builder.shape(input).dims();
    match dims[..] {
        _ if dims == from => builder.define(node.output()?, input),
        [_] if from.len() == 3 => builder.add(node, LayerKind::Flatten, &[input]),
        _ => builder.add(node, Reshape { output: Shape::new(dims) }, &[input]),
    }
}
