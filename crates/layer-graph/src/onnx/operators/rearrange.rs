//! Operators that change the shape or order of elements, or take some of them. Each function
//! converts a node and defines its output; it returns an error that names the node if this use of
//! the operator is invalid or mixes samples of the batch. A rearrangement that has no layer is an
//! error where a layer is needed, but may be a part of an attention.

use crate::onnx::OnnxError;
use crate::onnx::builder::Builder;
use crate::onnx::constants::signed;
use crate::onnx::deferred::{Mask, Replay, Value};
use crate::onnx::dims::BATCH_SIZE;
use crate::onnx::node::Node;
use crate::onnx::numbers::axis;
use crate::onnx::table::ends_of_part;
use crate::onnx::view::View;
use crate::{LayerKind, Permute, Reshape, Select, Shape, Slice};

/// Converts a `Flatten` node of whole samples to a flattening or a reshape.
pub(super) fn flatten<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let view = builder.view(node, node.input(0)?)?;
    let along = node.int("axis", 1)?;
    if axis(along, view.axes.len()) != Some(1) {
        return Err(node.unsupported(format!("axis {along}: only whole samples become vectors")));
    }
    let flat = view.reshape(&[BATCH_SIZE, -1], builder.batch_size());
    let flat = flat.ok_or_else(|| node.unsupported("samples of a batch that is not the first dimension"))?;
    define(builder, node, &view, flat, String::new)
}

/// Converts a `Reshape` node. Its new shape must be a constant.
pub(super) fn reshape<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let value = node.input(0)?;
    let requested = builder.list(node, 1, "shape", "its shape")?;
    let requested = requested.ok_or_else(|| node.invalid("it has no shape"))?.to_vec();
    if node.int("allowzero", 0)? != 0 && requested.contains(&0) {
        return Err(node.invalid("a dimension of 0"));
    }
    if requested.is_empty() {
        return Err(node.invalid("its shape has no dimensions"));
    }
    if let Some(Value::Scores(scores) | Value::Weights(scores)) = builder.deferred(value) {
        // Heads may be merged with the batch or split from it.
        let dims = scores.dims();
        let last: Vec<i64> = dims[dims.len() - 2..].iter().copied().map(signed).collect();
        if requested.ends_with(&last) {
            return builder.define_same(node, value);
        }
    }
    let view = builder.view(node, value)?;
    let target = view.reshape(&requested, builder.batch_size());
    let traced = builder.batch.unwrap_or(1);
    let mixed = || {
        let shown = requested.iter().map(|&dim| match dim {
            BATCH_SIZE => "batch".to_owned(),
            dim => dim.to_string(),
        });
        let shown = shown.collect::<Vec<_>>().join(", ");
        format!("shape [{shown}] mixes samples of the batch, which is of {traced}")
    };
    let Some(target) = target else {
        let keeps_batch = matches!(requested[0], 0 | -1 | BATCH_SIZE) || requested[0] == traced;
        return Err(match view.sample() {
            Some(sample) if keeps_batch && requested.len() > 1 && !requested[1..].contains(&BATCH_SIZE) => {
                node.invalid(format!("cannot make {requested:?} of samples of {}", Shape::new(sample)))
            }
            _ => node.unsupported(mixed()),
        });
    };
    define(builder, node, &view, target, mixed)
}

/// Converts a `Squeeze` node, which removes dimensions of 1.
pub(super) fn squeeze<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let axes = axes(builder, node)?;
    let view = builder.view(node, node.input(0)?)?;
    let problem = || node.invalid(format!("axes {axes:?} are not all 1 in {}", shown(&view)));
    let mut places = places(&axes, view.axes.len()).ok_or_else(problem)?;
    places.reverse();
    let squeezed = places.into_iter().try_fold(view.clone(), |view, place| view.squeeze(place));
    let squeezed = squeezed.ok_or_else(problem)?;
    define(builder, node, &view, squeezed, || format!("axes {axes:?} of a rearranged batch"))
}

