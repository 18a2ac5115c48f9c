//! Sums, products and concatenations. Each function converts a node and defines its output; it
//! returns an error that names the node if this use of the operator is invalid or has no layer.

#![expect(clippy::float_cmp, reason = "products of 0 and 2 are exact")]

use std::cmp::Reverse;

use super::elementwise;
use crate::onnx::OnnxError;
use crate::onnx::attention;
use crate::onnx::builder::Builder;
use crate::onnx::deferred::{Replay, Value};
use crate::onnx::node::Node;
use crate::onnx::numbers::{axis, shortest_decimal};
use crate::onnx::table::Table;
use crate::onnx::view::View;
use crate::{Dropout, LayerId, LayerKind, PositionEmbedding, RmsNorm};

/// Adds the layer of an `Add` or `Sum` node. A sum may have any number of inputs.
pub(super) fn add<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let count = node.inputs().count();
    if node.operator() == "Add" && count != 2 {
        return Err(node.invalid(format!("it has {count} inputs, expected 2")));
    }
    if count != 2 {
        return join(builder, node, LayerKind::Add);
    }
    let [left, right] = [node.input(0)?, node.input(1)?];
    if let (Some(a), Some(b)) = (turned(builder, left), turned(builder, right)) {
        let terms = if a.2 { [b, a] } else { [a, b] };
        let [(view, cosines, false), (same, sines, true)] = &terms else {
            return Err(node.unsupported("a sum of products with tables that is no rotary embedding"));
        };
        if view != same {
            return Err(node.unsupported("a sum of products with tables of different layers"));
        }
        return attention::rotate(builder, node, view, [cosines, sines]);
    }
    for (value, constant) in [(left, right), (right, left)] {
        if builder.constant(constant).is_none() {
            continue;
        }
        if let Some(Value::Scores(scores)) = builder.deferred(value).cloned() {
            let masked = scores.masked(&mask(builder, node, constant)?);
            let masked = masked.ok_or_else(|| node.unsupported(OTHER_MASK))?;
            return builder.defer(
                node.output()?,
                node,
                Value::Scores(masked),
                Replay::None(NO_ATTENTION.into()),
            );
        }
        if builder.number(constant).is_some() {
            return elementwise::with_number(builder, node, value, constant, |x, number| x + number);
        }
        if let Some(layer) = positions(builder, node, value, constant)? {
            return Ok(layer);
        }
    }
    same_layer(builder, node, [left, right], LayerKind::Add, |a, b| a + b)
}

/// Description of scores that are read by another node than those of an attention.
pub(super) const NO_ATTENTION: &str = "products of queries and keys that are no attention";
/// Description of a mask without a layer.
pub(super) const OTHER_MASK: &str = "a mask of an attention that is neither causal nor a window";

/// Returns the values of the mask of an attention.
pub(super) fn mask<'a>(builder: &Builder<'a>, node: Node<'a>, value: &str) -> Result<Table, OnnxError> {
    builder.table(value).ok_or_else(|| builder.unknown_value(node, value, "its mask"))
}

/// Adds the layer of a sum of a sequence and a learned vector for each position, if that is what it
/// is.
fn positions<'a>(
    builder: &mut Builder<'a>,
    node: Node<'a>,
    value: &'a str,
    constant: &str,
) -> Result<Option<()>, OnnxError> {
    if !builder.depends_on_samples(value) {
        return Ok(None);
    }
    let layer = builder.layer(node, value)?;
    let Some(constant) = builder.constant(constant) else { return Ok(None) };
    let leading = constant.dims.len().saturating_sub(2);
    let is_sequence =
        builder.shape(layer).dims().len() == 2 && constant.dims[leading..] == *builder.shape(layer).dims();
    if !is_sequence
        || constant.is_computed()
        || constant.rows_of.is_none() && constant.dims[..leading].iter().any(|&dim| dim != 1)
    {
        return Ok(None);
    }
    let whole = PositionEmbedding::new(constant.dims[leading]);
    let embedding = constant.rows_of.clone().unwrap_or(whole);
    let source = constant.source.clone();
    builder.add_of_parameter(node, embedding, layer, &source).map(Some)
}

/// Adds the layer of a `Mul` node of two layers. A product with one constant a channel is a part of
/// the batch normalisation before it.
pub(super) fn multiply<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let [left, right] = [node.input(0)?, node.input(1)?];
    for (value, constant) in [(left, right), (right, left)] {
        if builder.constant(constant).is_some() {
            return multiply_by_constant(builder, node, value, constant);
        }
    }
    for (value, random) in [(left, right), (right, left)] {
        if let Some(Value::Mask(mask)) = builder.deferred(random).cloned() {
            let keep = mask.keep.ok_or_else(|| node.unsupported("random numbers that are no dropout"))?;
            if (mask.scale * keep - 1.0).abs() > 1e-4 {
                return Err(node.unsupported("a dropout whose mean is not its input"));
            }
            let layer = builder.layer(node, value)?;
            let probability = shortest_decimal((1.0 - keep) as f32);
            builder.counts.dropouts += 1;
            let dropout = Dropout { of_samples: mask.is_of_samples, ..Dropout::new(probability) };
            return builder.add(node, dropout, &[layer]);
        }
    }
    same_layer(builder, node, [left, right], LayerKind::Multiply, |a, b| a * b)
}

