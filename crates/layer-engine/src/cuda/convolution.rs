//! Convolutions, as products of tiles without a materialised im2col matrix. The function adds the
//! launches of a pass to a `KernelBuilder`, a kernel under preparation. It fails as the functions
//! of `KernelBuilder` do.

use cuda::{ConvolutionShape, Direction, Layout};
use layer_graph::{Conv2d, Layer, LayerKind};

use super::channels::Channels;
use super::kernel::Argument;
use super::kernel_builder::{Candidate, KernelBuilder, size};
use super::module::Family;
use super::operand::element_bytes;
use super::slices::{Products, Slices};
use super::{NAME, vendor};
use crate::{EngineError, ImageLayout, KernelChoice, Pass, Role, Storage};

const FAMILY: Family = Family::Convolution;

/// The GPU function that adds a bias to each channel.
const ADD_BIAS: (Family, &str) = (Family::Elementwise, "add_bias");

/// Adds the launches of a pass of a convolution, or of a transposed one, over `samples` samples.
/// Returns `None` for another layer.
pub(super) fn add_launches(
    builder: &mut KernelBuilder<'_>,
    layer: &Layer,
    pass: Pass,
    samples: usize,
) -> Result<Option<()>, EngineError> {
    let Some(input) = layer.input_shapes().first() else { return Ok(None) };
    let (conv, has_bias, is_transposed) = match layer.kind() {
        LayerKind::Conv2d(conv) => (conv.clone(), conv.bias, false),
        LayerKind::ConvTranspose2d(conv) => (conv.transposed(input.dims()[0]), conv.bias, true),
        _ => return Ok(None),
    };
    let layout = builder.device().image_layout;
    let Some(convolution) = Convolution::new(layer, &conv, is_transposed, samples, layout) else {
        return Ok(None);
    };
    let [x, weights, y] = [Role::Input(0), Role::Parameters, Role::Output].map(|role| builder.operand(role));
    let [dx, gradient, dy] = [Role::InputGradient(0), Role::ParameterGradient, Role::OutputGradient]
        .map(|role| builder.operand(role));
    let biases = has_bias.then(|| weights.offset(convolution.weight_elements));
    if !pass.is_backward() {
        if is_transposed {
            convolution.add_input_gradient(builder, [y, weights, x], biases)?;
        } else {
            convolution.add_forward(builder, [x, weights, y], biases)?;
        }
        return Ok(Some(()));
    }
    match (pass, is_transposed) {
        (Pass::Backward, false) => convolution.add_input_gradient(builder, [dx, weights, dy], None)?,
        (Pass::Backward, true) => convolution.add_forward(builder, [dy, weights, dx], None)?,
        _ => {}
    }
    let [images, of_windows] = if is_transposed { [dy, x] } else { [x, dy] };
    convolution.add_weight_gradient(builder, [images, gradient, of_windows])?;
    if has_bias {
        let of_biases = gradient.offset(convolution.weight_elements);
        convolution.add_bias_gradient(builder, [dy, of_biases])?;
    }
    Ok(Some(()))
}

/// Sizes of a convolution, in elements of all samples where not said otherwise. For a transposed
/// convolution, they are those of the convolution whose input gradient is its output: its input is
/// the layer's output, and its output the layer's input.
struct Convolution<'l> {
    layer: &'l Layer,
    is_transposed: bool,
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
    /// The first arguments of the GPU functions: the number of samples, and the geometry.
    arguments: [Argument; 2],
}

impl<'l> Convolution<'l> {
    /// Returns the sizes of a layer's convolution, or `None` if the layer's shapes are not images.
    fn new(
        layer: &'l Layer,
        conv: &Conv2d,
        is_transposed: bool,
        samples: usize,
        layout: ImageLayout,
    ) -> Option<Self> {
        let (input, output) = (layer.input_shapes().first()?.as_image()?, layer.output_shape().as_image()?);
        let [input, output] = if is_transposed { [output, input] } else { [input, output] };
        let ((in_channels, height, width), (out_channels, out_height, out_width)) = (input, output);
        let (channels, filters) = (in_channels / conv.groups, out_channels / conv.groups);
        let &Conv2d { kernel, stride, padding, dilation, groups, .. } = conv;
        let shape = ConvolutionShape {
            samples,
            in_channels,
            out_channels,
            groups,
            input: [height, width],
            kernel,
            stride,
            padding,
            dilation,
            layout: match layout {
                ImageLayout::ChannelsFirst => Layout::Nchw,
                ImageLayout::ChannelsLast => Layout::Nhwc,
            },
            direction: Direction::Forward,
        };
        // Fields of `Geometry` in `kernels/convolution.cuh`.
        let sizes = [groups, channels, filters, height, width, out_height, out_width];
        let pairs = [kernel, stride, padding, dilation];
        let geometry = Argument::fields(sizes.into_iter().chain(pairs.into_iter().flatten()));
        let windows = out_height * out_width;
        let weights_of_filter = channels * kernel[0] * kernel[1];
        Some(Self {
            layer,
            is_transposed,
            shape,
            channels,
            filters,
            windows,
            weights_of_filter,
            x_elements: samples * in_channels * height * width,
            weight_elements: out_channels * weights_of_filter,
            y_elements: samples * out_channels * windows,
            arguments: [size(samples), geometry],
        })
    }

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

