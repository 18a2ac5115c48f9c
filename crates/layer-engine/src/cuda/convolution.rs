//! Convolutions, as products of tiles without a materialised im2col matrix. The function adds the
//! launches of a pass to a `KernelBuilder`, a kernel under preparation. It fails as the functions
//! of `KernelBuilder` do.

use cuda::{ConvolutionShape, Direction, Layout};
use layer_graph::{Conv2d, Layer, Shape};

use super::channels::Channels;
use super::kernel::Argument;
use super::kernel_builder::{Candidate, KernelBuilder, size};
use super::module::Family;
use super::operand::element_bytes;
use super::slices::{Products, Slices};
use super::{NAME, vendor};
use crate::{EngineError, ImageLayout, KernelChoice, Pass, Role, Storage};

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
    let (channels, filters) = (in_channels / conv.groups, out_channels / conv.groups);
    let shape = ConvolutionShape {
        samples,
        in_channels,
        out_channels,
        groups: conv.groups,
        input: [height, width],
        kernel: conv.kernel,
        stride: conv.stride,
        padding: conv.padding,
        dilation: [1, 1],
        layout: match builder.device().image_layout {
            ImageLayout::ChannelsFirst => Layout::Nchw,
            ImageLayout::ChannelsLast => Layout::Nhwc,
        },
        direction: Direction::Forward,
    };
    let [kernel, stride, padding] = [conv.kernel, conv.stride, conv.padding];
    let geometry = [
        conv.groups,
        channels,
        filters,
        height,
        width,
        out_height,
        out_width,
        kernel[0],
        kernel[1],
        stride[0],
        stride[1],
        padding[0],
        padding[1],
    ];
    let windows = out_height * out_width;
    let weights_of_filter = channels * kernel[0] * kernel[1];
    let convolution = Convolution {
        layer,
        shape,
        channels,
        filters,
        windows,
        weights_of_filter,
        x_elements: samples * in_channels * height * width,
        weight_elements: out_channels * weights_of_filter,
        y_elements: samples * out_channels * windows,
        has_bias: conv.bias,
        arguments: [size(samples), Argument::fields(geometry)],
    };
    match pass {
        Pass::Backward => {
            convolution.add_input_gradient(builder)?;
            convolution.add_parameter_gradient(builder)?;
        }
        Pass::BackwardParameters => convolution.add_parameter_gradient(builder)?,
        _ => convolution.add_forward(builder)?,
    }
    Ok(Some(()))
}

/// Sizes of a convolution, in elements of all samples where not said otherwise.
struct Convolution<'l> {
    layer: &'l Layer,
    shape: ConvolutionShape,
    /// Input channels of a group.
    channels: usize,
    /// Output channels of a group.
    filters: usize,
    /// Pixels of an output channel of a sample.
    windows: usize,
    weights_of_filter: usize,
    x_elements: usize,
    weight_elements: usize,
    y_elements: usize,
    has_bias: bool,
    /// The first arguments of the GPU functions: the number of samples, and the geometry.
    arguments: [Argument; 2],
}

