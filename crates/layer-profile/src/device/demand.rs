use layer_graph::{Layer, LayerKind};

use super::Direction;
use super::term::{Part, Product, Term, WindowPart};

/// What a pass of a layer, or several, asks of a device: amounts of terms.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Demand(Vec<(Term, f64)>);

impl Demand {
    /// What one pass of a layer asks for, for this many samples. Nothing for the input layer, or without samples.
    pub(super) fn of(layer: &Layer, pass: Direction, samples: usize) -> Self {
        let mut demand = Self::default();
        if samples > 0 {
            demand.add_pass(layer, pass, samples as f64);
        }
        demand
    }

    /// What the optimiser's step over this many bytes of parameters asks for.
    pub(super) fn of_update(parameter_bytes: u64) -> Self {
        match parameter_bytes {
            0 => Self::default(),
            bytes => Self(vec![(Term::Launch, 1.0), (Term::Update, megabytes(bytes))]),
        }
    }

    /// The amounts by term; a term can come up more than once.
    pub(super) fn amounts(&self) -> impl Iterator<Item = (Term, f64)> + '_ {
        self.0.iter().copied()
    }

    /// Asks for this as well.
    pub(super) fn extend(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
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
                    // Where windows do not overlap, a value of the input meets one position of the kernel.
                    let meets = |kernel: usize, stride: usize| if kernel <= stride { 1 } else { kernel };
                    let positions = meets(height, conv.stride[0]) * meets(width, conv.stride[1]);
                    conv.out_channels / conv.groups * positions
                } else {
                    layer.input_shapes()[0].dims()[0] / conv.groups * height * width
                };
                self.add_product(class, layer, pass, samples, depth);
            }
            LayerKind::Linear(linear) => {
                let depth = if backward { linear.out_features } else { layer.input_shapes()[0].innermost() };
                self.add_product(Product::Linear, layer, pass, samples, depth);
            }
            LayerKind::MultiHeadAttention(attention) => {
                let (positions, features) =
                    (layer.output_shape().dims()[0], layer.output_shape().innermost());
                self.add_product(
                    Product::Attention,
                    layer,
                    pass,
                    samples,
                    features / attention.heads + positions,
                );
                // The scores of all pairs: written by the product, read and written by the softmax, read by the product.
                let scores = (4 * attention.heads * positions * positions) as u64;
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
                    // Eight bytes a place, four an element.
                    self.add(Term::Window(pass, WindowPart::Places), 2.0 * output);
                }
            }
            // The same bytes under another shape.
            LayerKind::Flatten | LayerKind::Reshape(_) => self.add(Term::Launch, 1.0),
            // Several operations one after another, each of them bound by its arithmetic or by memory: what they take adds up.
            LayerKind::Opaque(opaque) => {
                let work = if backward { opaque.backward } else { opaque.forward };
                let passes_over_parameters = if backward { 2.0 } else { 1.0 };
                let parameters = passes_over_parameters * megabytes(layer.parameter_bytes());
                self.add(Term::Launch, f64::from(work.kernels));
                self.add(
                    Term::Product(Product::Linear, pass, Part::Arithmetic),
                    samples * work.flops as f64 / 1e9,
                );
                self.add(Term::Stream(pass), samples * megabytes(work.bytes) + parameters);
            }
            kind => {
                self.add(Term::Launch, 1.0);
                let parameters = megabytes(layer.parameter_bytes());
                let term = match kind {
                    LayerKind::BatchNorm(_) | LayerKind::LayerNorm(_) | LayerKind::LocalResponseNorm(_) => {
                        Term::Normalisation(pass)
                    }
                    LayerKind::Gelu
                    | LayerKind::GeluTanh
                    | LayerKind::Softmax
                    | LayerKind::SoftmaxCrossEntropy => Term::Function(pass),
                    _ => Term::Stream(pass),
                };
                self.add(term, streamed(kind, pass, input, output, parameters));
            }
        }
    }

    fn add_product(&mut self, class: Product, layer: &Layer, pass: Direction, samples: f64, depth: usize) {
        let (kernels, flops) = match (class, pass) {
            // The products of queries and keys, and of scores and values, around a softmax; backward two for each of them.
            (Product::Attention, Direction::Forward) => (3.0, layer.forward_flops()),
            (Product::Attention, Direction::Backward) => (5.0, layer.backward_flops()),
            // Backward one product for the gradient of the input and one for that of the parameters.
            (_, Direction::Forward) => (1.0, layer.forward_flops()),
            (_, Direction::Backward) => (2.0, layer.backward_flops()),
        };
        self.add(Term::Launch, kernels);
        let mut part = |part, amount| self.add(Term::Product(class, pass, part), amount);
        part(Part::Arithmetic, samples * flops as f64 / 1e9);
        part(Part::Depth, depth as f64 / 1e3);
        part(Part::Input, samples * megabytes(layer.input_bytes()));
        part(Part::Output, samples * megabytes(layer.output_bytes()));
        if layer.parameter_count() > 0 {
            part(Part::Parameters, megabytes(layer.parameter_bytes()));
        }
    }
}

/// Megabytes that a layer moves which handles each element in passing, from those of its tensors.
fn streamed(kind: &LayerKind, pass: Direction, input: f64, output: f64, parameters: f64) -> f64 {
    let backward = pass == Direction::Backward;
    match kind {
        // Read for the statistics, read again, written; backward input and gradient are read twice.
        LayerKind::BatchNorm(_) | LayerKind::LayerNorm(_) | LayerKind::LocalResponseNorm(_) => {
            if backward {
                5.0 * input
            } else {
                3.0 * input
            }
        }
        // Gradient and own tensor read, gradient written. A sum's gradient goes to several layers, where it is added to others'.
        LayerKind::Relu | LayerKind::Gelu | LayerKind::GeluTanh | LayerKind::Add if backward => 3.0 * output,
        // Read for the largest and the sum, read again, written.
        LayerKind::Softmax => 3.0 * output,
        // A mask of a byte an element.
        LayerKind::Dropout(_) => 2.25 * output,
        // The rows of the tokens; backward they are added to a gradient of the whole table, which was cleared.
        LayerKind::Embedding(_) if backward => 3.0 * output + parameters,
        LayerKind::Embedding(_) => 2.0 * output,
        LayerKind::PositionEmbedding(_) if backward => 2.0 * output + parameters,
        LayerKind::AdaptiveAvgPool2d(_) => input,
        // The probabilities are kept for the backward pass, which turns them into the gradient.
        LayerKind::SoftmaxCrossEntropy => {
            if backward {
                2.0 * input
            } else {
                3.0 * input
            }
        }
        _ => input + output,
    }
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
