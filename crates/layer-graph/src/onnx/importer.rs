//! Conversion of the nodes of a file to layers.

use super::OnnxError;
use super::builder::{Builder, NodeCounts};
use super::constants::ReadApart;
use super::proto::GraphProto;
use super::{operators, supported};
use crate::LayerGraph;

/// Converts a graph of operator set version `opset` to a network of the given name: adds the layers
/// of all nodes that the output depends on, and the loss. `read_apart` reads tensors in other
/// files.
///
/// Returns the network, and the numbers of nodes that it leaves out or changes.
///
/// # Errors
/// All problems found in the graph, combined into one error.
pub(super) fn import_graph(
    name: &str,
    graph: &GraphProto,
    opset: i64,
    read_apart: &ReadApart<'_>,
) -> Result<(LayerGraph, NodeCounts), OnnxError> {
    let mut builder = Builder::new(name, graph, opset, read_apart)?;
    for index in 0..builder.node_count() {
        if builder.needs_layer(index) {
            add_node(&mut builder, index);
        }
    }
    builder.finish()
}

/// Adds the layers of one node, or records its problem and marks its outputs as unknown.
fn add_node(builder: &mut Builder<'_>, index: usize) {
    let node = builder.node(index);
    let added = if !supported::is_supported(&node.operator()) {
        Err(Some(node.unsupported_operator()))
    } else if builder.has_unknown_input(node) {
        Err(None)
    } else {
        match builder.fold(node) {
            Ok(true) => Ok(()),
            Ok(false) => operators::add(builder, index).map_err(Some),
            Err(problem) => Err(Some(problem)),
        }
    };
    if let Err(problem) = added {
        builder.mark_unknown(node, problem);
    }
}