/// Converts an `Unsqueeze` node, which inserts dimensions of 1.
pub(super) fn unsqueeze<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let axes = axes(builder, node)?;
    let view = builder.view(node, node.input(0)?)?;
    let problem = || node.unsupported(format!("axes {axes:?} of {} and their batch", shown(&view)));
    let places = places(&axes, view.axes.len() + axes.len()).ok_or_else(problem)?;
    let target = places.into_iter().try_fold(view.clone(), |view, place| view.unsqueeze(place));
    let target = target.ok_or_else(problem)?;
    define(builder, node, &view, target, || format!("axes {axes:?} of {} and their batch", shown(&view)))
}

/// Converts a `Transpose` node to a permutation.
pub(super) fn transpose<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let view = builder.view(node, node.input(0)?)?;
    let rank = view.axes.len();
    let order = node.ints("perm").ok_or_else(|| node.unsupported("without `perm` it moves the batch"))?;
    let positions = order.iter().map(|&position| axis(position, rank)).collect::<Option<Vec<_>>>();
    let target = positions.as_ref().and_then(|positions| view.permute(positions));
    let (Some(positions), Some(target)) = (positions, target) else {
        return Err(
            node.invalid(format!("`perm` {order:?} does not permute the dimensions of {}", shown(&view)))
        );
    };
    let replay = match positions[..] {
        _ if positions.iter().copied().eq(0..rank) => Replay::Same,
        [0, ref sample @ ..] => {
            Replay::Kind(Permute { order: sample.iter().map(|position| position - 1).collect() }.into())
        }
        _ => Replay::None(format!("`perm` {order:?} moves the batch")),
    };
    builder.defer(node.output()?, node, Value::View(target), replay)
}

/// Converts a `Slice` node with steps of 1.
pub(super) fn slice<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let input = builder.view(node, node.input(0)?)?;
    let what = "its range";
    let list = |builder: &Builder<'a>, position, name| {
        builder.list(node, position, name, what).map(|list| list.map(<[i64]>::to_vec))
    };
    let starts = list(builder, 1, "starts")?.ok_or_else(|| node.invalid("it has no starts"))?;
    let ends = list(builder, 2, "ends")?.ok_or_else(|| node.invalid("it has no ends"))?;
    let axes = list(builder, 3, "axes")?.unwrap_or_else(|| (0..signed(starts.len())).collect());
    let steps = list(builder, 4, "steps")?.unwrap_or_default();
    if axes.len() != starts.len() || ends.len() != starts.len() {
        return Err(node.invalid("starts, ends and axes are not of equal number"));
    }
    if steps.iter().any(|&step| step != 1) {
        return Err(node.unsupported("steps other than 1"));
    }
    let (mut view, mut replay) = (input.clone(), Replay::Same);
    for ((&along, &start), &end) in axes.iter().zip(&starts).zip(&ends) {
        let along = axis(along, view.axes.len()).ok_or_else(|| node.invalid(format!("axis {along}")))?;
        let size = view.dims()[along];
        let (start, end) = ends_of_part(start, end, size);
        if (start, end) == (0, size) {
            continue;
        }
        (view, replay) = part(node, &view, along, start, end - start, &replay)?;
    }
    builder.defer(node.output()?, node, Value::View(view), replay)
}

/// Converts a `Split` node to a slice for each output.
pub(super) fn split<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let view = builder.view(node, node.input(0)?)?;
    let rank = view.axes.len();
    let along = node.int("axis", 0)?;
    let along = axis(along, rank).ok_or_else(|| node.invalid(format!("axis {along} of {rank}")))?;
    let size = view.dims()[along];
    let lengths = if let Some(lengths) = builder.list(node, 1, "split", "its list of lengths")? {
        lengths.iter().map(|&length| usize::try_from(length).ok()).collect()
    } else {
        let count = node.output_count();
        let length = size.div_ceil(count.max(1));
        Some((0..count).map(|i| length.min(size.saturating_sub(i * length))).collect::<Vec<_>>())
    };
    let lengths = lengths.filter(|lengths| {
        let all = lengths.iter().try_fold(0usize, |all, &length| all.checked_add(length));
        lengths.len() == node.output_count() && all == Some(size)
    });
    let lengths =
        lengths.ok_or_else(|| node.invalid(format!("its parts are not those of {size} positions")))?;
    let mut start = 0;
    for (output, length) in node.outputs_in_order().zip(lengths) {
        if !output.is_empty() {
            let (view, replay) = part(node, &view, along, start, length, &Replay::Same)?;
            builder.defer(output, node, Value::View(view), replay)?;
        }
        start += length;
    }
    Ok(())
}

