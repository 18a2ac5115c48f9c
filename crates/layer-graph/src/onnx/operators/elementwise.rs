//! Functions of each element, and of the mean of a row. Each function converts a node and defines
//! its output. Activations and normalisations may be written in several nodes.

#![expect(clippy::float_cmp, reason = "products of 0 and 2 are exact")]

use crate::LayerKind;
use crate::onnx::OnnxError;
use crate::onnx::builder::Builder;
use crate::onnx::deferred::{Replay, Value};
use crate::onnx::function::{Function, error_function};
use crate::onnx::node::Node;
use crate::onnx::numbers::axis;

/// Problem of a function that is no layer.
const NO_LAYER: &str = "it is no part of an activation or a normalisation that has a layer";

/// Adds the layer of a node with one input, of a kind.
pub(super) fn add<'a>(
    builder: &mut Builder<'a>,
    node: Node<'a>,
    kind: impl Into<LayerKind>,
) -> Result<(), OnnxError> {
    let input = builder.layer(node, node.input(0)?)?;
    builder.add(node, kind, &[input])
}

/// Operators that make a function a part of another one.
const READERS: &[&str] = &["Add", "Mul", "Div"];

/// Converts an activation that may be a part of another one: its layer is added unless a sum or a
/// product reads it.
pub(super) fn activation<'a>(
    builder: &mut Builder<'a>,
    node: Node<'a>,
    kind: LayerKind,
    function: impl Fn(f64) -> f64,
) -> Result<(), OnnxError> {
    let value = node.input(0)?;
    let is_part = matches!(builder.deferred(value), Some(Value::Function(known)) if known.kind().is_none());
    if !is_part && !builder.is_read_by(node.output()?, READERS) {
        return add(builder, node, kind);
    }
    let argument = if is_part {
        builder.function(node, value)?
    } else {
        Function::identity(builder.layer(node, value)?)
    };
    let result = Value::Function(argument.map(function));
    builder.defer(node.output()?, node, result, Replay::Kind(kind))
}

/// Converts a node that computes a function without a layer, which may be a part of one.
pub(super) fn part<'a>(
    builder: &mut Builder<'a>,
    node: Node<'a>,
    function: impl Fn(f64) -> f64,
) -> Result<(), OnnxError> {
    let result = builder.function(node, node.input(0)?)?.map(function);
    define(builder, node, result, Replay::None(NO_LAYER.into()))
}

/// Returns the function that a node without own parameters computes for each element.
pub(super) fn function_of(operator: &str) -> Option<fn(f64) -> f64> {
    Some(match operator {
        "Abs" => f64::abs,
        "Erf" => error_function,
        "Exp" => f64::exp,
        "Log" => f64::ln,
        "Neg" => |x| -x,
        "Reciprocal" => f64::recip,
        "Sqrt" => f64::sqrt,
        _ => return None,
    })
}

/// Converts a node of one value that depends on the samples and a constant number. Scores and views
/// are multiplied by it, masks compared with or divided by it.
pub(super) fn with_number<'a>(
    builder: &mut Builder<'a>,
    node: Node<'a>,
    value: &'a str,
    constant: &str,
    function: impl Fn(f64, f64) -> f64,
) -> Result<(), OnnxError> {
    let number =
        builder.number(constant).ok_or_else(|| builder.unknown_value(node, constant, "its constant"))?;
    // A factor, if the function is a product or quotient.
    let factor = function(1.0, number);
    let is_product = function(0.0, number) == 0.0 && function(2.0, number) == 2.0 * factor;
    let deferred = match builder.deferred(value).cloned() {
        Some(Value::View(mut view)) if is_product => {
            view.scale *= factor;
            Value::View(view)
        }
        Some(Value::Scores(mut scores)) if is_product => {
            scores.scale *= factor;
            Value::Scores(scores)
        }
        Some(Value::Mask(mut mask)) if is_product && mask.keep.is_some() => {
            mask.scale *= factor;
            Value::Mask(mask)
        }
        _ => {
            let result = builder.function(node, value)?.map(|x| function(x, number));
            return define(builder, node, result, Replay::None(NO_LAYER.into()));
        }
    };
    builder.defer(
        node.output()?,
        node,
        deferred,
        Replay::None("a product with a number, which has no layer".into()),
    )
}

