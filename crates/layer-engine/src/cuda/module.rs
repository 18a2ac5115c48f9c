//! PTX of the GPU functions, by family.

/// A family of GPU functions: a file of CUDA C++ in `kernels` and its PTX, which the CUDA driver
/// compiles for the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Family {
    /// Rectifier, Gaussian error linear units and softmax.
    Activation,
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
    /// Embeddings, position embeddings and class tokens.
    Sequence,
}

impl Family {
    /// Returns the PTX of the family.
    pub(super) fn ptx(self) -> &'static str {
        macro_rules! ptx {
            ($name:literal) => {
                include_str!(concat!("kernels/", $name, ".ptx"))
            };
        }
        match self {
            Self::Activation => ptx!("activation"),
            Self::Attention => ptx!("attention"),
            Self::BatchNorm => ptx!("batch_norm"),
            Self::Convolution => ptx!("convolution"),
            Self::Dropout => ptx!("dropout"),
            Self::Elementwise => ptx!("elementwise"),
            Self::LayerNorm => ptx!("layer_norm"),
            Self::ResponseNorm => ptx!("local_response_norm"),
            Self::Loss => ptx!("loss"),
            Self::MatrixProduct => ptx!("matrix_product"),
            Self::Optimizer => ptx!("optimizer"),
            Self::Pooling => ptx!("pooling"),
            Self::Sequence => ptx!("sequence"),
        }
    }
}
