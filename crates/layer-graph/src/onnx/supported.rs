//! Names of the supported operators.

/// Supported operators: those with a layer, and those that only compute constants. An entry is a
/// name, followed by a restriction of the supported uses in brackets, if there is one.
pub(super) const OPERATORS: &[&str] = &[
    "Add",
    "AveragePool",
    "BatchNormalization",
    "Cast (of shapes)",
    "Clip (from 0 to 6)",
    "Concat",
    "Constant",
    "ConstantOfShape",
    "Conv",
    "Dropout",
    "Flatten",
    "Gather (of shapes)",
    "Gelu",
    "Gemm",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "HardSigmoid (with alpha 1/6)",
    "HardSwish",
    "Identity",
    "LRN",
    "LayerNormalization",
    "LogSoftmax (at the end)",
    "MatMul",
    "MaxPool",
    "Mul (of two layers, also by one number a channel, or of a batch normalisation by channel)",
    "RMSNormalization",
    "ReduceMean (of images)",
    "Relu",
    "Reshape",
    "Shape",
    "Sigmoid",
    "Slice (of shapes)",
    "Softmax",
    "Squeeze",
    "Sum",
    "Tanh",
    "Transpose",
    "Unsqueeze",
];

/// Returns whether at least some uses of the operator of this name are supported.
pub(super) fn is_supported(operator: &str) -> bool {
    OPERATORS.iter().any(|known| known.split(' ').next() == Some(operator))
}