impl Convolution<'_> {
    /// Checks that the functions of this crate can compute the convolution.
    ///
    /// # Errors
    /// [`EngineError::ChannelsLast`] if channels are last.
    fn check_own(&self, builder: &KernelBuilder<'_>) -> Result<(), EngineError> {
        let device = builder.device();
        let problem = match (self.shape.layout, device.choice, device.libraries.convolutions()) {
            (Layout::Nchw, ..) => return Ok(()),
            (_, KernelChoice::Own, _) => "own kernels need channels first".to_owned(),
            (.., Err(problem)) => format!("cuDNN cannot be used: {problem}"),
            (.., Ok(_)) => "cuDNN has no algorithm whose workspace fits into the memory".to_owned(),
        };
        Err(EngineError::channels_last(NAME, self.layer, problem))
    }

    /// Returns the number of adjacent elements of a channel of the output.
    fn adjacent(&self) -> usize {
        match self.shape.layout {
            Layout::Nchw => self.windows,
            Layout::Nhwc => 1,
        }
    }

    /// Returns the address of the biases, which follow the weights; none if there are none.
    fn biases(&self, weights: Argument) -> Argument {
        if self.has_bias { weights.offset(self.weight_elements) } else { Argument::NONE }
    }

    fn add_forward(&self, builder: &mut KernelBuilder<'_>) -> Result<(), EngineError> {
        let [x, weights, y] =
            [Role::Input(0), Role::Parameters, Role::Output].map(|role| builder.operand(role));
        let biases = self.biases(weights);
        let channels = self.shape.out_channels;
        let vendor = |builder: &mut KernelBuilder<'_>| {
            let mut candidates = vendor::convolutions(builder, &self.shape, [x, weights, y])?;
            if self.has_bias {
                let arguments = [size(self.y_elements), size(self.adjacent()), size(channels), biases, y];
                for candidate in &mut candidates {
                    let kernel = (Family::Elementwise, "add_bias");
                    let variant = builder.storage(y);
                    let launch = builder.launch_for_each(variant, kernel, self.y_elements, arguments)?;
                    candidate.launches.push(launch);
                }
            }
            Ok(candidates)
        };
        builder.choose("convolution", &(&self.shape, self.has_bias), vendor, |builder| {
            self.check_own(builder)?;
            let y = Products {
                to: y,
                elements: self.y_elements,
                factors: self.x_elements + self.weight_elements,
                sides: [self.filters, self.shape.samples * self.windows],
                count: self.shape.groups,
                terms: self.weights_of_filter,
            };
            let y = Slices::new(builder, &y)?;
            let arguments =
                [&self.arguments[..], &[size(y.terms), x, weights, y.bias(biases), y.parts]].concat();
            y.launch(builder, (FAMILY, ["convolution_forward", "convolution_forward_small"]), arguments)?;
            y.sum(builder, biases, [self.windows, channels])
        })
    }

    fn add_input_gradient(&self, builder: &mut KernelBuilder<'_>) -> Result<(), EngineError> {
        let [dx, weights, dy] = [Role::InputGradient(0), Role::Parameters, Role::OutputGradient]
            .map(|role| builder.operand(role));
        let shape = ConvolutionShape { direction: Direction::InputGradient, ..self.shape };
        let vendor =
            |builder: &mut KernelBuilder<'_>| vendor::convolutions(builder, &shape, [dx, weights, dy]);
        builder.choose("input gradient", &shape, vendor, |builder| {
            self.check_own(builder)?;
            // A phase has the pixels of one remainder by the stride along each axis.
            let [down, across] = shape.stride;
            let per_phase = |sides: [usize; 2]| sides[0].div_ceil(down) * sides[1].div_ceil(across);
            let dx = Products {
                to: dx,
                elements: self.x_elements,
                factors: self.y_elements + self.weight_elements,
                sides: [self.channels, shape.samples * per_phase(shape.input)],
                count: shape.groups * down * across,
                terms: self.filters * per_phase(shape.kernel),
            };
            let dx = Slices::new(builder, &dx)?;
            let arguments = [&self.arguments[..], &[size(dx.count), dy, weights, dx.parts]].concat();
            let kernels = ["convolution_input_gradient", "convolution_input_gradient_small"];
            dx.launch(builder, (FAMILY, kernels), arguments)?;
            dx.sum(builder, Argument::NONE, [shape.input[0] * shape.input[1], shape.in_channels])
        })
    }

    /// Returns the library's candidates for the gradient of the weights. cuDNN stores all tensors
    /// of a convolution in one number format: from operands in 16 bits, the gradient is stored in
    /// 16 bits in workspace and then converted.
    fn weight_gradients(
        &self,
        builder: &mut KernelBuilder<'_>,
        shape: &ConvolutionShape,
        [x, gradient, dy]: [Argument; 3],
    ) -> Result<Vec<Candidate>, EngineError> {
        if builder.storage(x) == Storage::Scalar {
            return vendor::convolutions(builder, shape, [x, gradient, dy]);
        }
        let elements = self.weight_elements;
        let rounded = builder.workspace(elements * element_bytes(Storage::Bf16))?;
        let mut candidates = vendor::convolutions(builder, shape, [x, rounded, dy])?;
        for candidate in &mut candidates {
            let (kernel, arguments) = ((Family::Elementwise, "widen"), [size(elements), rounded, gradient]);
            let launch = builder.launch_for_each(Storage::Bf16, kernel, elements, arguments)?;
            candidate.launches.push(launch);
        }
        Ok(candidates)
    }

    fn add_parameter_gradient(&self, builder: &mut KernelBuilder<'_>) -> Result<(), EngineError> {
        let [x, gradient, dy] =
            [Role::Input(0), Role::ParameterGradient, Role::OutputGradient].map(|role| builder.operand(role));
        let shape = ConvolutionShape { direction: Direction::WeightGradient, ..self.shape };
        let terms = shape.samples * self.windows;
        let vendor =
            |builder: &mut KernelBuilder<'_>| self.weight_gradients(builder, &shape, [x, gradient, dy]);
        builder.choose("weight gradient", &shape, vendor, |builder| {
            self.check_own(builder)?;
            let dw = Products {
                to: gradient,
                elements: self.weight_elements,
                factors: self.x_elements + self.y_elements,
                sides: [self.filters, self.weights_of_filter],
                count: shape.groups,
                terms,
            };
            let dw = Slices::new(builder, &dw)?;
            let arguments = [&self.arguments[..], &[size(dw.terms), x, dy, dw.parts]].concat();
            let kernels = ["convolution_weight_gradient", "convolution_weight_gradient_small"];
            dw.launch(builder, (FAMILY, kernels), arguments)?;
            dw.sum(builder, Argument::NONE, [1, self.weight_elements])
        })?;
        if self.has_bias {
            let is_last = shape.layout == Layout::Nhwc;
            let channels = Channels::new(is_last, shape.samples, shape.out_channels, self.windows);
            let kernels = ["convolution_bias_gradient", "convolution_bias_gradient_last"];
            channels.launch_sums(builder, (FAMILY, kernels), 1, &[dy], &[self.biases(gradient)])?;
        }
        Ok(())
    }
}