fn multiply_by_constant<'a>(
    builder: &mut Builder<'a>,
    node: Node<'a>,
    value: &'a str,
    constant: &'a str,
) -> Result<(), OnnxError> {
    if builder.number(constant).is_some() {
        return elementwise::with_number(builder, node, value, constant, |x, number| x * number);
    }
    let problem = || {
        node.unsupported(
            "only a product of two layers, or with one constant a channel after a batch normalisation, is",
        )
    };
    let last = builder.constant(constant).and_then(|constant| constant.dims.last().copied());
    match builder.deferred(value).cloned() {
        Some(Value::Function(function)) => {
            let epsilon = function.epsilon_of_norm().ok_or_else(problem)?;
            let width = builder.shape(function.of).innermost();
            let parameter = builder.constant(constant).ok_or_else(problem)?;
            if last != Some(width) || parameter.dims.iter().rev().skip(1).any(|&dim| dim != 1) {
                return Err(problem());
            }
            builder.add(node, RmsNorm::new(epsilon), &[function.of])
        }
        Some(Value::View(view) | Value::HalfTurned(view)) if view.dims().last().copied() == last => {
            let table = builder.table(constant);
            let table =
                table.ok_or_else(|| builder.unknown_value(node, constant, "the table of rotations"))?;
            let is_half_turned = matches!(builder.deferred(value), Some(Value::HalfTurned(_)));
            let turned = Value::Turned { view, table, is_half_turned };
            let problem = "a product with a table that is no rotary embedding".to_owned();
            builder.defer(node.output()?, node, turned, Replay::None(problem))
        }
        _ => Err(problem()),
    }
}

/// Returns a product with a table of a rotary embedding: the view, the table, and whether the view
/// is half-turned.
fn turned(builder: &Builder<'_>, value: &str) -> Option<(View, Table, bool)> {
    match builder.deferred(value)? {
        Value::Turned { view, table, is_half_turned } => Some((view.clone(), table.clone(), *is_half_turned)),
        _ => None,
    }
}

/// Adds the layer of a sum or product: of a function of one layer, if both are functions of it, or
/// of two layers.
fn same_layer<'a>(
    builder: &mut Builder<'a>,
    node: Node<'a>,
    inputs: [&'a str; 2],
    kind: LayerKind,
    function: impl Fn(f64, f64) -> f64,
) -> Result<(), OnnxError> {
    let is_function = |value| matches!(builder.deferred(value), Some(Value::Function(_)));
    if is_function(inputs[0]) || is_function(inputs[1]) || inputs[0] == inputs[1] {
        let of_same = elementwise::combined(builder, node, inputs, function)?;
        if let Some(result) = of_same {
            return elementwise::define(builder, node, result, Replay::Join(kind));
        }
    }
    let mut layers = [builder.layer(node, inputs[0])?, builder.layer(node, inputs[1])?];
    if kind == LayerKind::Multiply {
        // One number a channel is the second factor.
        layers.sort_by_key(|&factor| Reverse(builder.shape(factor).elements()));
    }
    builder.add(node, kind, &layers)
}

/// Adds the layer of a `Concat` node: of channels or features, of a learned vector and a sequence,
/// or the parts of a rotary embedding.
pub(super) fn concat<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let along = node.int("axis", 1)?;
    if let [first, second] = node.inputs().collect::<Vec<_>>()[..] {
        if let Some(whole) = half_turned(builder, first, second, along) {
            let problem = "turned features that are no rotary embedding".to_owned();
            return builder.defer(node.output()?, node, Value::HalfTurned(whole), Replay::None(problem));
        }
        if builder.depends_on_samples(second) {
            let layer = builder.layer(node, second)?;
            let token = builder.constant(first).filter(|constant| {
                let shape = builder.shape(layer);
                let (outer, width) = (constant.dims.split_last(), shape.innermost());
                shape.dims().len() == 2
                    && axis(along, 3) == Some(1)
                    && outer.is_some_and(|(&last, outer)| {
                        last == width && outer.iter().skip(1).all(|&dim| dim == 1)
                    })
            });
            if let Some(source) = token.map(|token| token.source.clone()) {
                return builder.add_of_parameter(node, LayerKind::ClassToken, layer, &source);
            }
        }
    }
    let first = builder.layer(node, node.input(0)?)?;
    let rank = builder.shape(first).dims().len() + 1;
    let joined = if rank == 4 { 1 } else { rank - 1 };
    if rank > 4 || axis(along, rank) != Some(joined) {
        return Err(node.unsupported(format!(
            "axis {along} of {rank}: only the channels of images and the features of sequences and vectors \
             are joined"
        )));
    }
    join(builder, node, LayerKind::Concat)
}

/// Returns the view whose second half with the opposite sign and first half are joined along its
/// last dimension.
fn half_turned(builder: &Builder<'_>, second: &str, first: &str, along: i64) -> Option<View> {
    let (Value::View(negative), Value::View(positive)) =
        (builder.deferred(second)?, builder.deferred(first)?)
    else {
        return None;
    };
    let rank = positive.axes.len();
    let (&[own], &[other]) = (&positive.axes.last()?[..], &negative.axes.last()?[..]) else { return None };
    let fits = axis(along, rank)? == rank - 1
        && negative.base == positive.base
        && own == other
        && negative.axes == positive.axes
        && negative.scale == -1.0
        && positive.scale == 1.0
        && negative.offset == positive.offset + own.size * own.stride;
    let mut whole = positive.clone();
    whole.axes.last_mut()?[0].size *= 2;
    fits.then_some(whole)
}

fn join<'a>(builder: &mut Builder<'a>, node: Node<'a>, kind: LayerKind) -> Result<(), OnnxError> {
    let inputs =
        node.inputs().map(|value| builder.layer(node, value)).collect::<Result<Vec<LayerId>, _>>()?;
    match inputs[..] {
        [only] => builder.define(node.output()?, only),
        _ => builder.add(node, kind, &inputs),
    }
}
