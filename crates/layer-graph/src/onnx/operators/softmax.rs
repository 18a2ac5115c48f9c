//! Softmax, which becomes part of the loss at the end of the network and a layer elsewhere.

use super::join::NO_ATTENTION;
use crate::LayerKind;
use crate::onnx::OnnxError;
use crate::onnx::builder::Builder;
use crate::onnx::deferred::{Replay, Value};
use crate::onnx::node::Node;
use crate::onnx::numbers::axis;

/// First operator set in which softmax applies to one axis. Earlier ones flatten all dimensions
/// from that axis on.
const SINGLE_AXIS_OPSET: i64 = 13;

/// Converts a `Softmax` or `LogSoftmax` node and defines its output.
///
/// # Errors
/// [`OnnxError`] if the node is a `LogSoftmax` before the end of the network, its axis is not the
/// last one, or it is invalid.
pub(super) fn add<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    if let Some(Value::Scores(scores)) = builder.deferred(node.input(0)?).cloned() {
        let rank = scores.dims().len();
        if node.operator() != "Softmax" || axis(node.int("axis", -1)?, rank) != Some(rank - 1) {
            return Err(node.unsupported("of an attention, only over the keys"));
        }
        return builder.defer(
            node.output()?,
            node,
            Value::Weights(scores),
            Replay::None(NO_ATTENTION.into()),
        );
    }
    let input = builder.layer(node, node.input(0)?)?;
    let dims = builder.shape(input).dims();
    let single_axis = builder.opset >= SINGLE_AXIS_OPSET;
    let along = node.int("axis", if single_axis { -1 } else { 1 })?;
    let position = axis(along, dims.len() + 1).and_then(|position| position.checked_sub(1));
    let position = position.ok_or_else(|| node.unsupported(format!("axis {along}")))?;
    let inner = &dims[position + 1..];
    // Over the last dimension, or over several dimensions that are all 1 except the last.
    let is_last =
        inner.is_empty() || !single_axis && dims[position..dims.len() - 1].iter().all(|&dim| dim == 1);
    // The class scores of a sample may be an image of one pixel.
    let is_whole_sample = position == 0 && inner.iter().all(|&dim| dim == 1);
    if builder.is_output(node.output()?) && (is_last || is_whole_sample) {
        return builder.define(node.output()?, input);
    }
    if node.operator() == "LogSoftmax" {
        return Err(node.unsupported("only at the end of the network, where it is part of the loss"));
    }
    if !is_last {
        return Err(node.unsupported(format!("axis {along}: only the last one has a layer")));
    }
    builder.add(node, LayerKind::Softmax, &[input])
}
