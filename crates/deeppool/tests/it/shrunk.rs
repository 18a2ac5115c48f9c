//! Small versions of the zoo's networks for the emulator.

use layer_graph::{LayerGraph, LayerId, LayerKind, Shape, zoo};

/// Returns a network's layers on square images of another size, with the numbers of channels and
/// features divided by `times`.
#[cfg(feature = "cuda")]
pub(crate) fn shrunk(model: &str, side: usize, times: usize) -> LayerGraph {
    shrunk_without(model, side, times, &[])
}

/// Returns [`shrunk`] without the layers of some blocks, given by the prefixes of their names: the
/// output of a block is its input.
pub(crate) fn shrunk_without(model: &str, side: usize, times: usize, blocks: &[&str]) -> LayerGraph {
    let full = zoo::model(model).unwrap();
    let mut net = LayerGraph::new(model, Shape::image(3, side, side)).unwrap();
    // The layer that represents each layer of the full network.
    let mut known = vec![net.input()];
    for (id, layer) in full.computing_layers() {
        let producers = full.producers(id);
        let producers: Vec<LayerId> = producers.iter().map(|producer| known[producer.index()]).collect();
        if blocks.iter().any(|block| layer.name().starts_with(block)) {
            // Each layer of the block is represented by its input.
            known.push(producers[0]);
            continue;
        }
        let mut kind = layer.kind().clone();
        match &mut kind {
            LayerKind::Conv2d(conv) => conv.out_channels /= times,
            LayerKind::Linear(linear) => linear.out_features /= times,
            // Of a vision transformer: channels by patches.
            LayerKind::Reshape(reshape) => {
                let channels = net.layer(producers[0]).output_shape();
                reshape.output = Shape::new([channels.dims()[0], channels.elements() / channels.dims()[0]]);
            }
            // The image is already smaller.
            LayerKind::AdaptiveAvgPool2d(pool) => pool.output = [1, 1],
            _ => {}
        }
        known.push(net.add(layer.name(), kind, producers).unwrap());
    }
    net
}