    /// Returns the number of channels of the layer's output, and of pixels of one of them.
    fn layer_output(&self) -> [usize; 2] {
        let [height, width] = self.shape.input;
        if self.is_transposed {
            [self.shape.in_channels, height * width]
        } else {
            [self.shape.out_channels, self.windows]
        }
    }

    /// Returns the number of elements of the layer's output, `to`, and the arguments of `ADD_BIAS`
    /// for it.
    fn bias_arguments(&self, [biases, to]: [Argument; 2]) -> (usize, [Argument; 5]) {
        let [channels, pixels] = self.layer_output();
        let elements = self.shape.samples * channels * pixels;
        let adjacent = if self.shape.layout == Layout::Nhwc { 1 } else { pixels };
        (elements, [size(elements), size(adjacent), size(channels), biases, to])
    }

    /// Returns the library's candidates for the convolution of a shape, which add the biases, if
    /// there are any, to the layer's output.
    fn candidates(
        &self,
        builder: &mut KernelBuilder<'_>,
        shape: &ConvolutionShape,
        operands: [Argument; 3],
        biased: Option<[Argument; 2]>,
    ) -> Result<Vec<Candidate>, EngineError> {
        let mut candidates = vendor::convolutions(builder, shape, operands)?;
        if let Some(biased) = biased {
            let (elements, arguments) = self.bias_arguments(biased);
            let variant = builder.storage(biased[1]);
            for candidate in &mut candidates {
                candidate.launches.push(builder.launch_for_each(variant, ADD_BIAS, elements, arguments)?);
            }
        }
        Ok(candidates)
    }

    /// Adds the launches that compute the convolution `y` of `x`. Adds the biases if there are any.
    fn add_forward(
        &self,
        builder: &mut KernelBuilder<'_>,
        [x, weights, y]: [Argument; 3],
        biases: Option<Argument>,
    ) -> Result<(), EngineError> {
        let channels = self.shape.out_channels;
        let biased = biases.map(|biases| [biases, y]);
        let biases = biases.unwrap_or(Argument::NONE);
        let vendor =
            |builder: &mut KernelBuilder<'_>| self.candidates(builder, &self.shape, [x, weights, y], biased);
        builder.choose("convolution", &(&self.shape, biased.is_some()), vendor, |builder| {
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

    /// Adds the launches that compute the gradient `dx` of the convolution's input from that of its
    /// output, `dy`. Adds the biases if there are any.
    fn add_input_gradient(
        &self,
        builder: &mut KernelBuilder<'_>,
        [dx, weights, dy]: [Argument; 3],
        biases: Option<Argument>,
    ) -> Result<(), EngineError> {
        let shape = ConvolutionShape { direction: Direction::InputGradient, ..self.shape };
        let biased = biases.map(|biases| [biases, dx]);
        let biases = biases.unwrap_or(Argument::NONE);
        let vendor =
            |builder: &mut KernelBuilder<'_>| self.candidates(builder, &shape, [dx, weights, dy], biased);
        builder.choose("input gradient", &(&shape, biased.is_some()), vendor, |builder| {
            self.check_own(builder)?;
            // A phase has the pixels of one remainder by the stride along each axis.
            let [down, across] = shape.stride;
            let per_phase = |sides: [usize; 2]| sides[0].div_ceil(down) * sides[1].div_ceil(across);
            let products = Products {
                to: dx,
                elements: self.x_elements,
                factors: self.y_elements + self.weight_elements,
                sides: [self.channels, shape.samples * per_phase(shape.input)],
                count: shape.groups * down * across,
                terms: self.filters * per_phase(shape.kernel),
            };
            let slices = Slices::new(builder, &products)?;
            let arguments = [&self.arguments[..], &[size(slices.count), dy, weights, slices.parts]].concat();
            let kernels = ["convolution_input_gradient", "convolution_input_gradient_small"];
            slices.launch(builder, (FAMILY, kernels), arguments)?;
            slices.sum(builder, biases, [shape.input[0] * shape.input[1], shape.in_channels])?;
            if let Some(biased) = biased.filter(|_| slices.count == 1) {
                let (elements, arguments) = self.bias_arguments(biased);
                builder.for_each(ADD_BIAS, elements, arguments)?;
            }
            Ok(())
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

    /// Adds the launches that compute the gradient of the weights, from the convolution's input `x`
    /// and the gradient of its output, `dy`.
    fn add_weight_gradient(
        &self,
        builder: &mut KernelBuilder<'_>,
        [x, gradient, dy]: [Argument; 3],
    ) -> Result<(), EngineError> {
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
        })
    }

    /// Adds the launch that computes the gradient of the biases from that of the layer's output.
    fn add_bias_gradient(
        &self,
        builder: &mut KernelBuilder<'_>,
        [dy, gradient]: [Argument; 2],
    ) -> Result<(), EngineError> {
        let [channels, pixels] = self.layer_output();
        let is_last = self.shape.layout == Layout::Nhwc;
        let channels = Channels::new(is_last, self.shape.samples, channels, pixels);
        let kernels = ["convolution_bias_gradient", "convolution_bias_gradient_last"];
        channels.launch_sums(builder, (FAMILY, kernels), 1, &[dy], &[gradient])
    }
}
