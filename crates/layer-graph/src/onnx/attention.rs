//! Attentions that are written as products of queries and keys, a softmax and a product with the
//! values, or as one node, and the rotation of their queries and keys.

#![expect(clippy::float_cmp, reason = "a scale that is not applied is exactly 1")]

use super::OnnxError;
use super::builder::Builder;
use super::deferred::{Replay, Value};
use super::node::Node;
use super::scores::Scores;
use super::table::Table;
use super::view::{Factor, View};
use crate::{LayerId, MultiHeadAttention, Reshape, RotaryEmbedding, Shape};

/// Maximum relative error of scales and tables in single precision.
const TOLERANCE: f64 = 1e-4;

/// Splits the dimensions of queries, keys or values of an attention: the factors of the heads, the
/// distance of positions and the number of features of a head. `None` if they are not those of one
/// sequence, or heads are mixed.
fn heads(view: &View) -> Option<(Vec<Factor>, usize, usize)> {
    let [outer @ .., positions, features] = &view.axes[..] else { return None };
    let mut heads = outer.iter().flatten().copied();
    if !heads.next()?.is_batch() {
        return None;
    }
    let heads: Vec<Factor> = heads.collect();
    let [Factor { size: width, stride: 1 }] = features[..] else { return None };
    let [Factor { stride: row, .. }] = positions[..] else { return None };
    heads.iter().all(|factor| !factor.is_batch()).then_some((heads, row, width))
}

/// Adds the attention of a node and defines the node's output, of the dimensions of the queries, or
/// with its heads joined to one vector for each position.
///
/// # Errors
/// [`OnnxError::UnsupportedUse`] if queries, keys and values are not heads of sequences of vectors,
/// and [`OnnxError::Graph`] if the layer does not fit its inputs.
pub(super) fn attend<'a>(
    builder: &mut Builder<'a>,
    node: Node<'a>,
    scores: &Scores,
    values: &View,
    are_joined: bool,
) -> Result<(), OnnxError> {
    let Scores { queries, keys, is_causal, .. } = scores;
    let problem = || {
        node.unsupported(
            "a product of two layers: only of the queries, keys and values of an attention, each heads of \
             vectors of a sequence",
        )
    };
    let views = [queries, keys, values];
    let split = views.map(heads);
    let [Some((query_heads, row, width)), Some((key_heads, ..)), Some((value_heads, ..))] = split.clone()
    else {
        return Err(problem());
    };
    // Query heads share key heads in groups: the elements of a key head are repeated.
    let (heads, key_count) = match (&query_heads[..], &key_heads[..]) {
        ([], []) => (1, 1),
        (&[Factor { size, stride }], []) if stride == width => (size, size),
        (&[Factor { size, stride }], &[key]) if stride == width && key.stride == width => (size, key.size),
        (&[Factor { size, stride }], &[Factor { size: group, stride: 0 }])
            if stride == width && group == size =>
        {
            (size, 1)
        }
        (&[Factor { size, stride }], &[key, Factor { stride: 0, .. }])
            if stride == width && key.stride == width =>
        {
            (size, key.size)
        }
        _ => return Err(problem()),
    };
    let count = |heads: &[Factor]| heads.iter().map(|factor| factor.size).product::<usize>();
    if count(&key_heads) != count(&query_heads) || key_heads != value_heads || values.scale != 1.0 {
        return Err(problem());
    }
    let fused = [0, width * heads, 2 * width * heads];
    let is_fused = views.iter().all(|view| view.base == queries.base)
        && views.iter().map(|view| view.offset).eq(fused)
        && row == 3 * width * heads
        && key_count == heads;
    let features = [heads * width, key_count * width, key_count * width];
    let are_whole =
        views.iter().all(|view| view.offset == 0) && split.iter().flatten().map(|split| split.1).eq(features);
    let inputs: Vec<LayerId> = match (is_fused, are_whole) {
        (true, _) => vec![queries.base],
        (_, true) => views.iter().map(|view| view.base).collect(),
        _ => return Err(problem()),
    };
    let inputs =
        inputs.into_iter().map(|input| sequence(builder, node, input)).collect::<Result<Vec<_>, _>>()?;
    let scale = queries.scale * keys.scale * scores.scale;
    let plain = 1.0 / (width as f64).sqrt();
    let mut attention = MultiHeadAttention::new(heads, *is_causal).with_dropout(scores.dropout);
    attention.window = scores.window;
    if (scale / plain - 1.0).abs() > TOLERANCE {
        attention = attention.scaled_by(scale);
    }
    let layer = builder.add_inner(node, attention, &inputs)?;
    if are_joined {
        return builder.define(node.output()?, layer);
    }
    let mut view = View { base: layer, scale: 1.0, offset: 0, ..queries.clone() };
    if let [.., positions, _] = &mut view.axes[..] {
        for factor in positions {
            factor.stride = heads * width;
        }
    }
    let problem = "heads that are not joined to one vector for each position".to_owned();
    builder.defer(node.output()?, node, Value::View(view), Replay::None(problem))
}

