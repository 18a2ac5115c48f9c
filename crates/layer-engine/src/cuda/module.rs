//! PTX of the kernels, by family.

/// A family of kernels: a file of CUDA C++ and its PTX, which the driver compiles for the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Family {
    Activation,
    Attention,
    BatchNorm,
    Convolution,
    Dropout,
    Elementwise,
    LayerNorm,
    ResponseNorm,
    Loss,
    MatrixProduct,
    Optimizer,
    Pooling,
    Sequence,
}

impl Family {
    /// Returns the PTX, which ends with a NUL.
    pub(super) fn ptx(self) -> &'static str {
        macro_rules! ptx {
            ($name:literal) => {
                concat!(include_str!(concat!("kernels/", $name, ".ptx")), "\0")
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
