//! Products with constant matrices, which become linear layers. Each function converts a node and
//! defines its output; it returns an error that names the node if this use of the operator is
//! invalid or has no layer.

use crate::Linear;
use crate::onnx::OnnxError;
use crate::onnx::builder::{Builder, Parameters};
use crate::onnx::node::Node;

/// Adds the layer of a `Gemm` node, which computes `A * B + C` with constants `B` and `C`.
pub(super) fn gemm<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let is_plain = node.int("transA", 0)? == 0;
    // A factor other than 1 is rejected, and so is NaN.
    let factors = [node.float("alpha", 1.0)?, node.float("beta", 1.0)?];
    if !is_plain || factors.iter().any(|factor| (factor - 1.0).abs() > 0.0 || factor.is_nan()) {
        return Err(node.unsupported("only A * B + C and A * transposed B + C have layers"));
    }
    let transposed = node.int("transB", 0)? != 0;
    linear(builder, node, transposed, node.optional_input(2).is_some())
}

/// Adds the layer of a `MatMul` node with a constant second factor. An addition of a constant that
/// follows it becomes the bias.
pub(super) fn matmul<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    linear(builder, node, false, false)
}

/// Adds a linear layer. `transposed` says whether the weight is `out x in` instead of `in x out`.
fn linear<'a>(
    builder: &mut Builder<'a>,
    node: Node<'a>,
    transposed: bool,
    has_bias: bool,
) -> Result<(), OnnxError> {
    let input = builder.layer(node, node.input(0)?)?;
    let weight = builder.parameter(node, 1)?;
    let &[rows, columns] = weight.dims.as_slice() else {
        return Err(node.unsupported(format!("a weight of dimensions {:?}, which is no matrix", weight.dims)));
    };
    // The source of the weight in the layout `in x out`.
    let (features, out_features, weight) = if transposed {
        (columns, rows, weight.transposed_source())
    } else {
        (rows, columns, weight.source.clone())
    };
    let shape = builder.shape(input);
    if shape.innermost() != features {
        return Err(node.invalid(format!("its weight is for {features} features, but the sample is {shape}")));
    }
    let rank = shape.dims().len() + 1;
    let mut output = node.output()?;
    let mut bias = None;
    if has_bias {
        let constant = builder.parameter(node, 2)?;
        let dims = &constant.dims;
        if *dims != [out_features] && *dims != [1, out_features] {
            return Err(node.unsupported(format!("a bias of dimensions {dims:?}, not [{out_features}]")));
        }
        bias = Some(constant.source.clone());
    } else if let Some((sum, constant)) = builder.merge_reader(output, "Add", out_features, rank - 1, rank) {
        (output, bias) = (sum, Some(constant));
    }
    let kind = Linear { out_features, bias: bias.is_some() };
    builder.add_weighted(node, kind, input, Parameters { weight, bias }, output)
}
