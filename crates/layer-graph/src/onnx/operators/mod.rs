//! Conversion of operators to layers.

mod convolution;
mod elementwise;
mod join;
mod norm;
mod product;
mod rearrange;
mod recurrent;
mod softmax;
mod window;

use crate::onnx::OnnxError;
use crate::onnx::builder::{Builder, Parameters};
use crate::onnx::constants::IN_OTHER_FILE;
use crate::onnx::deferred::{Replay, Value};
use crate::onnx::function::sigmoid;
use crate::onnx::node::Node;
use crate::onnx::numbers::axis;
use crate::onnx::scores::{self, Scores};
use crate::onnx::supported::ADAPTIVE_AVERAGE_POOL;
use crate::onnx::view::View;
use crate::{Dropout, Embedding, LayerKind, LeakyRelu, RecurrentCell};

/// Adds the layers of the node at the given position of the file, from 0, and defines its output.
///
/// # Errors
/// An [`OnnxError`] that names the node if its operator is not supported, or if this use of the
/// operator is invalid or has no layer.
pub(super) fn add(builder: &mut Builder<'_>, index: usize) -> Result<(), OnnxError> {
    let node = builder.node(index);
    let operator = node.operator();
    let are_constants =
        node.inputs().next().is_some() && node.inputs().all(|value| builder.constant(value).is_some());
    if are_constants && !matches!(&*operator, "Bernoulli" | "RandomUniformLike") {
        return Err(unknown_constant(builder, node));
    }
    match operator.as_str() {
        "Conv" => convolution::convolution(builder, node),
        "ConvTranspose" => convolution::transposed(builder, node),
        "Resize" => window::resize(builder, node),
        "Pad" => window::pad(builder, node),
        "MaxPool" => window::max_pool(builder, node),
        "AveragePool" => window::average_pool(builder, node),
        "GlobalMaxPool" => window::global_max_pool(builder, node),
        "GlobalAveragePool" => window::global_average_pool(builder, node),
        ADAPTIVE_AVERAGE_POOL => window::adaptive_average_pool(builder, node),
        "ReduceMean" => {
            if elementwise::mean(builder, node)? {
                return Ok(());
            }
            window::mean(builder, node)
        }
        "BatchNormalization" => norm::batch(builder, node),
        "LayerNormalization" => norm::layer(builder, node),
        "RMSNormalization" => norm::root_mean_square(builder, node),
        "GroupNormalization" => norm::group(builder, node),
        "InstanceNormalization" => norm::instance(builder, node),
        "LRN" => norm::local_response(builder, node),
        "Gemm" => product::gemm(builder, node),
        "MatMul" => product::matmul(builder, node),
        "Attention" => product::attention(builder, node),
        "LSTM" => recurrent::add(builder, node, RecurrentCell::Lstm),
        "GRU" => recurrent::add(builder, node, RecurrentCell::Gru),
        "Add" | "Sum" => join::add(builder, node),
        "Concat" => join::concat(builder, node),
        "Mul" => join::multiply(builder, node),
        "Div" => elementwise::arithmetic(builder, node, |a, b| a / b),
        "Sub" => elementwise::arithmetic(builder, node, |a, b| a - b),
        "Pow" => elementwise::arithmetic(builder, node, f64::powf),
        "Less" => elementwise::compare(builder, node),
        "Relu" => elementwise::add(builder, node, LayerKind::Relu),
        "LeakyRelu" => {
            let negative_slope = node.float("alpha", 0.01)?;
            elementwise::add(builder, node, LeakyRelu { negative_slope })
        }
        "Clip" => clip(builder, node),
        "HardSigmoid" => hard_sigmoid(builder, node),
        "HardSwish" => elementwise::add(builder, node, LayerKind::HardSwish),
        "Sigmoid" => elementwise::activation(builder, node, LayerKind::Sigmoid, sigmoid),
        "Tanh" => elementwise::activation(builder, node, LayerKind::Tanh, f64::tanh),
        "Gelu" => match node.text("approximate", "none")? {
            "none" => elementwise::add(builder, node, LayerKind::Gelu),
            "tanh" => elementwise::add(builder, node, LayerKind::GeluTanh),
            other => Err(node.invalid(format!("`approximate` is `{other}`"))),
        },
        "Swish" if (node.float("alpha", 1.0)? - 1.0).abs() < 1e-6 => {
            elementwise::add(builder, node, LayerKind::Silu)
        }
        "Dropout" => dropout(builder, node),
        "Identity" | "CastLike" => builder.define_same(node, node.input(0)?),
        "Cast" => match node.int("to", 0)? {
            // Networks are in one precision.
            1 | 10 | 11 | 16 => builder.define_same(node, node.input(0)?),
            _ => Err(node
                .unsupported("only to a type of numbers, or of a shape that does not depend on the samples")),
        },
        "Softmax" | "LogSoftmax" => softmax::add(builder, node),
        "Flatten" => rearrange::flatten(builder, node),
        "Reshape" => rearrange::reshape(builder, node),
        "Squeeze" => rearrange::squeeze(builder, node),
        "Unsqueeze" => rearrange::unsqueeze(builder, node),
        "Transpose" => rearrange::transpose(builder, node),
        "Slice" => rearrange::slice(builder, node),
        "Split" => rearrange::split(builder, node),
        "SplitToSequence" => rearrange::split_to_sequence(builder, node),
        "SequenceAt" => rearrange::sequence_at(builder, node),
        "Expand" => rearrange::expand(builder, node),
        "Gather" => match builder.constant(node.input(0)?) {
            Some(_) => embedding(builder, node),
            None => rearrange::select(builder, node),
        },
        "Bernoulli" | "RandomUniformLike" => rearrange::random(builder, node),
        "IsNaN" => is_not_a_number(builder, node),
        "Where" => choose(builder, node),
        "Neg" if matches!(builder.deferred(node.input(0)?), Some(Value::View(_))) => {
            let view = builder.view(node, node.input(0)?)?;
            let negative = Value::View(View { scale: -view.scale, ..view });
            let problem = "a product with a number, which has no layer".to_owned();
            builder.defer(node.output()?, node, negative, Replay::None(problem))
        }
        name => match elementwise::function_of(name) {
            Some(function) => elementwise::part(builder, node, function),
            None => Err(node.unsupported_operator()),
        },
    }
}

