//! Small network with a branch for 8x8 images of digits, in ten classes.
//!
//! It trains in seconds on a CPU and exercises every case of burst-parallel training: a fork, a
//! join, dropout, layers that are faster on more GPUs and layers that are not.
//!
//! It uses GELU and average pooling, which are smooth. With ReLU or maximum pooling, rounding can
//! flip the gradient of a unit at a kink, and loss curves that should agree to rounding diverge.

use crate::{Conv2d, Dropout, GraphError, LayerGraph, LayerKind, Linear, Pool2d, Shape};

/// Builds the network under the given name. Its layers fit their inputs, so that no error is
/// returned.
pub(super) fn digits_cnn(name: &str) -> Result<LayerGraph, GraphError> {
    let mut net = LayerGraph::new(name, Shape::image(1, 8, 8))?;
    let input = net.input();
    let stem = net.add("conv1", Conv2d::new(16, 3).padding(1), [input])?;
    let stem = net.add("gelu1", LayerKind::GeluTanh, [stem])?;

    let wide = net.add("conv2_3x3", Conv2d::new(24, 3).padding(1), [stem])?;
    let wide = net.add("gelu2_3x3", LayerKind::GeluTanh, [wide])?;
    let narrow = net.add("conv2_1x1", Conv2d::new(8, 1), [stem])?;
    let narrow = net.add("gelu2_1x1", LayerKind::GeluTanh, [narrow])?;
    let x = net.add("concat", LayerKind::Concat, [wide, narrow])?;

    let x = net.add("pool1", LayerKind::AvgPool2d(Pool2d::new(2, 2)), [x])?;
    let x = net.add("conv3", Conv2d::new(32, 3).padding(1), [x])?;
    let x = net.add("gelu3", LayerKind::GeluTanh, [x])?;
    let x = net.add("flatten", LayerKind::Flatten, [x])?;
    let x = net.add("fc1", Linear::new(64), [x])?;
    let x = net.add("gelu4", LayerKind::GeluTanh, [x])?;
    let x = net.add("dropout", Dropout::new(0.2), [x])?;
    let x = net.add("fc2", Linear::new(10), [x])?;
    net.add("loss", LayerKind::CROSS_ENTROPY, [x])?;
    Ok(net)
}
