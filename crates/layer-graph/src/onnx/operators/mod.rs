//! Conversion of operators to layers.

mod join;
mod norm;
mod product;
mod rearrange;
mod softmax;
mod window;

use crate::onnx::OnnxError;
use crate::onnx::builder::Builder;
use crate::{Dropout, LayerKind};

/// Adds the layers of the node at the given position of the file, from 0, and defines its output.
///
/// # Errors
/// An [`OnnxError`] that names the node if its operator is not supported, or if this use of the
/// operator is invalid or has no layer.
pub(super) fn add(builder: &mut Builder<'_>, index: usize) -> Result<(), OnnxError> {
    let node = builder.node(index);
    match node.operator().as_str() {
        "Conv" => window::convolution(builder, node),
        "MaxPool" => window::max_pool(builder, node),
        "AveragePool" => window::average_pool(builder, node),
        "GlobalMaxPool" => window::global_max_pool(builder, node),
        "GlobalAveragePool" => window::global_average_pool(builder, node),
        "ReduceMean" => window::mean(builder, node),
        "BatchNormalization" => norm::batch(builder, node),
        "LayerNormalization" => norm::layer(builder, node),
        "RMSNormalization" => norm::root_mean_square(builder, node),
        "LRN" => norm::local_response(builder, node),
        "Gemm" => product::gemm(builder, node),
        "MatMul" => product::matmul(builder, node),
        "Add" | "Sum" => join::add(builder, node),
        "Concat" => join::concat(builder, node),
        "Mul" => join::multiply(builder, node),
        "Relu" => element_wise(builder, index, LayerKind::Relu),
        "Clip" => clip(builder, index),
        "HardSigmoid" => hard_sigmoid(builder, index),
        "HardSwish" => element_wise(builder, index, LayerKind::HardSwish),
        "Sigmoid" => element_wise(builder, index, LayerKind::Sigmoid),
        "Tanh" => element_wise(builder, index, LayerKind::Tanh),
        "Gelu" => match node.text("approximate", "none")? {
            "none" => element_wise(builder, index, LayerKind::Gelu),
            "tanh" => element_wise(builder, index, LayerKind::GeluTanh),
            other => Err(node.invalid(format!("`approximate` is `{other}`"))),
        },
        "Dropout" => {
            let ratio = match node.optional_input(1) {
                None => node.float("ratio", 0.5)?,
                Some(value) => {
                    let known = builder.constant(value).and_then(|constant| constant.number);
                    known.ok_or_else(|| builder.unknown_value(node, value, "its ratio"))?
                }
            };
            // Since operator set 12, it drops only if its third input is true.
            let mode = node.optional_input(2).and_then(|value| builder.constant(value)?.ints.as_deref());
            let is_on = builder.opset < 12 || mode.is_some_and(|mode| mode.iter().any(|&value| value != 0));
            builder.counts.dropouts += 1;
            builder.counts.frozen_dropouts += usize::from(!is_on);
            element_wise(builder, index, Dropout::new(ratio).into())
        }
        "Identity" => {
            let layer = builder.layer(node, node.input(0)?)?;
            builder.define(node.output()?, layer)
        }
        "Softmax" | "LogSoftmax" => softmax::add(builder, node),
        "Flatten" => rearrange::flatten(builder, node),
        "Reshape" => rearrange::reshape(builder, node),
        "Squeeze" => rearrange::squeeze(builder, node),
        "Unsqueeze" => rearrange::unsqueeze(builder, node),
        "Transpose" => rearrange::transpose(builder, node),
        "Cast" | "Gather" | "Slice" => {
            Err(node.unsupported("only of a shape that does not depend on the samples"))
        }
        _ => Err(node.unsupported_operator()),
    }
}

/// Adds the layer of a `Clip` node from 0 to 6. The limits are inputs since operator set 11.
fn clip(builder: &mut Builder<'_>, index: usize) -> Result<(), OnnxError> {
    let node = builder.node(index);
    let limit = |position: usize, name: &str| {
        let input = node.optional_input(position).map(|value| builder.constant(value)?.number);
        input.map_or_else(|| Ok(Some(node.float(name, f64::NAN)?)), Ok)
    };
    if (limit(1, "min")?, limit(2, "max")?) != (Some(0.0), Some(6.0)) {
        return Err(node.unsupported("only from 0 to 6"));
    }
    element_wise(builder, index, LayerKind::Relu6)
}

/// Adds the layer of a `HardSigmoid` node with the line `x / 6 + 1/2`, as PyTorch's. The operator's
/// default is another line.
fn hard_sigmoid(builder: &mut Builder<'_>, index: usize) -> Result<(), OnnxError> {
    let node = builder.node(index);
    let (alpha, beta) = (node.float("alpha", 0.2)?, node.float("beta", 0.5)?);
    if (alpha - 1.0 / 6.0).abs() > 1e-6 || (beta - 0.5).abs() > 1e-6 {
        return Err(node.unsupported(format!("alpha {alpha} and beta {beta}: only 1/6 and 1/2")));
    }
    element_wise(builder, index, LayerKind::HardSigmoid)
}

fn element_wise(builder: &mut Builder<'_>, index: usize, kind: LayerKind) -> Result<(), OnnxError> {
    let node = builder.node(index);
    let input = builder.layer(node, node.input(0)?)?;
    builder.add(node, kind, &[input])
}
