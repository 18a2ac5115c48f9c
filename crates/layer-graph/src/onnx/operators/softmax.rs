//! Softmax, which becomes part of the loss at the end of the network and a layer elsewhere.

use crate::LayerKind;
use crate::onnx::OnnxError;
use crate::onnx::importer::Importer;
use crate::onnx::node::{Node, axis};

/// First operator set in which softmax applies to one axis. Earlier ones flatten all dimensions
/// from that axis on.
const ONE_AXIS: i64 = 13;

pub(super) fn add<'a>(importer: &mut Importer<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let input = importer.layer(node, node.input(0)?)?;
    let dims = importer.shape(input).dims();
    let one_axis = importer.opset >= ONE_AXIS;
    let along = node.int("axis", if one_axis { -1 } else { 1 })?;
    let place = axis(along, dims.len() + 1).and_then(|place| place.checked_sub(1));
    let place = place.ok_or_else(|| node.unsupported(format!("axis {along}")))?;
    let inner = &dims[place + 1..];
    // Over the last dimension, or over several dimensions that are all 1 except the last.
    let is_last = inner.is_empty() || !one_axis && dims[place..dims.len() - 1].iter().all(|&dim| dim == 1);
    // The class scores of a sample may be an image of one pixel.
    let is_all = place == 0 && inner.iter().all(|&dim| dim == 1);
    if importer.is_output(node.output()?) && (is_last || is_all) {
        return importer.define(node.output()?, input);
    }
    if node.operator() == "LogSoftmax" {
        return Err(node.unsupported("only at the end of the network, where it is part of the loss"));
    }
    if !is_last {
        return Err(node.unsupported(format!("axis {along}: only the last one has a layer")));
    }
    importer.add(node, LayerKind::Softmax, &[input])
}
