//! Work of a layer's passes, as the roofline formula uses it.

use layer_graph::{Layer, LayerKind, MixtureOfExperts, Opaque, Scale};

use crate::device::Direction;

/// Class of layers that use a device in the same way and share the constants of the formula.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Convolutions with a kernel larger than 1x1.
    Spatial,
    /// Matrix products: 1x1 convolutions, linear layers, attention.
    Product,
    /// Pooling layers, whose windows slide over an image.
    Window,
    /// Layers that visit each element once.
    Elementwise,
}

/// Work of one pass of a layer over all samples.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    /// Class of the layer, by which the constants of the formula are chosen.
    pub(super) class: Class,
    /// Number of kernel launches.
    pub(super) kernels: u32,
    /// Number of floating-point operations, over all samples.
    pub(super) flops: f64,
    /// Minimum number of bytes to move, over all samples: activations, gradients and parameters,
    /// each as often as it must be read or written.
    pub(super) bytes: f64,
    /// Number of elements of the layer's output, over all samples.
    pub(super) outputs: f64,
}

impl Work {
    /// Returns the work of one pass of a layer for the given number of samples, or `None` for the
    /// input layer.
    pub(super) fn of(layer: &Layer, pass: Direction, samples: usize) -> Option<Self> {
        let class = match layer.kind() {
            LayerKind::Input => return None,
            LayerKind::Opaque(opaque) => return Some(Self::of_opaque(layer, opaque, pass, samples as f64)),
            LayerKind::Conv2d(conv) if conv.kernel != [1, 1] => Class::Spatial,
            LayerKind::ConvTranspose2d(_) => Class::Spatial,
            LayerKind::Conv2d(_)
            | LayerKind::Linear(_)
            | LayerKind::MultiHeadAttention(_)
            | LayerKind::AdditiveAttention(_)
            | LayerKind::Recurrence(_)
            | LayerKind::MixtureOfExperts(_) => Class::Product,
            LayerKind::MaxPool2d(_) | LayerKind::AvgPool2d(_) | LayerKind::AdaptiveAvgPool2d(_) => {
                Class::Window
            }
            _ => Class::Elementwise,
        };
        let inputs = layer.input_bytes() as f64;
        let outputs = layer.output_bytes() as f64;
        let parameters = match layer.kind() {
            // Only the rows of the tokens are read, and they are counted as the output.
            LayerKind::Embedding(_) => 0.0,
            _ => layer.parameter_bytes() as f64,
        };
        // Bytes that the forward pass saves for the backward pass, and what it moves between its
        // own kernels.
        let kept = match layer.kind() {
            // The index of each maximum has 8 bytes.
            LayerKind::MaxPool2d(_) => 2.0 * outputs,
            // One byte for each element.
            LayerKind::Dropout(rule) if !rule.of_samples => outputs / 4.0,
            LayerKind::SoftmaxCrossEntropy(_) => inputs,
            LayerKind::Recurrence(rule) => rule.cell.saved() as f64 * outputs,
            LayerKind::MixtureOfExperts(rule) => moved_by_experts(layer, rule),
            LayerKind::AdditiveAttention(attention) => 4.0 * attention.saved(layer.input_shapes()) as f64,
            _ => 0.0,
        };
        // Bytes of the forward pass's inputs or outputs that the backward pass reads again.
        let reread = match layer.kind() {
            LayerKind::Conv2d(_)
            | LayerKind::ConvTranspose2d(_)
            | LayerKind::Linear(_)
            | LayerKind::MultiHeadAttention(_)
            | LayerKind::AdditiveAttention(_)
            | LayerKind::BatchNorm(_)
            | LayerKind::LayerNorm(_)
            | LayerKind::RmsNorm(_)
            | LayerKind::GroupNorm(_)
            | LayerKind::LocalResponseNorm(_)
            | LayerKind::Scale(Scale::Features | Scale::Channels)
            | LayerKind::MixtureOfExperts(_)
            | LayerKind::Multiply => inputs,
            LayerKind::Softmax | LayerKind::Recurrence(_) => outputs,
            // Their input or their output, which has the same size.
            kind if kind.is_activation() => outputs,
            LayerKind::ElementwiseLoss(_) => inputs,
            _ => 0.0,
        };
        // A product and the gates of each position of a recurrence.
        let steps = match layer.kind() {
            LayerKind::Recurrence(_) => {
                u32::try_from(layer.output_shape().dims()[0]).unwrap_or(u32::MAX).saturating_mul(2)
            }
            // The choice of experts, their two products, and the sums of their outputs.
            LayerKind::MixtureOfExperts(_) => 4,
            _ => 1,
        };
        let (kernels, flops, passes_over_parameters, reread) = match pass {
            Direction::Forward => (steps, layer.forward_flops(), 1.0, 0.0),
            // One kernel for the gradient of the input and one for that of the parameters.
            Direction::Backward => {
                let products = matches!(class, Class::Spatial | Class::Product);
                (if products { steps.saturating_add(1) } else { 1 }, layer.backward_flops(), 2.0, reread)
            }
        };
        let samples = samples as f64;
        Some(Self {
            class,
            kernels,
            flops: samples * flops as f64,
            bytes: samples * (inputs + outputs + kept + reread) + passes_over_parameters * parameters,
            outputs: samples * layer.output_shape().elements() as f64,
        })
    }

    /// Returns the declared work of an opaque layer, classed as element-wise.
    fn of_opaque(layer: &Layer, opaque: &Opaque, pass: Direction, samples: f64) -> Self {
        let (work, passes_over_parameters) = match pass {
            Direction::Forward => (opaque.forward, 1.0),
            Direction::Backward => (opaque.backward, 2.0),
        };
        Self {
            class: Class::Elementwise,
            kernels: work.kernels,
            flops: samples * work.flops as f64,
            bytes: samples * work.bytes as f64 + passes_over_parameters * layer.parameter_bytes() as f64,
            outputs: samples * layer.output_shape().elements() as f64,
        }
    }
}

/// Returns the bytes of the values between the products of a sample's chosen experts: the rows of
/// their first product, which are saved, the factors of the second one, and its results. They are
/// written and read.
pub(in crate::device) fn moved_by_experts(layer: &Layer, rule: &MixtureOfExperts) -> f64 {
    let Some(sizes) = rule.sizes(layer.input_shapes()) else { return 0.0 };
    let of_pair = rule.inner_rows() + rule.width + sizes.features;
    2.0 * 4.0 * sizes.pairs as f64 * of_pair as f64
}
