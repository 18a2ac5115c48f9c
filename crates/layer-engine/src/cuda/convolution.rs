//! Convolutions, as products of tiles without a materialised im2col matrix. The function adds the
//! launches of a pass to a `KernelBuilder`, a kernel under preparation. It fails as the functions
//! of `KernelBuilder` do.

use layer_graph::{Conv2d, Layer, Shape};

use super::kernel::Argument;
use super::kernel_builder::{KernelBuilder, size, slices, tiles};
use super::linear::{slice_target, sum_slices};
use super::module::Family;
use crate::{EngineError, Pass, Role};

const FAMILY: Family = Family::Convolution;

/// Adds the launches of a pass of a convolution over `samples` samples. Returns `None` if the
/// layer's shapes are not images.
pub(super) fn add_launches(
    builder: &mut KernelBuilder<'_>,
    layer: &Layer,
    conv: &Conv2d,
    pass: Pass,
    samples: usize,
) -> Result<Option<()>, EngineError> {
    let images = (layer.input_shapes().first().and_then(Shape::as_image), layer.output_shape().as_image());
    let (Some((in_channels, height, width)), Some((out_channels, out_height, out_width))) = images else {
        return Ok(None);
    };
    let groups = conv.groups;
    let (channels, filters) = (in_channels / groups, out_channels / groups);
    let shape = [
        groups,
        channels,
        filters,
        height,
        width,
        out_height,
        out_width,
        conv.kernel[0],
        conv.kernel[1],
        conv.stride[0],
        conv.stride[1],
        conv.padding[0],
        conv.padding[1],
    ];
    let geometry = Argument::Struct(shape.map(|number| number as u32));
    let windows = out_height * out_width;
    let weights_of_filter = channels * conv.kernel[0] * conv.kernel[1];
    let weight_elements = out_channels * weights_of_filter;
    let after_weights =
        |operand: Argument| if conv.bias { operand.offset(weight_elements) } else { Argument::NONE };
    let weights = builder.operand(Role::Parameters);
    let (x, dy) = (builder.operand(Role::Input(0)), builder.operand(Role::OutputGradient));
    if !matches!(pass, Pass::Backward | Pass::BackwardParameters) {
        let arguments =
            [size(samples), geometry, x, weights, after_weights(weights), builder.operand(Role::Output)];
        builder.launch(
            (FAMILY, "convolution_forward"),
            [tiles(filters, samples * windows), groups],
            arguments,
        )?;
        return Ok(Some(()));
    }
    if pass == Pass::Backward {
        let arguments = [size(samples), geometry, dy, weights, builder.operand(Role::InputGradient(0))];
        let grid = [tiles(channels, samples * height * width), groups];
        builder.launch((FAMILY, "convolution_input_gradient"), grid, arguments)?;
    }
    let gradient = builder.operand(Role::ParameterGradient);
    let tiles = tiles(filters, weights_of_filter);
    let (count, slice) = slices(samples * windows, tiles * groups);
    let to = slice_target(builder, count, weight_elements, gradient)?;
    let arguments = [size(samples), geometry, size(slice), x, dy, to];
    builder.launch((FAMILY, "convolution_weight_gradient"), [tiles, count * groups], arguments)?;
    // This kernel belongs to the family of matrix products and is used for all gradients.
    sum_slices(builder, count, weight_elements, to, gradient)?;
    if conv.bias {
        let arguments = [size(samples), size(out_channels), size(windows), dy, after_weights(gradient)];
        builder.launch((FAMILY, "convolution_bias_gradient"), [out_channels, 1], arguments)?;
    }
    Ok(Some(()))
}
