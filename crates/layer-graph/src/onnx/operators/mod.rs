//! Conversion of operators to layers.

mod join;
mod norm;
mod product;
mod rearrange;
mod softmax;
mod window;

use crate::onnx::OnnxError;
use crate::onnx::importer::Importer;
use crate::{Dropout, LayerKind};

/// Supported operators: those with a layer, and those that only compute constants.
pub(super) const SUPPORTED: &[&str] = &[
    "Add",
    "AveragePool",
    "BatchNormalization",
    "Concat",
    "Constant",
    "ConstantOfShape",
    "Conv",
    "Dropout",
    "Flatten",
    "Gelu",
    "Gemm",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "Identity",
    "LRN",
    "LayerNormalization",
    "LogSoftmax (at the end)",
    "MatMul",
    "MaxPool",
    "Mul (of a batch normalisation by channel)",
    "ReduceMean (of images)",
    "Relu",
    "Reshape",
    "Softmax",
    "Squeeze",
    "Sum",
    "Transpose",
    "Unsqueeze",
];

/// Adds the layers of the node at the given position of the file.
pub(super) fn add(importer: &mut Importer<'_>, index: usize) -> Result<(), OnnxError> {
    let node = importer.node(index);
    match node.operator().as_str() {
        "Conv" => window::convolution(importer, node),
        "MaxPool" => window::max_pool(importer, node),
        "AveragePool" => window::average_pool(importer, node),
        "GlobalMaxPool" => window::global_max_pool(importer, node),
        "GlobalAveragePool" => window::global_average_pool(importer, node),
        "ReduceMean" => window::mean(importer, node),
        "BatchNormalization" => norm::batch(importer, node),
        "LayerNormalization" => norm::layer(importer, node),
        "LRN" => norm::local_response(importer, node),
        "Gemm" => product::gemm(importer, node),
        "MatMul" => product::matmul(importer, node),
        "Add" | "Sum" => join::add(importer, node),
        "Concat" => join::concat(importer, node),
        "Mul" => {
            Err(node.unsupported("only a product with one number a channel after a batch normalisation is"))
        }
        "Relu" => element_wise(importer, index, LayerKind::Relu),
        "Gelu" => match node.text("approximate", "none")? {
            "none" => element_wise(importer, index, LayerKind::Gelu),
            "tanh" => element_wise(importer, index, LayerKind::GeluTanh),
            other => Err(node.bad(format!("`approximate` is `{other}`"))),
        },
        "Dropout" => {
            let ratio = match node.optional_input(1) {
                None => node.float("ratio", 0.5)?,
                Some(value) => {
                    let known = importer.constant(value).and_then(|constant| constant.number);
                    known.ok_or_else(|| node.unsupported("its ratio is not a constant"))?
                }
            };
            element_wise(importer, index, Dropout { probability: ratio }.into())
        }
        "Identity" => {
            let layer = importer.layer(node, node.input(0)?)?;
            importer.define(node.output()?, layer)
        }
        "Softmax" | "LogSoftmax" => softmax::add(importer, node),
        "Flatten" => rearrange::flatten(importer, node),
        "Reshape" => rearrange::reshape(importer, node),
        "Squeeze" => rearrange::squeeze(importer, node),
        "Unsqueeze" => rearrange::unsqueeze(importer, node),
        "Transpose" => rearrange::transpose(importer, node),
        _ => Err(node.unsupported_operator()),
    }
}

/// Returns whether at least some uses of an operator are supported.
pub(super) fn is_supported(operator: &str) -> bool {
    SUPPORTED.iter().any(|known| known.split(' ').next() == Some(operator))
}

fn element_wise(importer: &mut Importer<'_>, index: usize, kind: LayerKind) -> Result<(), OnnxError> {
    let node = importer.node(index);
    let input = importer.layer(node, node.input(0)?)?;
    importer.add(node, kind, &[input])
}
