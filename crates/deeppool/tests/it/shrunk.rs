//! Networks of the zoo, small enough for an emulator.

use layer_graph::{LayerGraph, LayerKind, Shape, zoo};

/// A network's layers on square images of another size, with so many times fewer channels and features.
pub(crate) fn shrunk(model: &str, side: usize, times: usize) -> LayerGraph {
    let full = zoo::model(model).unwrap();
    let mut net = LayerGraph::new(model, Shape::image(3, side, side)).unwrap();
    for (id, layer) in full.layers().skip(1) {
        let mut kind = layer.kind().clone();
        match &mut kind {
            LayerKind::Conv2d(conv) => conv.out_channels /= times,
            LayerKind::Linear(linear) => linear.out_features /= times,
            // Of a vision transformer: channels by patches.
            LayerKind::Reshape(reshape) => {
                let channels = net.layer(full.producers(id)[0]).output_shape();
                reshape.output = Shape::new([channels.dims()[0], channels.elements() / channels.dims()[0]]);
            }
            // The image is smaller already.
            LayerKind::AdaptiveAvgPool2d(pool) => pool.output = [1, 1],
            _ => {}
        }
        // Layers have the same numbers, as they are added in the same order.
        net.add(layer.name(), kind, full.producers(id)).unwrap();
    }
    net
}
