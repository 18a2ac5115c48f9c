//! Maximum and average pooling of images. Each function adds the launches of a pass to a
//! `KernelBuilder`, a kernel under preparation. It fails as the functions of `KernelBuilder` do.

use layer_graph::{Layer, Pool2d};

use super::kernel::Argument;
use super::kernel_builder::{KernelBuilder, size};
use super::module::Family;
use crate::{EngineError, ImageLayout, Pass, Role};

const FAMILY: Family = Family::Pooling;

/// Images and windows of a pooling.
struct PoolShape {
    /// Number of images, over all samples, and of their channels. With channels first, each channel
    /// of a sample is an image of one channel.
    images: [Argument; 2],
    /// Number of elements of all images.
    elements: usize,
    /// Number of windows of all images.
    windows: usize,
    /// Size, windows, kernel, stride and padding along the height and along the width.
    axes: [Argument; 2],
}

impl PoolShape {
    /// Creates windows of a fixed size, or adaptive windows without a `pool`. Returns `None` if the
    /// layer's shapes are not images.
    fn new(layout: ImageLayout, layer: &Layer, pool: Option<&Pool2d>, samples: usize) -> Option<Self> {
        let (channels, height, width) = layer.input_shapes().first()?.as_image()?;
        let (_, out_height, out_width) = layer.output_shape().as_image()?;
        let adjacent = layout.adjacent_channels(layer.output_shape());
        // Fields of `Axis` in `kernels/pooling.cu`.
        let axis = |axis: usize, size: usize, windows: usize| {
            let (kernel, stride, padding) =
                pool.map_or((0, 0, 0), |pool| (pool.kernel[axis], pool.stride[axis], pool.padding[axis]));
            Argument::fields([size, windows, kernel, stride, padding])
        };
        Some(Self {
            images: [samples * channels / adjacent, adjacent].map(size),
            elements: samples * channels * height * width,
            windows: samples * channels * out_height * out_width,
            axes: [axis(0, height, out_height), axis(1, width, out_width)],
        })
    }
}

/// Adds the launch of a pass of a maximum pooling over `samples` samples. Returns `None` if the
/// layer's shapes are not images.
pub(super) fn max_pool(
    builder: &mut KernelBuilder<'_>,
    layer: &Layer,
    pool: &Pool2d,
    samples: usize,
    pass: Pass,
) -> Result<Option<()>, EngineError> {
    let Some(shape) = PoolShape::new(builder.device().image_layout, layer, Some(pool), samples) else {
        return Ok(None);
    };
    let ([rows, columns], [images, channels]) = (shape.axes, shape.images);
    let saved = builder.operand(Role::Saved);
    if pass == Pass::Backward {
        let (dy, dx) = (builder.operand(Role::OutputGradient), builder.operand(Role::InputGradient(0)));
        let arguments = [images, channels, rows, columns, saved, dy, dx];
        builder.for_each((FAMILY, "max_pool_backward"), shape.elements, arguments)?;
    } else {
        let (x, y) = (builder.operand(Role::Input(0)), builder.operand(Role::Output));
        let arguments = [images, channels, rows, columns, x, y, saved];
        builder.for_each((FAMILY, "max_pool_forward"), shape.windows, arguments)?;
    }
    Ok(Some(()))
}

/// Adds the launch of a pass of an average pooling over `samples` samples: with the fixed windows
/// of `pool`, or adaptive without one. Returns `None` if the layer's shapes are not images.
pub(super) fn avg_pool(
    builder: &mut KernelBuilder<'_>,
    layer: &Layer,
    pool: Option<&Pool2d>,
    samples: usize,
    backward: bool,
) -> Result<Option<()>, EngineError> {
    let Some(shape) = PoolShape::new(builder.device().image_layout, layer, pool, samples) else {
        return Ok(None);
    };
    let ([rows, columns], [images, channels]) = (shape.axes, shape.images);
    let with_padding = size(usize::from(pool.is_some_and(|pool| pool.count_padding)));
    let (kernel, threads, from, to) = if backward {
        ("avg_pool_backward", shape.elements, Role::OutputGradient, Role::InputGradient(0))
    } else {
        ("avg_pool_forward", shape.windows, Role::Input(0), Role::Output)
    };
    let operands = [from, to].map(|role| builder.operand(role));
    let arguments = [&[images, channels, rows, columns, with_padding], &operands[..]].concat();
    builder.for_each((FAMILY, kernel), threads, arguments)?;
    Ok(Some(()))
}
