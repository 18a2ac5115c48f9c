//! Products with constant matrices, which become linear layers, and those of an attention. Each
//! function converts a node and defines its output; it returns an error that names the node if this
//! use of the operator is invalid or has no layer.

use super::join::NO_ATTENTION;
use crate::Linear;
use crate::onnx::OnnxError;
use crate::onnx::attention;
use crate::onnx::builder::{Builder, Parameters};
use crate::onnx::deferred::{Replay, Value};
use crate::onnx::node::Node;
use crate::onnx::scores::Scores;
use crate::onnx::view::{Factor, View};

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

/// Converts a `MatMul` node: with a constant second factor to a linear layer, of which a following
/// addition of a constant becomes the bias, and without one to a part of an attention.
pub(super) fn matmul<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let [left, right] = [node.input(0)?, node.input(1)?];
    if builder.constant(right).is_some() {
        return linear(builder, node, false, false);
    }
    if builder.constant(left).is_some() {
        // The error for a computed weight.
        builder.parameter(node, 1)?;
    }
    if let Some(Value::Weights(scores)) = builder.deferred(left).cloned() {
        let values = builder.view(node, right)?;
        return attention::attend(builder, node, &scores, &values, false);
    }
    let (queries, keys) = (builder.view(node, left)?, builder.view(node, right)?);
    let scores = Scores::new(queries, &keys);
    let scores = scores.ok_or_else(|| {
        node.unsupported(format!("its input `{right}` is computed, but only a constant has a layer"))
    })?;
    builder.defer(node.output()?, node, Value::Scores(scores), Replay::None(NO_ATTENTION.into()))
}

/// Adds the layer of an `Attention` node. Its queries, keys and values have three dimensions, or
/// four with the heads.
pub(super) fn attention<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let mut views = Vec::new();
    for (position, count) in [(0, "q_num_heads"), (1, "kv_num_heads"), (2, "kv_num_heads")] {
        let view = builder.view(node, node.input(position)?)?;
        let heads = node.int(count, 0)?;
        views.push(match view.axes.len() {
            3 => {
                let split = view.reshape(&[0, 0, heads.max(1), -1], builder.batch_size());
                split.and_then(|view| view.permute(&[0, 2, 1, 3])).ok_or_else(|| {
                    node.invalid(format!("{heads} heads do not divide its input {position}"))
                })?
            }
            _ => view,
        });
    }
    let [queries, keys, values] = &views[..] else { return Err(node.invalid("it has no values")) };
    let (is_joined, softcap) =
        (builder.view(node, node.input(0)?)?.axes.len() == 3, node.float("softcap", 0.0)?);
    if node.optional_input(4).is_some() || node.optional_input(5).is_some() || softcap != 0.0 {
        return Err(node.unsupported("keys and values of earlier positions, or a soft cap"));
    }
    let width = queries.dims().last().copied().unwrap_or(1);
    let default = 1.0 / (width as f64).sqrt();
    let repeated = (queries.axes.len(), shared(queries, keys), shared(queries, values));
    let (4, Some(keys), Some(values)) = repeated else {
        return Err(node.invalid("its queries, keys and values are not of equal heads"));
    };
    let mut scores = Scores {
        queries: queries.clone(),
        keys,
        scale: node.float("scale", default)?,
        is_causal: node.int("is_causal", 0)? != 0,
        window: None,
        // Only of `.pt2` files.
        dropout: node.float("dropout", 0.0)?,
    };
    if let Some(mask) = node.optional_input(3) {
        let table = super::join::mask(builder, node, mask)?;
        let masked = if table.is_integer {
            scores.hidden_where(&table, |value| Some(value == 0.0))
        } else {
            scores.masked(&table)
        };
        let is_causal = scores.is_causal;
        scores = masked.ok_or_else(|| node.unsupported(super::join::OTHER_MASK))?;
        scores.is_causal |= is_causal;
    }
    attention::attend(builder, node, &scores, &values, is_joined)
}

/// Returns keys or values, repeated for the groups of query heads that share them.
fn shared(queries: &View, keys: &View) -> Option<View> {
    let (heads, own) = (queries.dims().get(1).copied()?, keys.dims().get(1).copied()?);
    if own == 0 || heads % own != 0 || keys.axes.len() != 4 {
        return None;
    }
    let mut keys = keys.clone();
    if heads > own {
        keys.axes[1].push(Factor { size: heads / own, stride: 0 });
    }
    Some(keys)
}

/// Adds a linear layer. `transposed` says whether the weight is `out x in` instead of `in x out`.
fn linear<'a>(
    builder: &mut Builder<'a>,
    node: Node<'a>,
    transposed: bool,
    has_bias: bool,
) -> Result<(), OnnxError> {
    let view = builder.view(node, node.input(0)?)?;
    // Rows may be those of a batch that is not the first dimension.
    let is_moved = view.sample().is_none();
    let input = if is_moved { view.base } else { builder.layer(node, node.input(0)?)? };
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
    let moved = is_moved.then(|| view.of_rows(input, builder.shape(input), out_features));
    if let Some(None) = moved {
        // The error of the rearrangement.
        builder.layer(node, node.input(0)?)?;
    }
    let moved = moved.flatten();
    let shape = builder.shape(input);
    if shape.innermost() != features {
        return Err(node.invalid(format!("its weight is for {features} features, but the sample is {shape}")));
    }
    let rank = view.axes.len();
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
    let layer = builder.add_weighted_inner(node, kind, input, Parameters { weight, bias })?;
    match moved {
        Some(rows) => {
            let problem = "rows of a batch that is not the first dimension".to_owned();
            builder.defer(output, node, Value::View(View { base: layer, ..rows }), Replay::None(problem))
        }
        None => builder.define(output, layer),
    }
}
