//! Demand of layer passes in a device model: the amounts of each term that they use. A *term* is a
//! resource in a given unit, such as kernel launches or megabytes moved by element-wise layers.

use layer_graph::{Layer, LayerKind, Scale};

use super::Direction;
use super::roofline::moved_by_experts;
use super::term::{Part, Product, Term, WindowPart};
use crate::Gpu;

/// Demand of one or more layer passes on a device: amounts of terms, in the units of the terms.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Demand(Vec<(Term, f64)>);

impl Demand {
    /// Returns the demand of one pass of a layer over the given number of samples. It is empty for
    /// the input layer and for 0 samples.
    pub(super) fn of(layer: &Layer, pass: Direction, samples: usize) -> Self {
        let mut demand = Self::default();
        if samples > 0 {
            demand.add_pass(layer, pass, samples as f64);
        }
        demand
    }

    /// Returns the demand of the optimiser step over the given number of bytes of parameters. It is
    /// empty for 0 bytes.
    pub(super) fn of_update(parameter_bytes: u64) -> Self {
        match parameter_bytes {
            0 => Self::default(),
            bytes => Self(vec![(Term::Launch, 1.0), (Term::Update, megabytes(bytes))]),
        }
    }

    /// Returns the terms with their amounts, in the unit of the term. A term may occur several
    /// times; its amounts add up.
    pub(super) fn amounts(&self) -> impl Iterator<Item = (Term, f64)> + '_ {
        self.0.iter().copied()
    }

    /// Adds the amounts of another demand.
    pub(super) fn extend(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
    }

    /// Multiplies all amounts.
    pub(super) fn times(self, factor: f64) -> Self {
        self.map(|_| factor)
    }

    /// Multiplies the megabytes of parameters that are updated.
    pub(super) fn with_update(self, factor: f64) -> Self {
        self.map(|term| if term == Term::Update { factor } else { 1.0 })
    }

    /// Converts a demand on the GPU `from` to the amounts that take the same part of the peak rates
    /// of the GPU `to`.
    pub(super) fn scaled(&self, from: &Gpu, to: &Gpu) -> Self {
        let factor = |term: Term| {
            let (unit, _) = term.default_cost();
            unit.peak_us(from) / unit.peak_us(to)
        };
        self.clone().map(factor)
    }

    fn map(mut self, factor: impl Fn(Term) -> f64) -> Self {
        self.0.iter_mut().for_each(|(term, amount)| *amount *= factor(*term));
        self
    }

    fn add(&mut self, term: Term, amount: f64) {
        self.0.push((term, amount));
    }

    fn add_pass(&mut self, layer: &Layer, pass: Direction, samples: f64) {
        let input = samples * megabytes(layer.input_bytes());
        let output = samples * megabytes(layer.output_bytes());
        let backward = pass == Direction::Backward;
        match layer.kind() {
            LayerKind::Input => {}
            LayerKind::Conv2d(conv) => {
                let class = if conv.kernel == [1, 1] { Product::Pointwise } else { Product::Spatial };
                let [height, width] = conv.kernel;
                let depth = if backward {
                    let positions = meets(height, conv.stride[0]) * meets(width, conv.stride[1]);
                    conv.out_channels / conv.groups * positions
                } else {
                    layer.input_shapes()[0].dims()[0] / conv.groups * height * width
                };
                self.add_product(class, layer, pass, samples, depth, grouping(layer, conv.groups));
            }
            // A pass forward is the input gradient of a convolution, and the other way round.
            LayerKind::ConvTranspose2d(conv) => {
                let [height, width] = conv.kernel;
                let depth = if backward {
                    conv.out_channels / conv.groups * height * width
                } else {
                    let positions = meets(height, conv.stride[0]) * meets(width, conv.stride[1]);
                    layer.input_shapes()[0].dims()[0] / conv.groups * positions
                };
                self.add_product(Product::Spatial, layer, pass, samples, depth, grouping(layer, conv.groups));
            }
            LayerKind::Linear(linear) => {
                let depth = if backward { linear.out_features } else { layer.input_shapes()[0].innermost() };
                self.add_product(Product::Linear, layer, pass, samples, depth, 1.0);
            }
            LayerKind::MultiHeadAttention(attention) => {
                let Some(sizes) = attention.sizes(layer.input_shapes()) else { return };
                let keys = attention.max_keys(&sizes);
                let depth = sizes.width + keys;
                self.add_product(Product::Attention, layer, pass, samples, depth, 1.0);
                // The scores of all pairs are written by the product, read and written by the
                // softmax, and read by the second product.
                let scores = (4 * sizes.heads * sizes.positions * keys) as u64;
                self.add(
                    Term::Stream(pass),
                    samples * 4.0 * megabytes(scores) * if backward { 2.0 } else { 1.0 },
                );
            }
            LayerKind::MaxPool2d(pool) | LayerKind::AvgPool2d(pool) => {
                self.add(Term::Launch, 1.0);
                self.add(Term::Window(pass, WindowPart::Moved), input + output);
                let covered = output * (pool.kernel[0] * pool.kernel[1]) as f64;
                self.add(Term::Window(pass, WindowPart::Covered), covered);
                if matches!(layer.kind(), LayerKind::MaxPool2d(_)) {
                    // The index of a maximum has eight bytes, an element four.
                    self.add(Term::Window(pass, WindowPart::Indices), 2.0 * output);
                }
            }
            // Same bytes in another shape.
            LayerKind::Flatten | LayerKind::Reshape(_) => self.add(Term::Launch, 1.0),
            // For each position a product and the gates. Backward, also the gradient of the
            // parameters for all positions at once. The parameters are assumed to stay on the chip,
            // as in cuDNN.
            LayerKind::Recurrence(rule) => {
                let kernels = 2 * layer.output_shape().dims()[0] + usize::from(backward);
                let flops = if backward { layer.backward_flops() } else { layer.forward_flops() };
                let saved = rule.cell.saved() as f64 * output;
                let moved = input + saved + 2.0 * output;
                self.add_sequence(layer, pass, kernels as f64, samples * flops as f64, moved);
            }
            // All experts' parameters are read.
            LayerKind::MixtureOfExperts(rule) => {
                let (kernels, flops) =
                    if backward { (6.0, layer.backward_flops()) } else { (4.0, layer.forward_flops()) };
                let between = samples * moved_by_experts(layer, rule) / 1e6;
                let moved = (input + output + between) * if backward { 2.0 } else { 1.0 };
                self.add_sequence(layer, pass, kernels, samples * flops as f64, moved);
            }
            // The scores with their softmax, and the mean of the values. Backward, the gradients of
            // the weights, of the scores with those of queries and keys, of the values and of the
            // parameters.
            LayerKind::AdditiveAttention(attention) => {
                let Some(sizes) = attention.sizes(layer.input_shapes()) else { return };
                let kernels = if backward { 4.0 } else { 2.0 };
                let flops = if backward { layer.backward_flops() } else { layer.forward_flops() };
                // Inputs and output, or their gradients, too; the weights are written and read.
                let weights = samples * megabytes(4 * sizes.weights() as u64);
                let moved = (input + output + 2.0 * weights) * if backward { 2.0 } else { 1.0 };
                self.add_sequence(layer, pass, kernels, samples * flops as f64, moved);
            }
            // An opaque layer runs several operations in sequence, each bound by arithmetic or by
            // memory; their times add up.
            LayerKind::Opaque(opaque) => {
                let work = if backward { opaque.backward } else { opaque.forward };
                let moved = samples * megabytes(work.bytes);
                self.add_sequence(layer, pass, f64::from(work.kernels), samples * work.flops as f64, moved);
            }
            kind => {
                self.add(Term::Launch, 1.0);
                let parameters = megabytes(layer.parameter_bytes());
                let term = match kind {
                    LayerKind::BatchNorm(_)
                    | LayerKind::LayerNorm(_)
                    | LayerKind::RmsNorm(_)
                    | LayerKind::GroupNorm(_)
                    | LayerKind::LocalResponseNorm(_) => Term::Normalisation(pass),
                    LayerKind::Softmax
                    | LayerKind::SoftmaxCrossEntropy(_)
                    | LayerKind::ElementwiseLoss(_) => Term::Function(pass),
                    kind if kind.is_smooth_activation() => Term::Function(pass),
                    _ => Term::Stream(pass),
                };
                self.add(term, streamed(kind, pass, input, output, parameters));
            }
        }
    }

    /// Adds several kernels in sequence, with their operations and the megabytes that they move
    /// besides the parameters.
    fn add_sequence(&mut self, layer: &Layer, pass: Direction, kernels: f64, flops: f64, moved: f64) {
        let passes_over_parameters = if pass == Direction::Backward { 2.0 } else { 1.0 };
        let parameters = passes_over_parameters * megabytes(layer.parameter_bytes());
        self.add(Term::Launch, kernels);
        self.add(Term::Product(Product::Linear, pass, Part::Arithmetic), flops / 1e9);
        self.add(Term::Stream(pass), moved + parameters);
    }

    /// Adds a matrix product with the given number of products for each sum (`depth`). Its
    /// operations are multiplied by `padding`.
    fn add_product(
        &mut self,
        class: Product,
        layer: &Layer,
        pass: Direction,
        samples: f64,
        depth: usize,
        padding: f64,
    ) {
        let (kernels, flops) = match (class, pass) {
            // Products of queries and keys and of scores and values, with a softmax between them.
            // Backward there are two for each product.
            (Product::Attention, Direction::Forward) => (3.0, layer.forward_flops()),
            (Product::Attention, Direction::Backward) => (5.0, layer.backward_flops()),
            // Backward, one product for the gradient of the input and one for that of the
            // parameters.
            (_, Direction::Forward) => (1.0, layer.forward_flops()),
            (_, Direction::Backward) => (2.0, layer.backward_flops()),
        };
        self.add(Term::Launch, kernels);
        let mut part = |part, amount| self.add(Term::Product(class, pass, part), amount);
        part(Part::Arithmetic, padding * samples * flops as f64 / 1e9);
        part(Part::Depth, depth as f64 / 1e3);
        part(Part::Input, samples * megabytes(layer.input_bytes()));
        part(Part::Output, samples * megabytes(layer.output_bytes()));
        if layer.parameter_count() > 0 {
            part(Part::Parameters, megabytes(layer.parameter_bytes()));
        }
    }
}