/// Converts an `IsNaN` node of the weights of an attention, which are no numbers if it has no keys.
fn is_not_a_number<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let problem = "only of the weights of an attention";
    let Some(Value::Weights(scores)) = builder.deferred(node.input(0)?).cloned() else {
        return Err(node.unsupported(problem));
    };
    builder.defer(node.output()?, node, Value::NotNumbers(scores), Replay::None(problem.into()))
}

/// Returns the error for a node of constants whose result is not known.
fn unknown_constant<'a>(builder: &Builder<'a>, node: Node<'a>) -> OnnxError {
    let apart =
        node.inputs().find(|value| builder.constant(value).is_some_and(|constant| constant.is_external));
    match apart {
        Some(value) => node.unsupported(format!("its input `{value}` {IN_OTHER_FILE}")),
        None => node.unsupported(format!(
            "its input `{}` is a constant, of which the values are not known",
            node.inputs().next().unwrap_or_default()
        )),
    }
}

/// Adds the layer of a `Dropout` node. One of the weights of an attention is a part of it.
fn dropout<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
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
    if let Some(Value::Weights(scores)) = builder.deferred(node.input(0)?).cloned() {
        let dropped = Value::Weights(Scores { dropout: ratio, ..scores });
        return builder.defer(node.output()?, node, dropped, Replay::None(join::NO_ATTENTION.into()));
    }
    if recurrent::dropout(builder, node, ratio)? {
        return Ok(());
    }
    elementwise::add(builder, node, Dropout::new(ratio))
}

