use layer_graph::{Layer, LayerKind};

/// The samples of a layer on one rank: a contiguous part of the global batch, possibly empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// Index of the first sample in the global batch. Randomness is keyed by this index, so it does
    /// not depend on the rank that computes the sample.
    pub first: usize,
    /// Number of samples.
    pub samples: usize,
}

impl Shard {
    /// Returns the shard of a rank that has the whole batch.
    #[must_use]
    pub fn whole(samples: usize) -> Self {
        Self { first: 0, samples }
    }
}

/// Number format of a kernel's arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Precision {
    /// Single precision.
    F32,
    /// Double precision.
    F64,
    /// Products of `bfloat16` numbers, summed in single precision.
    Bf16,
}

impl Precision {
    /// Returns the short name: `f32`, `f64` or `bf16`.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::Bf16 => "bf16",
        }
    }
}

/// One step of the work of a layer. A training iteration runs the [`forward`](Pass::forward) passes
/// of a layer and later its [`backward`](Pass::backward) passes, in order.
///
/// Batch normalisation has two passes in each direction, so that the sums over samples can be
/// reduced across ranks between them (synchronised batch normalisation).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pass {
    /// Computes the sums over the shard's samples that [`Pass::Forward`] needs.
    ForwardMoments,
    /// Computes the output during training.
    Forward,
    /// Repeats [`Pass::Forward`] after its output memory was reused. The result is bitwise the same
    /// if the engine's kernels are deterministic. Running statistics do not change. The result of
    /// [`Pass::ForwardMoments`] must still be available.
    Recompute,
    /// Computes the output for evaluation: without dropout, with running statistics.
    Infer,
    /// Computes the sums over the shard's samples that [`Pass::Backward`] needs, and the gradients
    /// of the parameters.
    BackwardMoments,
    /// Computes the gradients of the inputs and of the parameters from the gradient of the output.
    Backward,
    /// Computes the gradients of the parameters only, for layers whose input gradient is not
    /// needed.
    BackwardParameters,
}

impl Pass {
    /// Returns the forward passes of a layer during training. The input layer has none.
    #[must_use]
    pub fn forward(layer: &Layer) -> &'static [Pass] {
        match layer.kind() {
            LayerKind::Input => &[],
            LayerKind::BatchNorm(_) => &[Pass::ForwardMoments, Pass::Forward],
            _ => &[Pass::Forward],
        }
    }

    /// Returns the backward passes of a layer. `input_gradient` is whether the gradient of its
    /// inputs is needed.
    #[must_use]
    pub fn backward(layer: &Layer, input_gradient: bool) -> &'static [Pass] {
        match (layer.kind(), input_gradient) {
            (LayerKind::Input, _) => &[],
            (LayerKind::BatchNorm(_), true) => &[Pass::BackwardMoments, Pass::Backward],
            (LayerKind::BatchNorm(_), false) => &[Pass::BackwardMoments],
            (_, true) => &[Pass::Backward],
            (_, false) if layer.parameter_count() > 0 => &[Pass::BackwardParameters],
            (_, false) => &[],
        }
    }
}

/// Description of a kernel. A layer's operands are those of its [`signature`](crate::Signature).
#[derive(Debug, Clone, PartialEq)]
pub enum KernelSpec<'a> {
    /// A pass of a layer over a shard.
    Layer {
        /// The layer.
        layer: &'a Layer,
        /// The pass.
        pass: Pass,
        /// The samples.
        shard: Shard,
    },
    /// `writes[0] = reads[0] + reads[1] + ...`, added in this order. Accumulates the gradients of a
    /// fork's branches.
    Sum {
        /// Number of terms, at least one.
        terms: usize,
        /// Number of elements of each term.
        elements: usize,
    },
    /// Scales consecutive ranges of samples of `writes[0]` in place, each by its own factor. A
    /// factor of zero gives zero even if the element is NaN or infinite.
    Scale {
        /// Number of elements of one sample.
        sample_elements: usize,
        /// Number of samples and factor of each range.
        factors: Vec<(usize, f64)>,
    },
    /// `writes[0]` = the concatenation of `reads`. Packs buffers that are sent in one message.
    Pack {
        /// Number of elements of each of the reads.
        elements: Vec<usize>,
    },
    /// `writes` = consecutive parts of `reads[0]`. The inverse of [`Pack`](Self::Pack).
    Unpack {
        /// Number of elements of each of the writes.
        elements: Vec<usize>,
    },
    /// `writes[0][0]` = the sum of the squares of all elements of all `reads`: a squared gradient
    /// norm.
    SquaredNorm {
        /// Number of elements of each of the reads.
        elements: Vec<usize>,
    },
    /// A step of stochastic gradient descent: see [`Sgd`].
    Sgd {
        /// Number of parameters.
        elements: usize,
        /// Hyperparameters of the optimiser.
        rule: Sgd,
    },
}

/// Hyperparameters of stochastic gradient descent with momentum, as defined by `torch.optim.SGD`:
/// `velocity = momentum * velocity + (gradient + weight_decay * parameter)`, then `parameter -=
/// learning_rate * velocity`.
///
/// The kernel reads the gradient and updates the parameters and the velocity in place. With
/// `clip_norm` it also reads the squared norm of all gradients together (one element) and scales
/// the gradient by `min(1, clip_norm / norm)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sgd {
    /// Factor of the previous velocity.
    pub momentum: f64,
    /// Factor of the L2 penalty.
    pub weight_decay: f64,
    /// Maximum norm of all gradients together.
    pub clip_norm: Option<f64>,
}

/// Values that change between launches of a kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LaunchContext {
    /// Seed of the run.
    pub seed: u64,
    /// Index of the training iteration, from 0.
    pub iteration: u64,
    /// Learning rate of the optimiser.
    pub learning_rate: f64,
}