/// Returns the number of positions of a kernel along an axis that cover an input element: one if
/// windows do not overlap.
fn meets(kernel: usize, stride: usize) -> usize {
    if kernel <= stride { 1 } else { kernel }
}

/// Minimum number of channels for which kernels compute a group of a convolution.
const GROUP_CHANNELS: usize = 32;

/// Returns the operations of a convolution as a multiple of the necessary ones. Groups of few
/// channels are padded to [`GROUP_CHANNELS`], because they do not fill the tile of a matrix
/// product.
fn grouping(layer: &Layer, groups: usize) -> f64 {
    if groups == 1 {
        return 1.0;
    }
    let channels = layer.input_shapes()[0].dims()[0] / groups;
    GROUP_CHANNELS.max(channels) as f64 / channels.max(1) as f64
}

/// Returns the megabytes moved by a layer that visits each element once, from those of its tensors.
fn streamed(kind: &LayerKind, pass: Direction, input: f64, output: f64, parameters: f64) -> f64 {
    let backward = pass == Direction::Backward;
    match kind {
        // Read for the statistics, read again, written. Backward, input and gradient are read
        // twice.
        LayerKind::BatchNorm(_)
        | LayerKind::LayerNorm(_)
        | LayerKind::RmsNorm(_)
        | LayerKind::GroupNorm(_)
        | LayerKind::LocalResponseNorm(_) => {
            if backward {
                5.0 * input
            } else {
                3.0 * input
            }
        }
        // The gradient and the layer's own tensor are read, a gradient is written. The gradient of
        // a sum goes to several layers, where it is added to others.
        LayerKind::Add | LayerKind::Scale(Scale::Features | Scale::Channels) if backward => 3.0 * output,
        // The gradient and both factors are read, two gradients are written.
        LayerKind::Multiply if backward => 2.0 * input + output,
        kind if kind.is_activation() && backward => 3.0 * output,
        // Read for the maximum and the sum, read again, written.
        LayerKind::Softmax => 3.0 * output,
        // Includes a mask of one byte for each element.
        LayerKind::Dropout(rule) if !rule.of_samples => 2.25 * output,
        // Rows of the tokens. Backward they are added to the gradient of the whole table, which is
        // cleared first.
        LayerKind::Embedding(_) if backward => 3.0 * output + parameters,
        LayerKind::Embedding(_) => 2.0 * output,
        LayerKind::PositionEmbedding(_) if backward => 2.0 * output + parameters,
        LayerKind::AdaptiveAvgPool2d(_) if output <= input => input,
        // The probabilities are saved for the backward pass, which converts them to the gradient.
        LayerKind::SoftmaxCrossEntropy(_) => {
            if backward {
                2.0 * input
            } else {
                3.0 * input
            }
        }
        // Inputs and labels, and backward the gradients.
        LayerKind::ElementwiseLoss(_) if backward => 3.0 * input,
        LayerKind::ElementwiseLoss(_) => 2.0 * input,
        _ => input + output,
    }
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
