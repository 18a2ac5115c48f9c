//! Initial values of the parameters and running statistics of a layer.

use layer_graph::{ConvTranspose2d, Layer, LayerKind};

use crate::random::{Purpose, RandomStream};

/// Returns the initial values of a layer's flat parameter buffer.
///
/// Weights are uniform within `sqrt(3 / fan in)`, so that outputs have the variance of inputs
/// (LeCun et al., "Efficient BackProp", 1998). Biases and class tokens are 0. Normalisations and
/// learned factors start with factors of 1. The fan-in of an embedding is its number of features.
/// Weights of recurrences are uniform within `sqrt(1 / fan in)`, as in PyTorch: a product is added
/// at each position. The vector of an additive attention has one output; if it is normalised, its
/// factor is `sqrt(1 / units)`, as in the code of GNMT.
///
/// The values depend only on the seed and the name of each parameter.
#[must_use]
pub fn initial_parameters(layer: &Layer, seed: u64) -> Vec<f64> {
    let parameters = layer.parameters();
    let of_norm = match layer.kind() {
        LayerKind::BatchNorm(_) | LayerKind::LayerNorm(_) | LayerKind::GroupNorm(_) | LayerKind::Scale(_) => {
            Some(1.0)
        }
        LayerKind::RmsNorm(norm) => Some(if norm.unit_offset { 0.0 } else { 1.0 }),
        _ => None,
    };
    let is_additive = matches!(layer.kind(), LayerKind::AdditiveAttention(_));
    let mut values = Vec::with_capacity(layer.parameter_count());
    for parameter in &parameters {
        let elements = parameter.elements();
        match (&*parameter.name, of_norm) {
            ("weight", Some(weight)) => values.extend(std::iter::repeat_n(weight, elements)),
            ("normalize_scalar", None) if is_additive => {
                values.push((layer.input_shapes()[0].innermost() as f64).sqrt().recip());
            }
            ("weight" | "linear_att" | "gate_up_proj" | "up_proj" | "down_proj", None)
                if *layer.kind() != LayerKind::ClassToken =>
            {
                let fan_in = match layer.kind() {
                    LayerKind::AdditiveAttention(_) => parameter.dims[0],
                    LayerKind::PositionEmbedding(_) | LayerKind::MixtureOfExperts(_) => {
                        parameter.dims[2..].iter().product()
                    }
                    LayerKind::ConvTranspose2d(conv) => transposed_fan_in(conv, parameter.dims[0]),
                    _ => parameter.dims[1..].iter().product(),
                };
                let squared_bound = if matches!(layer.kind(), LayerKind::Recurrence(_)) { 1.0 } else { 3.0 };
                let bound = (squared_bound / fan_in as f64).sqrt();
                let name = layer.tensor_name(parameter);
                let mut stream = RandomStream::new(seed, Purpose::Initialisation, 0, &name, 0);
                values.extend((0..elements).map(|_| bound * (2.0 * stream.uniform() - 1.0)));
            }
            _ => values.extend(std::iter::repeat_n(0.0, elements)),
        }
    }
    values
}

/// Returns the mean number of weights that an element of the output of a transposed convolution
/// sums, at least 1.
fn transposed_fan_in(conv: &ConvTranspose2d, in_channels: usize) -> usize {
    let taps = conv.kernel[0] * conv.kernel[1];
    (in_channels / conv.groups * taps / (conv.stride[0] * conv.stride[1])).max(1)
}

/// Returns the initial values of a layer's flat statistics buffer: mean 0 and variance 1. Empty for
/// layers without running statistics.
#[must_use]
pub fn initial_statistics(layer: &Layer) -> Vec<f64> {
    let tensors = layer.statistics();
    let values = tensors.iter().map(|tensor| {
        let value = if tensor.name == "running_var" { 1.0 } else { 0.0 };
        std::iter::repeat_n(value, tensor.elements())
    });
    values.flatten().collect()
}