/// Converts a `Where` node, which masks the scores of an attention.
fn choose<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let [condition, then, or] = [node.input(0)?, node.input(1)?, node.input(2)?];
    let problem = || node.unsupported("only of constants, or of the scores or weights of an attention");
    let condition_of = builder.deferred(condition).cloned();
    match (condition_of, builder.deferred(then).cloned(), builder.deferred(or).cloned()) {
        (Some(Value::NotNumbers(_)), None, Some(Value::Weights(_))) => builder.define_same(node, or),
        (None, then_of, or_of) => {
            let (scores, fill, hides) = match (then_of, or_of) {
                (Some(Value::Scores(scores)), None) => (scores, or, false),
                (None, Some(Value::Scores(scores))) => (scores, then, true),
                _ => return Err(problem()),
            };
            let is_hidden = builder.number(fill).is_some_and(|fill| fill <= scores::HIDDEN);
            let mask = join::mask(builder, node, condition)?;
            let masked = scores.hidden_where(&mask, |value| Some((value != 0.0) == hides));
            let masked = masked.filter(|_| is_hidden).ok_or_else(|| node.unsupported(join::OTHER_MASK))?;
            builder.defer(
                node.output()?,
                node,
                Value::Scores(masked),
                Replay::None(join::NO_ATTENTION.into()),
            )
        }
        _ => Err(problem()),
    }
}

/// Adds the layer of a `Gather` of rows of a constant matrix by tokens.
fn embedding<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let weight = builder.parameter(node, 0)?;
    let &[vocabulary, features] = weight.dims.as_slice() else {
        return Err(
            node.unsupported(format!("a constant of dimensions {:?}, which is no matrix", weight.dims))
        );
    };
    if axis(node.int("axis", 0)?, 2) != Some(0) {
        return Err(node.unsupported("columns of a matrix: only its rows"));
    }
    // A tied linear layer uses the weight transposed.
    let parameters = Parameters { weight: weight.transposed_source(), bias: None };
    let input = builder.layer(node, node.input(1)?)?;
    let padding = node.int("padding", -1)?;
    let kind = Embedding { padding: usize::try_from(padding).ok(), ..Embedding::new(vocabulary, features) };
    builder.add_weighted(node, kind, input, parameters, node.output()?)
}

/// Converts a `Clip` node from 0 to 6, or with other limits as a part of an activation. The limits
/// are inputs since operator set 11.
fn clip<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let limit = |builder: &Builder<'a>, position: usize, name: &str, default: f64| match node
        .optional_input(position)
    {
        Some(value) => Ok(builder.number(value)),
        None => node.float(name, default).map(Some),
    };
    let low = limit(builder, 1, "min", f64::NEG_INFINITY)?;
    let high = limit(builder, 2, "max", f64::INFINITY)?;
    let problem = "only from 0 to 6";
    match (low, high) {
        (Some(low), Some(high)) if (low, high) == (0.0, 6.0) => {
            elementwise::activation(builder, node, LayerKind::Relu6, |x| x.clamp(0.0, 6.0))
        }
        (Some(low), Some(high)) if low <= high => {
            let result = builder.function(node, node.input(0)?)?.map(|x| x.clamp(low, high));
            elementwise::define(builder, node, result, Replay::None(problem.into()))
        }
        _ => Err(node.unsupported(problem)),
    }
}

/// Adds the layer of a `HardSigmoid` node with the line `x / 6 + 1/2`, as PyTorch's. The operator's
/// default is another line.
fn hard_sigmoid<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let (alpha, beta) = (node.float("alpha", 0.2)?, node.float("beta", 0.5)?);
    if (alpha - 1.0 / 6.0).abs() > 1e-6 || (beta - 0.5).abs() > 1e-6 {
        return Err(node.unsupported(format!("alpha {alpha} and beta {beta}: only 1/6 and 1/2")));
    }
    let function = |x: f64| (x / 6.0 + 0.5).clamp(0.0, 1.0);
    elementwise::activation(builder, node, LayerKind::HardSigmoid, function)
}
