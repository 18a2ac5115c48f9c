//! Descriptions of kernels. The buffers that a kernel reads and writes are its *operands*,
//! `reads[i]` and `writes[i]`.

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
    /// Returns the shard that holds a whole batch of `samples` samples.
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
    /// Factors of matrix products and convolutions rounded to TF32 (10 bits of mantissa), summed in
    /// single precision, where a library does so; all else in single precision, as buffers are.
    Tf32,
    /// Operands in 16 bits (`bfloat16`) where [`Role::storage`](crate::Role::storage) says so,
    /// computed in single precision and rounded when they are stored. An engine may round the
    /// factors of products only, and hold single precision in all buffers.
    Bf16,
}

impl Precision {
    /// Returns the short name: `f32`, `f64`, `tf32` or `bf16`.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
        }
    }
}

/// Part of the forward or backward computation of a layer that is one kernel. A training iteration
/// runs the [`forward`](Pass::forward) passes of a layer and later its [`backward`](Pass::backward)
/// passes, in order.
///
/// Batch normalisation has two passes in each direction, so that the sums over samples can be
/// reduced across ranks between them (synchronised batch normalisation).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pass {
    /// Computes the sums over the shard's samples that [`Pass::Forward`] of a batch normalisation
    /// needs. Other layers do not have this pass.
    ForwardMoments,
    /// Computes the output during training.
    Forward,
    /// Repeats [`Pass::Forward`] after its output memory was reused. The result is bitwise the same
    /// if the engine's kernels are deterministic. Running statistics do not change. The result of
    /// [`Pass::ForwardMoments`] must still be available.
    Recompute,
    /// Computes the output during training as [`Pass::Forward`] does, and replaces the input by the
    /// values that [`Pass::BackwardInPlace`] needs, so that nothing is saved in other memory. Only
    /// softmax and cross entropy has this pass. Its input must have no other use afterwards.
    ForwardInPlace,
    /// Computes the output for evaluation: without dropout, and with the running statistics of
    /// batch normalisations.
    Infer,
    /// Computes the sums over the shard's samples that [`Pass::Backward`] of a batch normalisation
    /// needs, and the gradients of its parameters. Other layers do not have this pass.
    BackwardMoments,
    /// Computes the gradients of the inputs and of the parameters from the gradient of the output.
    /// For a batch normalisation, of the inputs only.
    Backward,
    /// Computes the gradient of the input as [`Pass::Backward`] does, in the memory of the input,
    /// after [`Pass::ForwardInPlace`].
    BackwardInPlace,
    /// Computes the gradients of the parameters only, for layers whose input gradient is not
    /// needed.
    BackwardParameters,
}

impl Pass {
    /// Returns whether the pass is a backward pass of a layer other than a batch normalisation, and
    /// not in place.
    #[cfg(feature = "cpu")] // All engines need it, and their features enable `cpu`.
    pub(crate) fn is_backward(self) -> bool {
        matches!(self, Self::Backward | Self::BackwardParameters)
    }

    /// Returns the forward passes of a layer during training, in the order in which they run. Empty
    /// for the input layer.
    #[must_use]
    pub fn forward(layer: &Layer) -> &'static [Pass] {
        match layer.kind() {
            LayerKind::Input => &[],
            LayerKind::BatchNorm(_) => &[Pass::ForwardMoments, Pass::Forward],
            _ => &[Pass::Forward],
        }
    }

    /// Returns the backward passes of a layer, in the order in which they run. `input_gradient` is
    /// whether the gradient of its inputs is needed. Empty if there is no gradient to compute.
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
        /// Layer whose shapes and hyperparameters the kernel has.
        layer: &'a Layer,
        /// Pass that the kernel computes.
        pass: Pass,
        /// Samples that the kernel computes.
        shard: Shard,
    },
    /// `writes[0] = reads[0] + reads[1] + ...`, added in this order. Adds the gradients of a layer
    /// output that several layers read, in 16 bits in [`Precision::Bf16`].
    Sum {
        /// Number of terms, at least one.
        terms: usize,
        /// Number of elements of each term.
        elements: usize,
    },
    /// `writes[0]` = the sum of the consecutive parts of `reads[0]`, added in their order: a tensor
    /// of which ranks computed addends. In [`Precision::Bf16`] the operands have 16 bits.
    SumParts {
        /// Number of parts, at least one.
        terms: usize,
        /// Number of elements of each part.
        elements: usize,
    },
    /// `writes[0] += reads[0]`, element by element. Adds a gradient of a micro-batch to the sum of
    /// the previous ones.
    Add {
        /// Number of elements of each operand.
        elements: usize,
    },
    /// Scales consecutive ranges of samples of `writes[0]` in place, each by its own factor. A
    /// factor of zero gives zero even if the element is NaN or infinite. In [`Precision::Bf16`] the
    /// operand has 16 bits.
    Scale {
        /// Number of elements of one sample.
        sample_elements: usize,
        /// Number of samples, and factor, of each range, in the order of the samples.
        factors: Vec<(usize, f64)>,
    },
    /// `writes[0][0]` = the sum of the squares of all elements of all `reads`: a squared gradient
    /// norm.
    SquaredNorm {
        /// Number of elements of each operand of `reads`.
        elements: Vec<usize>,
    },
    /// Update of the parameters and the velocities of one or more layers by stochastic gradient
    /// descent: see [`Sgd`].
    Sgd {
        /// Number of parameters of each layer.
        elements: Vec<usize>,
        /// Hyperparameters of the optimiser.
        rule: Sgd,
    },
}

/// Hyperparameters of stochastic gradient descent with momentum, as defined by `torch.optim.SGD`:
/// `velocity = momentum * velocity + (gradient + weight_decay * parameter)`, then `parameter -=
/// learning_rate * velocity`.
///
/// The kernel updates one or more layers. `reads` are their gradients. `writes`, which are updated
/// in place, are the parameters and then the velocity of the first layer, those of the second
/// layer, and so on. In [`Precision::Bf16`] they are the parameters in 16 bits, the master
/// parameters in single precision, and the velocity of each layer: the master parameters are
/// updated and rounded to the parameters. With `clip_norm` it also reads the squared norm of all
/// gradients together (the last of `reads`, one element) and scales the gradients by `min(1,
/// clip_norm / norm)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sgd {
    /// Factor of the previous velocity; 0 for gradient descent without momentum.
    pub momentum: f64,
    /// Factor of the parameter that is added to its gradient (L2 penalty).
    pub weight_decay: f64,
    /// Maximum Euclidean norm of the gradients of all layers together, or `None` if gradients are
    /// not clipped.
    pub clip_norm: Option<f64>,
}

/// Values that change between launches of a prepared kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LaunchContext {
    /// Seed of the random numbers of the training run.
    pub seed: u64,
    /// Index of the training iteration, from 0.
    pub iteration: u64,
    /// Learning rate of the optimiser.
    pub learning_rate: f64,
}