/// Converts a `SplitToSequence` node, whose parts `SequenceAt` nodes read.
pub(super) fn split_to_sequence<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let view = builder.view(node, node.input(0)?)?;
    let rank = view.axes.len();
    let along = node.int("axis", 0)?;
    let along = axis(along, rank).ok_or_else(|| node.invalid(format!("axis {along} of {rank}")))?;
    let size = view.dims()[along];
    let problem = || node.unsupported(format!("parts that are not those of {size} positions"));
    let value = node.input(1)?;
    let lengths = builder.list(node, 1, "split", "its list of lengths")?.unwrap_or_default();
    let lengths = lengths.iter().map(|&length| usize::try_from(length).ok()).collect::<Option<Vec<_>>>();
    let lengths = match (&lengths.ok_or_else(problem)?[..], builder.constant(value)) {
        // One number is the length of each part.
        (&[length], Some(constant)) if constant.dims.is_empty() && length > 0 => {
            (0..size.div_ceil(length)).map(|i| length.min(size - i * length)).collect()
        }
        (lengths, _) => lengths.to_vec(),
    };
    let all = lengths.iter().try_fold(0usize, |all, &length| all.checked_add(length));
    if all != Some(size) || node.int("keepdims", 1)? == 0 && builder.constant(value).is_none() {
        return Err(problem());
    }
    builder.defer(node.output()?, node, Value::Parts(view, along, lengths), Replay::Same)
}

/// Converts a `SequenceAt` node to a slice.
pub(super) fn sequence_at<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let problem = || node.unsupported("only of the parts of a split, at a constant position");
    let Some(Value::Parts(view, along, lengths)) = builder.deferred(node.input(0)?).cloned() else {
        return Err(problem());
    };
    let place = builder.list(node, 1, "position", "its position")?.and_then(|list| list.first().copied());
    let place = place.and_then(|place| axis(place, lengths.len())).ok_or_else(problem)?;
    let start = lengths[..place].iter().sum();
    let (part, replay) = part(node, &view, along, start, lengths[place], &Replay::Same)?;
    builder.defer(node.output()?, node, Value::View(part), replay)
}

/// Converts a `Gather` node of one position of a layer's output.
pub(super) fn select<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let problem = || node.unsupported("only of a constant matrix by tokens, of a shape, or of one position");
    let (view, places) = (builder.view(node, node.input(0)?)?, node.input(1)?);
    let index = builder.constant(places).and_then(|constant| constant.ints.as_deref()?.first().copied());
    let dims = builder.constant(places).map(|constant| constant.dims.clone());
    let (Some(index), Some([] | [1])) = (index, dims.as_deref()) else { return Err(problem()) };
    let rank = view.axes.len();
    let along = node.int("axis", 0)?;
    let along = axis(along, rank).ok_or_else(|| node.invalid(format!("axis {along} of {rank}")))?;
    let size = view.dims()[along];
    let index =
        axis(index, size).ok_or_else(|| node.invalid(format!("index {index} of {size} positions")))?;
    let (mut target, mut replay) = part(node, &view, along, index, 1, &Replay::Same)?;
    if dims.is_some_and(|dims| dims.is_empty()) {
        target = target.squeeze(along).ok_or_else(problem)?;
        replay = match (along, &view.sample()) {
            (1, Some(_)) => Replay::Kind(Select { index }.into()),
            _ => Replay::None(format!("one position of dimension {along}: only of the outermost of samples")),
        };
    }
    builder.defer(node.output()?, node, Value::View(target), replay)
}

