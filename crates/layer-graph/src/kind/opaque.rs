//! Opaque layers: layers known only by their cost.

use serde::{Deserialize, Serialize};

use crate::{LayerTensor, Shape};

/// Cost of a layer whose computation is unknown: enough to time it, to move its inputs and outputs
/// and to count its memory.
///
/// Imported networks have such layers where no other kind fits. They are planned and simulated like
/// other layers; no engine runs them. Samples are independent: costs are for one sample, and the
/// layer may be split over ranks by sample.
///
/// ```
/// use layer_graph::{LayerGraph, Opaque, OpaquePass, Shape};
///
/// let mut network = LayerGraph::new("network", Shape::sequence(128, 768))?;
/// let silu = Opaque::new("silu", Shape::sequence(128, 768))
///     .forward(OpaquePass { flops: 5 * 128 * 768, bytes: 2 * 4 * 128 * 768, kernels: 1 })
///     .backward(OpaquePass { flops: 8 * 128 * 768, bytes: 3 * 4 * 128 * 768, kernels: 1 });
/// let silu = network.add("act", silu, [network.input()])?;
/// assert_eq!(network.layer(silu).kind().label(), "opaque");
/// # Ok::<(), layer_graph::GraphError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Opaque {
    /// Name of the operation in the framework it comes from, such as `silu` or `LSTM`. Not
    /// interpreted.
    pub op: String,
    /// Shape of the output of one sample.
    pub output: Shape,
    /// Learned parameters, in the order in which they are concatenated in the layer's parameter
    /// buffer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<LayerTensor>,
    /// Cost of the forward pass.
    pub forward: OpaquePass,
    /// Cost of the backward pass: gradients of the inputs and of the parameters.
    pub backward: OpaquePass,
    /// Bytes of one sample that the forward pass saves for the backward pass, in addition to the
    /// layer's inputs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub saved_bytes: u64,
    /// Number of labels (target classes) of one sample if the layer is a loss; its output is then
    /// one element, the loss of the sample. `None` for other layers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<usize>,
}

/// Cost of one pass of an opaque layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpaquePass {
    /// Floating-point operations of one sample. A multiply-add counts as two.
    pub flops: u64,
    /// Bytes of one sample that the pass reads and writes, without parameters. (The forward pass
    /// also reads the parameters; the backward pass reads them and writes their gradients.)
    pub bytes: u64,
    /// Number of kernel launches, independent of the number of samples.
    pub kernels: u32,
}

impl Opaque {
    /// Creates an operation with the given name and output shape of one sample. It has no
    /// parameters and no cost.
    #[must_use]
    pub fn new(op: impl Into<String>, output: Shape) -> Self {
        Self {
            op: op.into(),
            output,
            parameters: Vec::new(),
            forward: OpaquePass::default(),
            backward: OpaquePass::default(),
            saved_bytes: 0,
            labels: None,
        }
    }

    /// Sets the learned parameters, in the order in which they are concatenated in the layer's
    /// parameter buffer.
    #[must_use]
    pub fn parameters(mut self, parameters: impl Into<Vec<LayerTensor>>) -> Self {
        self.parameters = parameters.into();
        self
    }

    /// Sets the cost of the forward pass.
    #[must_use]
    pub fn forward(mut self, forward: OpaquePass) -> Self {
        self.forward = forward;
        self
    }

    /// Sets the cost of the backward pass.
    #[must_use]
    pub fn backward(mut self, backward: OpaquePass) -> Self {
        self.backward = backward;
        self
    }

    /// Sets the bytes of one sample that the forward pass saves for the backward pass.
    #[must_use]
    pub fn saved_bytes(mut self, saved_bytes: u64) -> Self {
        self.saved_bytes = saved_bytes;
        self
    }

    /// Makes the layer a loss with the given number of labels for each sample.
    #[must_use]
    pub fn loss(mut self, labels: usize) -> Self {
        self.labels = Some(labels);
        self
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}
