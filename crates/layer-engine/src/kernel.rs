use layer_graph::{Layer, LayerKind};

/// The samples of a layer on one rank: a contiguous part of the global batch. It may be empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// Index of the first sample within the global batch. Randomness is keyed by global samples, so that it does
    /// not depend on which rank computes them.
    pub first: usize,
    /// Number of samples.
    pub samples: usize,
}

impl Shard {
    /// A whole batch on one rank.
    #[must_use]
    pub fn whole(samples: usize) -> Self {
        Self { first: 0, samples }
    }
}

/// The number format of a kernel's arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Precision {
    /// Single precision.
    F32,
    /// Double precision.
    F64,
    /// Products of 16-bit "brain" floating-point numbers, summed in single precision.
    Bf16,
}

impl Precision {
    /// Its short name: `f32`, `f64`, `bf16`.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::Bf16 => "bf16",
        }
    }
}

/// One step of a layer's work. A training iteration runs a layer's [`forward`](Pass::forward) passes and later its
/// [`backward`](Pass::backward) passes, in order.
///
/// Batch normalisation takes two steps each way, because between them the sums over the samples may be reduced over
/// ranks (synchronized batch normalisation).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pass {
    /// Sums over the shard's samples that [`Pass::Forward`] needs.
    ForwardMoments,
    /// The output, while training.
    Forward,
    /// What [`Pass::Forward`] wrote, once more, where its memory was used for something else since: the same to the last bit on an
    /// engine whose kernels are deterministic. Running statistics stay as they are, and what [`Pass::ForwardMoments`] left is
    /// still needed.
    Recompute,
    /// The output, for evaluation: no dropout, running statistics.
    Infer,
    /// Sums over the shard's samples that [`Pass::Backward`] needs, and the parameters' gradients.
    BackwardMoments,
    /// The gradients of the inputs and of the parameters, from the gradient of the output.
    Backward,
    /// The gradient of the parameters alone, where that of the inputs is not needed.
    BackwardParameters,
}

impl Pass {
    /// The passes of a layer's forward step while training. The input layer has none.
    #[must_use]
    pub fn forward(layer: &Layer) -> &'static [Pass] {
        match layer.kind() {
            LayerKind::Input => &[],
            LayerKind::BatchNorm(_) => &[Pass::ForwardMoments, Pass::Forward],
            _ => &[Pass::Forward],
        }
    }

    /// The passes of a layer's backward step; `input_gradient` says whether the gradient of its inputs is needed.
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

/// What a kernel is to compute. Its operands are those of its [`signature`](crate::Signature).
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
    /// `writes[0] = reads[0] + reads[1] + ...`, in this order: where the gradients of a fork's branches meet.
    Sum {
        /// Number of terms, at least one.
        terms: usize,
        /// Elements of each.
        elements: usize,
    },
    /// Multiplies `writes[0]`, in place: some samples by one factor, the next ones by another. Where a factor is zero, the result is, whatever
    /// was there before.
    Scale {
        /// Elements of one sample.
        sample_elements: usize,
        /// How many samples, and by what.
        factors: Vec<(usize, f64)>,
    },
    /// `writes[0]` = all of the `reads`, one after another: buffers that are to be sent as one.
    Pack {
        /// Elements of each of the reads.
        elements: Vec<usize>,
    },
    /// `writes` = the parts of `reads[0]`, one after another: the reverse of [`Pack`](Self::Pack).
    Unpack {
        /// Elements of each of the writes.
        elements: Vec<usize>,
    },
    /// `writes[0][0]` = the sum of the squares of all elements of all `reads`: a squared gradient norm.
    SquaredNorm {
        /// Elements of each of the reads.
        elements: Vec<usize>,
    },
    /// A step of stochastic gradient descent: see [`Sgd`].
    Sgd {
        /// Elements of the parameters.
        elements: usize,
        /// The rule.
        rule: Sgd,
    },
}

/// Stochastic gradient descent with momentum, as `torch.optim.SGD` defines it:
/// `velocity = momentum * velocity + (gradient + weight_decay * parameter)`, then
/// `parameter -= learning_rate * velocity`.
///
/// Its kernel reads the gradient and writes the parameters and the velocity, both in place. With `clip_norm` it also
/// reads the squared norm of all gradients together (one element) and scales the gradient by
/// `min(1, clip_norm / norm)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sgd {
    /// Weight of the previous velocity.
    pub momentum: f64,
    /// L2 penalty.
    pub weight_decay: f64,
    /// Largest norm of all gradients together.
    pub clip_norm: Option<f64>,
}

/// What changes from launch to launch of a kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LaunchContext {
    /// The run's seed.
    pub seed: u64,
    /// The training iteration, from 0.
    pub iteration: u64,
    /// The optimiser's learning rate.
    pub learning_rate: f64,
}
