use layer_graph::{Layer, LayerKind};

use crate::random::{Purpose, RandomStream};

/// Initial values of a layer's flat parameter buffer, as PyTorch initialises by default: convolutions and linear
/// layers uniformly within `1 / sqrt(fan in)`, batch normalisation to the identity.
///
/// The numbers depend on the seed and the parameter's name alone.
#[must_use]
pub fn initial_parameters(layer: &Layer, seed: u64) -> Vec<f64> {
    let parameters = layer.parameters();
    let mut values = Vec::with_capacity(layer.parameter_count());
    if let LayerKind::BatchNorm(_) = layer.kind() {
        for parameter in &parameters {
            let value = if parameter.name == "weight" { 1.0 } else { 0.0 };
            values.extend(std::iter::repeat_n(value, parameter.elements()));
        }
        return values;
    }
    let fan_in: usize = parameters.first().map_or(1, |weight| weight.dims[1..].iter().product());
    let bound = 1.0 / (fan_in as f64).sqrt();
    for parameter in &parameters {
        let name = format!("{}.{}", layer.name(), parameter.name);
        let mut stream = RandomStream::new(seed, Purpose::Initialisation, 0, &name, 0);
        values.extend((0..parameter.elements()).map(|_| bound * (2.0 * stream.uniform() - 1.0)));
    }
    values
}

/// Initial values of a layer's flat statistics buffer: mean 0 and variance 1.
#[must_use]
pub fn initial_statistics(layer: &Layer) -> Vec<f64> {
    let tensors = layer.statistics();
    let values = tensors.iter().map(|tensor| {
        let value = if tensor.name == "running_var" { 1.0 } else { 0.0 };
        std::iter::repeat_n(value, tensor.elements())
    });
    values.flatten().collect()
}