/// Returns a layer whose output is a sequence: of vectors, if the features of the given layer are
/// split into heads.
fn sequence<'a>(builder: &mut Builder<'a>, node: Node<'a>, layer: LayerId) -> Result<LayerId, OnnxError> {
    match *builder.shape(layer).dims() {
        [positions, heads, width] => {
            let output = Shape::sequence(positions, heads.saturating_mul(width));
            builder.add_inner(node, Reshape { output }, &[layer])
        }
        _ => Ok(layer),
    }
}

/// Adds the rotation of queries or keys by tables of cosines and sines, and defines the output of
/// the node that adds both products.
///
/// # Errors
/// [`OnnxError::UnsupportedUse`] if the tables are not those of a rotary embedding.
pub(super) fn rotate<'a>(
    builder: &mut Builder<'a>,
    node: Node<'a>,
    view: &View,
    tables: [&Table; 2],
) -> Result<(), OnnxError> {
    let problem = || node.unsupported("a rotation of other features than pairs of a head by its positions");
    // The heads may be before or after the positions.
    let position_of = |axes: &[Vec<Factor>], at: usize| match axes.get(at)?[..] {
        [Factor { size, stride }] if stride != usize::MAX => Some((size, stride)),
        _ => None,
    };
    let rank = view.axes.len();
    let row = builder.shape(view.base).innermost();
    let along =
        (1..rank.saturating_sub(1)).find(|&axis| position_of(&view.axes, axis).is_some_and(|p| p.1 == row));
    let along = along.ok_or_else(problem)?;
    let (positions, _) = position_of(&view.axes, along).ok_or_else(problem)?;
    let [Factor { size: width, stride: 1 }] = view.axes[rank - 1][..] else { return Err(problem()) };
    let mut dims = vec![1; rank];
    (dims[along], dims[rank - 1]) = (positions, width);
    let flat = |table: &Table| {
        // The tables are the same for all samples.
        let missing = rank.checked_sub(table.dims.len())?;
        let own = [&vec![1; missing][..], &table.dims].concat();
        let rest: usize = own.iter().product::<usize>() / (positions * width).max(1);
        let fits = own[along] == positions && own[rank - 1] == width && (rest == 1 || own[0] == rest);
        fits.then(|| table.values[..positions * width].to_vec())
    };
    let [Some(cosines), Some(sines)] = tables.map(flat) else { return Err(problem()) };
    let base = base(&sines, positions, width).ok_or_else(problem)?;
    let embedding = RotaryEmbedding::new(width, base);
    let is_rotation = (0..positions * width).all(|i| {
        let angle = embedding.angle(i / width, i % width % (width / 2));
        (angle.cos() - cosines[i]).abs() < 1e-3 && (angle.sin() - sines[i]).abs() < 1e-3
    });
    let others: usize = view.dims()[1..].iter().product::<usize>();
    let is_whole = others == builder.shape(view.base).elements() && view.offset == 0;
    if !is_rotation || !is_whole || view.scale != 1.0 {
        return Err(problem());
    }
    let input = sequence(builder, node, view.base)?;
    let layer = builder.add_inner(node, embedding, &[input])?;
    let problem = "rotated heads that are not those of an attention".to_owned();
    builder.defer(
        node.output()?,
        node,
        Value::View(View { base: layer, ..view.clone() }),
        Replay::None(problem),
    )
}

/// Returns the base of the angles of a table of sines.
fn base(sines: &[f64], positions: usize, width: usize) -> Option<f64> {
    let half = width / 2;
    if positions < 2 || half < 2 || width % 2 != 0 {
        return None;
    }
    // The last angle at position 1 is `base ** -((half - 1) / half)`.
    let last = sines[width + half - 1];
    if !(last > 0.0 && last < 1.0) {
        return None;
    }
    let base = last.asin().powf(-(half as f64) / (half as f64 - 1.0));
    let whole = base.round();
    Some(if (base / whole - 1.0).abs() < 1e-5 { whole } else { base })
}
