//! Operators that change the shape or order of elements.

use crate::onnx::OnnxError;
use crate::onnx::dims;
use crate::onnx::importer::Importer;
use crate::onnx::node::{Node, axis};
use crate::{LayerId, LayerKind, Permute, Reshape, Shape};

pub(super) fn flatten<'a>(importer: &mut Importer<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let input = importer.layer(node, node.input(0)?)?;
    let shape = importer.shape(input);
    let along = node.int("axis", 1)?;
    if axis(along, shape.dims().len() + 1) != Some(1) {
        return Err(node.unsupported(format!("axis {along}: only whole samples become vectors")));
    }
    let vector = vec![shape.elements()];
    shaped(importer, node, input, vector)
}

pub(super) fn reshape<'a>(importer: &mut Importer<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let input = importer.layer(node, node.input(0)?)?;
    let wanted = match node.optional_input(1) {
        None => node.ints("shape"),
        Some(value) => importer.constant(value).and_then(|constant| constant.ints.as_deref()),
    };
    let wanted = wanted.ok_or_else(|| node.unsupported("its shape is computed: simplify the model first"))?;
    if node.int("allowzero", 0)? != 0 && wanted.contains(&0) {
        return Err(node.bad("a dimension of 0"));
    }
    let [batch, sample @ ..] = wanted else { return Err(node.bad("its shape has no dimensions")) };
    // Exporters write the batch size of the traced run, which is 1 if the batch is open.
    let seen = importer.batch.unwrap_or(1);
    if !(*batch == 0 || *batch == -1 || *batch == seen) || sample.is_empty() {
        return Err(
            node.unsupported(format!("shape {wanted:?} mixes samples of the batch, which is of {seen}"))
        );
    }
    let shape = importer.shape(input);
    let target = dims::reshape(sample, shape.dims());
    let target = target.ok_or_else(|| node.bad(format!("cannot make {wanted:?} of samples of {shape}")))?;
    shaped(importer, node, input, target)
}

pub(super) fn squeeze<'a>(importer: &mut Importer<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let axes = axes(importer, node)?;
    let input = importer.layer(node, node.input(0)?)?;
    let shape = importer.shape(input);
    let target = dims::squeeze(Some(&axes), &with_batch(shape));
    let target =
        target.ok_or_else(|| node.bad(format!("axes {axes:?} are not all 1 in samples of {shape}")))?;
    shaped(importer, node, input, target[1..].to_vec())
}

pub(super) fn unsqueeze<'a>(importer: &mut Importer<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let axes = axes(importer, node)?;
    let input = importer.layer(node, node.input(0)?)?;
    let shape = importer.shape(input);
    let target = dims::unsqueeze(&axes, &with_batch(shape)).filter(|dims| dims[0] == BATCH);
    let target = target
        .ok_or_else(|| node.unsupported(format!("axes {axes:?} of samples of {shape} and their batch")))?;
    shaped(importer, node, input, target[1..].to_vec())
}

pub(super) fn transpose<'a>(importer: &mut Importer<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let input = importer.layer(node, node.input(0)?)?;
    let rank = importer.shape(input).dims().len() + 1;
    let order = node.ints("perm").ok_or_else(|| node.unsupported("without `perm` it moves the batch"))?;
    let places: Vec<_> = order.iter().filter_map(|&place| axis(place, rank)).collect();
    let [0, sample @ ..] = places.as_slice() else {
        return Err(node.unsupported(format!("`perm` {order:?} moves the batch")));
    };
    // A repeated axis 0 wraps to an invalid order, which adding the layer rejects.
    let order: Vec<_> = sample.iter().map(|&place| place.wrapping_sub(1)).collect();
    if order.iter().copied().eq(0..rank - 1) {
        return importer.define(node.output()?, input);
    }
    importer.add(node, Permute { order }, &[input])
}

/// Returns the axes of a `Squeeze` or `Unsqueeze`.
fn axes<'a>(importer: &Importer<'a>, node: Node<'a>) -> Result<Vec<i64>, OnnxError> {
    let axes = match node.optional_input(1) {
        None => node.ints("axes"),
        Some(value) => importer.constant(value).and_then(|constant| constant.ints.as_deref()),
    };
    // Without axes, a `Squeeze` would also remove a batch of 1.
    axes.map(<[i64]>::to_vec).ok_or_else(|| node.unsupported("axes that are not given as constants"))
}

/// Placeholder for the batch among dimensions. No real dimension has this size, so removing or
/// moving the batch is detected.
const BATCH: usize = usize::MAX;

fn with_batch(shape: &Shape) -> Vec<usize> {
    [&[BATCH], shape.dims()].concat()
}

/// Reshapes samples to the given dimensions, unless they have them already.
fn shaped<'a>(
    importer: &mut Importer<'a>,
    node: Node<'a>,
    input: LayerId,
    dims: Vec<usize>,
) -> Result<(), OnnxError> {
    let from = importer.shape(input).dims();
    match dims[..] {
        _ if dims == from => importer.define(node.output()?, input),
        [_] if from.len() == 3 => importer.add(node, LayerKind::Flatten, &[input]),
        _ => importer.add(node, Reshape { output: Shape::new(dims) }, &[input]),
    }
}
