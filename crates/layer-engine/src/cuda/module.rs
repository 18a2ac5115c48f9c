//! PTX of the GPU functions, by family and number format.

use crate::Storage;

/// A family of GPU functions: a file of CUDA C++ in `kernels` and its PTX, which the CUDA driver
/// compiles for the device. The PTX has a variant for operands in 16 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Family {
    /// Rectifier, Gaussian error linear units and softmax.
    Activation,
    /// Additive attention.
    AdditiveAttention,
    /// Scaled dot-product attention.
    Attention,
    /// Batch normalisation.
    BatchNorm,
    /// Convolutions.
    Convolution,
    /// Dropout with the random numbers of `RandomStream`.
    Dropout,
    /// Sums, scaling, copies and permutations of elements.
    Elementwise,
    /// Mixtures of experts.
    Experts,
    /// Layer normalisation.
    LayerNorm,
    /// Local response normalisation.
    ResponseNorm,
    /// Softmax and cross entropy.
    Loss,
    /// Linear layers, and the sum of the slices of a gradient.
    MatrixProduct,
    /// Squared norms, gradient descent, and the launch context of a queue.
    Optimizer,
    /// Maximum and average pooling.
    Pooling,
    /// Recurrences of LSTMs and GRUs.
    Recurrence,
    /// Embeddings, position embeddings and class tokens.
    Sequence,
}

impl Family {
    /// Returns the PTX of the family for outputs, their gradients and parameters of a number
    /// format.
    pub(super) fn ptx(self, storage: Storage) -> &'static str {
        macro_rules! ptx {
            ($name:literal) => {
                match storage {
                    Storage::Scalar => include_str!(concat!("kernels/", $name, ".ptx")),
                    Storage::Bf16 => include_str!(concat!("kernels/", $name, "-bf16.ptx")),
                }
            };
        }
        match self {
            Self::Activation => ptx!("activation"),
            Self::AdditiveAttention => ptx!("additive_attention"),
            Self::Attention => ptx!("attention"),
            Self::BatchNorm => ptx!("batch_norm"),
            Self::Convolution => ptx!("convolution"),
            Self::Dropout => ptx!("dropout"),
            Self::Elementwise => ptx!("elementwise"),
            Self::Experts => ptx!("experts"),
            Self::LayerNorm => ptx!("layer_norm"),
            Self::ResponseNorm => ptx!("local_response_norm"),
            Self::Loss => ptx!("loss"),
            Self::MatrixProduct => ptx!("matrix_product"),
            Self::Optimizer => ptx!("optimizer"),
            Self::Pooling => ptx!("pooling"),
            Self::Recurrence => ptx!("recurrence"),
            Self::Sequence => ptx!("sequence"),
        }
    }
}
