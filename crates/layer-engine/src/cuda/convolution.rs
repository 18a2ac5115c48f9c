//! Convolutions, as products of tiles without a materialised im2col matrix. The function adds the
//! launches of a pass to a `KernelBuilder`, a kernel under preparation. It fails as the functions
//! of `KernelBuilder` do.

use layer_graph::{Conv2d, Layer, Shape};

use super::kernel::Argument;
use super::kernel_builder::{KernelBuilder, size};
use super::module::Family;
use super::slices::{Products, Slices};
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
    let (pixels, y_elements) = (height * width, samples * out_channels * windows);
    let x_elements = samples * in_channels * pixels;
    if !matches!(pass, Pass::Backward | Pass::BackwardParameters) {
        let bias = after_weights(weights);
        let y = Products {
            to: builder.operand(Role::Output),
            elements: y_elements,
            factors: x_elements + weight_elements,
            sides: [filters, samples * windows],
            count: groups,
            terms: weights_of_filter,
        };
        let y = Slices::new(builder, &y)?;
        let arguments = [size(samples), geometry, size(y.terms), x, weights, y.bias(bias), y.parts];
        y.launch(builder, (FAMILY, ["convolution_forward", "convolution_forward_small"]), arguments)?;
        y.sum(builder, bias, [windows, out_channels])?;
        return Ok(Some(()));
    }
    if pass == Pass::Backward {
        // A phase has the pixels of one remainder by the stride along each axis.
        let per_phase =
            |sides: [usize; 2]| sides[0].div_ceil(conv.stride[0]) * sides[1].div_ceil(conv.stride[1]);
        let dx = Products {
            to: builder.operand(Role::InputGradient(0)),
            elements: x_elements,
            factors: y_elements + weight_elements,
            sides: [channels, samples * per_phase([height, width])],
            count: groups * conv.stride[0] * conv.stride[1],
            terms: filters * per_phase(conv.kernel),
        };
        let dx = Slices::new(builder, &dx)?;
        let arguments = [size(samples), geometry, size(dx.count), dy, weights, dx.parts];
        let kernels = ["convolution_input_gradient", "convolution_input_gradient_small"];
        dx.launch(builder, (FAMILY, kernels), arguments)?;
        dx.sum(builder, Argument::NONE, [pixels, in_channels])?;
    }
    let gradient = builder.operand(Role::ParameterGradient);
    let dw = Products {
        to: gradient,
        elements: weight_elements,
        factors: x_elements + y_elements,
        sides: [filters, weights_of_filter],
        count: groups,
        terms: samples * windows,
    };
    let dw = Slices::new(builder, &dw)?;
    let arguments = [size(samples), geometry, size(dw.terms), x, dy, dw.parts];
    let kernels = ["convolution_weight_gradient", "convolution_weight_gradient_small"];
    dw.launch(builder, (FAMILY, kernels), arguments)?;
    dw.sum(builder, Argument::NONE, [1, weight_elements])?;
    if conv.bias {
        let db = Slices::of_blocks(builder, (after_weights(gradient), out_channels), samples * windows)?;
        let sizes = [samples, out_channels, windows, db.terms].map(size);
        let arguments = [&sizes[..], &[dy, db.parts]].concat();
        db.launch(builder, (FAMILY, ["convolution_bias_gradient"; 2]), arguments)?;
        db.sum(builder, Argument::NONE, [1, out_channels])?;
    }
    Ok(Some(()))
}