/// Converts an `Expand` node, which repeats dimensions of 1.
pub(super) fn expand<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let view = builder.view(node, node.input(0)?)?;
    let requested = builder.list(node, 1, "shape", "its shape")?;
    let requested = requested.ok_or_else(|| node.invalid("it has no shape"))?;
    let target = view.expand(requested, builder.batch_size());
    let target =
        target.ok_or_else(|| node.invalid(format!("cannot repeat {} to {requested:?}", shown(&view))))?;
    let replay = if target == view {
        Replay::Same
    } else {
        Replay::None("repeated elements that are not the keys or values of an attention".into())
    };
    builder.defer(node.output()?, node, Value::View(target), replay)
}

/// Converts a node that returns random numbers, which a comparison makes the mask of a dropout.
pub(super) fn random<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let value = node.input(0)?;
    let dims = builder.constant(value).map(|constant| constant.dims.clone());
    let is_of_samples = dims.is_some_and(|dims| dims.iter().skip(1).all(|&dim| dim == 1) && dims.len() > 1);
    let keep = match node.operator().as_str() {
        "Bernoulli" => {
            Some(builder.number(value).ok_or_else(|| builder.unknown_value(node, value, "its input"))?)
        }
        _ if (node.float("low", 0.0)?, node.float("high", 1.0)?) == (0.0, 1.0) => None,
        _ => return Err(node.unsupported("only numbers from 0 to 1")),
    };
    let mask = Value::Mask(Mask { is_of_samples, keep, scale: 1.0 });
    builder.defer(node.output()?, node, mask, Replay::None("random numbers that are no dropout".into()))
}

/// Returns the positions `start..start + length` of a dimension, and the layer that computes them
/// from those of `before`.
fn part(
    node: Node<'_>,
    view: &View,
    along: usize,
    start: usize,
    length: usize,
    before: &Replay,
) -> Result<(View, Replay), OnnxError> {
    let target = view.slice(along, start, length);
    let target =
        target.ok_or_else(|| node.unsupported("a part of the samples of a batch, or of no elements"))?;
    let replay = match (along, view.sample(), before) {
        _ if target == *view => before.clone(),
        (1, Some(_), Replay::Same) => Replay::Kind(LayerKind::Slice(Slice { start, length })),
        _ => Replay::None(format!("a part of dimension {along}: only of the outermost of samples")),
    };
    Ok((target, replay))
}

/// Defines the output of a node as `to`, a reshaped view `from`. `mixed` describes why it has no
/// layer if its first dimension is not the batch.
fn define<'a>(
    builder: &mut Builder<'a>,
    node: Node<'a>,
    from: &View,
    to: View,
    mixed: impl FnOnce() -> String,
) -> Result<(), OnnxError> {
    let replay = match (from.sample(), to.sample()) {
        (Some(from), Some(to)) if from == to => Replay::Same,
        (Some(from), Some(to)) if to.len() == 1 && from.len() > 1 => Replay::Kind(LayerKind::Flatten),
        (Some(_), Some(to)) if !to.is_empty() => Replay::Kind(Reshape { output: Shape::new(to) }.into()),
        _ => Replay::None(mixed()),
    };
    builder.defer(node.output()?, node, Value::View(to), replay)
}

/// Returns the axes of a `Squeeze` or `Unsqueeze`.
fn axes<'a>(builder: &Builder<'a>, node: Node<'a>) -> Result<Vec<i64>, OnnxError> {
    let axes = builder.list(node, 1, "axes", "its list of axes")?;
    // Without axes, a `Squeeze` would also remove a batch of 1.
    axes.map(<[i64]>::to_vec).ok_or_else(|| node.unsupported("axes that are not given as constants"))
}

/// Returns different axes as positions among `rank` dimensions, in ascending order.
fn places(axes: &[i64], rank: usize) -> Option<Vec<usize>> {
    let mut places = axes.iter().map(|&value| axis(value, rank)).collect::<Option<Vec<_>>>()?;
    places.sort_unstable();
    places.windows(2).all(|pair| pair[0] != pair[1]).then_some(places)
}

/// Formats the dimensions of a value, without the batch if it is the first one.
fn shown(view: &View) -> String {
    match view.sample() {
        Some(sample) => format!("samples of {}", Shape::new(sample)),
        None => format!("{}", Shape::new(view.dims())),
    }
}
