//! Limits of a network's size, so that sums of elements, bytes and operations do not overflow.

use crate::{GraphError, Layer, LayerKind, LayerTensor};

/// Maximum number of elements of one sample of all layers' outputs, and of what they save for the
/// backward pass: 1 TB in single precision.
const MAX_ACTIVATIONS: u64 = 1 << 38;
/// Maximum number of parameters of all layers: 16 TB in single precision.
const MAX_PARAMETERS: u64 = 1 << 42;
/// Maximum number of floating-point operations, and of bytes, of one pass of a layer over one
/// sample.
const MAX_COST: u64 = 1 << 56;

/// Sizes of the layers of a network together.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NetworkSize {
    activations: u64,
    parameters: u64,
}

impl NetworkSize {
    /// Returns the sizes with those of another layer. Parameters that it shares count again.
    ///
    /// # Errors
    /// [`GraphError::Shape`] if the network or the layer is implausibly large.
    pub(crate) fn with(self, layer: &Layer) -> Result<Self, GraphError> {
        let too_large = |what: &str, max: u64| {
            let problem = format!("with this layer, the network has more than {max} {what}: check its sizes");
            GraphError::Shape { layer: layer.name().into(), problem }
        };
        let (passes, saved) = match layer.kind() {
            LayerKind::Opaque(opaque) => ([opaque.forward, opaque.backward], opaque.saved_bytes / 4),
            LayerKind::MixtureOfExperts(rule) => {
                (Default::default(), rule.saved(layer.input_shapes()) as u64)
            }
            LayerKind::AdditiveAttention(rule) => {
                (Default::default(), rule.saved(layer.input_shapes()) as u64)
            }
            _ => Default::default(),
        };
        let outputs = layer.output_shape().elements() as u64;
        let activations = self.activations.saturating_add(outputs).saturating_add(saved);
        if activations > MAX_ACTIVATIONS {
            return Err(too_large("elements of activations a sample", MAX_ACTIVATIONS));
        }
        let own = layer.parameters().iter().map(LayerTensor::elements).fold(0, usize::saturating_add);
        let parameters = self.parameters.saturating_add(own as u64);
        if parameters > MAX_PARAMETERS {
            return Err(too_large("parameters", MAX_PARAMETERS));
        }
        let flops = [layer.forward_flops(), layer.backward_flops()];
        let bytes = passes.map(|pass| pass.bytes);
        if let Some(cost) = flops.into_iter().chain(bytes).find(|&cost| cost > MAX_COST) {
            let problem = format!(
                "a pass over a sample has {cost} operations or bytes, more than {MAX_COST}: check its sizes"
            );
            return Err(GraphError::Shape { layer: layer.name().into(), problem });
        }
        Ok(Self { activations, parameters })
    }
}
