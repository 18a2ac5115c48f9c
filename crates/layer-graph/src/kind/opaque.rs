//! A layer of which only the cost is known.

use serde::{Deserialize, Serialize};

use crate::{LayerTensor, Shape};

/// What is known of a layer whose computation is not: enough to time it, to move what it reads and writes, and to count its memory.
/// Networks that come from elsewhere have such layers where no other kind fits. They can be planned and simulated like any other; no engine
/// runs them.
///
/// A layer mixes no samples: what it costs is by sample, and it may be split over ranks by sample.
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
    /// What it computes, in the words of the framework that it comes from, such as `silu` or `LSTM`. Not interpreted.
    pub op: String,
    /// Shape of the output of one sample.
    pub output: Shape,
    /// The learned parameters, in the order in which they lie in the layer's flat parameter buffer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<LayerTensor>,
    /// What the forward pass takes.
    pub forward: OpaquePass,
    /// What the backward pass takes: the gradients of the inputs and of the parameters.
    pub backward: OpaquePass,
    /// Bytes of one sample that the forward pass keeps for the backward pass, besides the inputs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub saved_bytes: u64,
    /// Labels of one sample, where the layer is a loss: its output is then the loss of each sample, one element. `None` for layers that are
    /// no loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<usize>,
}

/// What one pass of an opaque layer takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpaquePass {
    /// Floating-point operations of one sample; a multiply-add counts as two.
    pub flops: u64,
    /// Bytes of one sample that all of its operations read and write, besides the parameters, which a forward pass reads and for which a
    /// backward pass also writes gradients.
    pub bytes: u64,
    /// Kernels that are launched, whatever the number of samples.
    pub kernels: u32,
}

impl Opaque {
    /// An operation with this output, without parameters, that takes nothing.
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

    /// Sets the learned parameters.
    #[must_use]
    pub fn parameters(mut self, parameters: impl Into<Vec<LayerTensor>>) -> Self {
        self.parameters = parameters.into();
        self
    }

    /// Sets what the forward pass takes.
    #[must_use]
    pub fn forward(mut self, forward: OpaquePass) -> Self {
        self.forward = forward;
        self
    }

    /// Sets what the backward pass takes.
    #[must_use]
    pub fn backward(mut self, backward: OpaquePass) -> Self {
        self.backward = backward;
        self
    }

    /// Sets what is kept for the backward pass, in bytes of one sample.
    #[must_use]
    pub fn saved_bytes(mut self, saved_bytes: u64) -> Self {
        self.saved_bytes = saved_bytes;
        self
    }

    /// Makes it a loss against so many labels a sample.
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
