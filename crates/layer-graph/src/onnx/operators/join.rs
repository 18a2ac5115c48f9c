//! Sums, products and concatenations. Each function converts a node and defines its output; it
//! returns an error that names the node if this use of the operator is invalid or has no layer.

use std::cmp::Reverse;

use crate::onnx::OnnxError;
use crate::onnx::builder::Builder;
use crate::onnx::node::Node;
use crate::onnx::numbers::axis;
use crate::{LayerId, LayerKind};

/// Adds the layer of an `Add` or `Sum` node. A sum may have any number of inputs.
pub(super) fn add<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let count = node.inputs().count();
    if node.operator() == "Add" && count != 2 {
        return Err(node.invalid(format!("it has {count} inputs, expected 2")));
    }
    join(builder, node, LayerKind::Add)
}

/// Adds the layer of a `Mul` node of two layers. A product with one constant a channel is a part of
/// the batch normalisation before it.
pub(super) fn multiply<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    if node.inputs().any(|value| builder.constant(value).is_some()) {
        return Err(node.unsupported(
            "only a product of two layers, or with one constant a channel after a batch normalisation, is",
        ));
    }
    let mut factors = [builder.layer(node, node.input(0)?)?, builder.layer(node, node.input(1)?)?];
    // One number a channel is the second factor.
    factors.sort_by_key(|&factor| Reverse(builder.shape(factor).elements()));
    builder.add(node, LayerKind::Multiply, &factors)
}

/// Adds the layer of a `Concat` node.
pub(super) fn concat<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let first = builder.layer(node, node.input(0)?)?;
    let rank = builder.shape(first).dims().len() + 1;
    let along = node.int("axis", 1)?;
    if rank != 4 || axis(along, rank) != Some(1) {
        return Err(
            node.unsupported(format!("axis {along} of {rank}: only the channels of images are joined"))
        );
    }
    join(builder, node, LayerKind::Concat)
}

fn join<'a>(builder: &mut Builder<'a>, node: Node<'a>, kind: LayerKind) -> Result<(), OnnxError> {
    let inputs =
        node.inputs().map(|value| builder.layer(node, value)).collect::<Result<Vec<LayerId>, _>>()?;
    match inputs[..] {
        [only] => builder.define(node.output()?, only),
        _ => builder.add(node, kind, &inputs),
    }
}
