//! Sums and concatenations.

use crate::onnx::OnnxError;
use crate::onnx::importer::Importer;
use crate::onnx::node::{Node, axis};
use crate::{LayerId, LayerKind};

pub(super) fn add<'a>(importer: &mut Importer<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    join(importer, node, LayerKind::Add)
}

pub(super) fn concat<'a>(importer: &mut Importer<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let first = importer.layer(node, node.input(0)?)?;
    let rank = importer.shape(first).dims().len() + 1;
    let along = node.int("axis", 1)?;
    if rank != 4 || axis(along, rank) != Some(1) {
        return Err(
            node.unsupported(format!("axis {along} of {rank}: only the channels of images are joined"))
        );
    }
    join(importer, node, LayerKind::Concat)
}

fn join<'a>(importer: &mut Importer<'a>, node: Node<'a>, kind: LayerKind) -> Result<(), OnnxError> {
    let inputs =
        node.inputs().map(|value| importer.layer(node, value)).collect::<Result<Vec<LayerId>, _>>()?;
    match inputs[..] {
        [only] => importer.define(node.output()?, only),
        _ => importer.add(node, kind, &inputs),
    }
}