/// Converts a `Sub`, `Div` or `Pow` node. `function` computes it.
pub(super) fn arithmetic<'a>(
    builder: &mut Builder<'a>,
    node: Node<'a>,
    function: fn(f64, f64) -> f64,
) -> Result<(), OnnxError> {
    let [left, right] = [node.input(0)?, node.input(1)?];
    match (builder.constant(left).is_some(), builder.constant(right).is_some()) {
        (_, true) => with_number(builder, node, left, right, function),
        (true, _) => with_number(builder, node, right, left, |x, number| function(number, x)),
        _ => {
            let result = combined(builder, node, [left, right], function)?;
            let result = result.ok_or_else(|| node.unsupported(NO_LAYER))?;
            define(builder, node, result, Replay::None(NO_LAYER.into()))
        }
    }
}

/// Converts a comparison of random numbers with a probability.
pub(super) fn compare<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let problem = || node.unsupported("only of constants, or of random numbers and a probability");
    let Some(Value::Mask(mut mask)) = builder.deferred(node.input(0)?).cloned() else {
        return Err(problem());
    };
    let number = builder.number(node.input(1)?).ok_or_else(problem)?;
    mask.keep = Some(number);
    builder.defer(
        node.output()?,
        node,
        Value::Mask(mask),
        Replay::None("random numbers that are no dropout".into()),
    )
}

/// Returns the function of one layer that a node computes of two. `None` if they are functions of
/// different layers.
pub(super) fn combined<'a>(
    builder: &mut Builder<'a>,
    node: Node<'a>,
    inputs: [&'a str; 2],
    function: impl Fn(f64, f64) -> f64,
) -> Result<Option<Function>, OnnxError> {
    // A part of a function has no layer, so it is read first.
    let known = inputs.map(|value| match builder.deferred(value) {
        Some(Value::Function(function)) => Some(function.clone()),
        _ => None,
    });
    let [left, right] = match known {
        [Some(left), Some(right)] => [left, right],
        [Some(left), None] => [left, builder.function(node, inputs[1])?],
        [None, Some(right)] => [builder.function(node, inputs[0])?, right],
        [None, None] => [builder.function(node, inputs[0])?, builder.function(node, inputs[1])?],
    };
    Ok((left.of == right.of).then(|| left.zip(&right, function)))
}

/// Defines the output of a node as a function: a layer if it has one.
pub(super) fn define<'a>(
    builder: &mut Builder<'a>,
    node: Node<'a>,
    function: Function,
    replay: Replay,
) -> Result<(), OnnxError> {
    let kind = function.kind();
    let may_be_part = matches!(kind, Some(LayerKind::HardSigmoid | LayerKind::Sigmoid | LayerKind::Tanh));
    match kind {
        Some(kind) if !may_be_part || !builder.is_read_by(node.output()?, READERS) => {
            builder.add(node, kind, &[function.of])
        }
        _ => builder.defer(node.output()?, node, Value::Function(function), replay),
    }
}

/// Converts a `ReduceMean` over the last dimension, which may be a part of a normalisation. Returns
/// whether it is one.
pub(super) fn mean<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<bool, OnnxError> {
    let value = node.input(0)?;
    let axes = builder.list(node, 1, "axes", "its list of axes")?.map(<[i64]>::to_vec);
    let keeps = node.int("keepdims", 1)? != 0;
    if !matches!(builder.deferred(value), Some(Value::Function(_))) || !keeps {
        return Ok(false);
    }
    let function = builder.function(node, value)?;
    let rank = builder.shape(function.of).dims().len() + 1;
    match axes.as_deref() {
        Some(&[along]) if axis(along, rank) == Some(rank - 1) => {
            let value = Value::Function(function.mean());
            builder.defer(node.output()?, node, value, Replay::None(NO_LAYER.into()))?;
            Ok(true)
        }
        _ => Ok(false),
    }
}
