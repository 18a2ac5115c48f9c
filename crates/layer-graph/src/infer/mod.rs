//! Shape inference: computes the output shape of a layer from its inputs, or reports why they do
//! not fit.

mod image;
mod norm;

use crate::{
    AdditiveAttention, Embedding, GraphError, LayerKind, MixtureOfExperts, MultiHeadAttention, Opaque,
    Permute, PositionEmbedding, Recurrence, Reshape, RotaryEmbedding, Scale, Shape, Slice,
};

/// Computes the output shape of a layer of the given kind, for one sample. `inputs` are the shapes
/// of its inputs for one sample, in order; `name` is the name of the layer in errors.
///
/// # Errors
/// - [`GraphError::InputCount`] if the kind does not take this number of inputs.
/// - [`GraphError::Shape`] if the kind cannot be applied to inputs of these shapes, a
///   hyper-parameter is out of range, or the output is empty or too large.
pub(crate) fn output_shape(name: &str, kind: &LayerKind, inputs: &[Shape]) -> Result<Shape, GraphError> {
    check_input_count(name, kind, inputs.len())?;
    let shape = match kind {
        // The input layer's shape is given, not inferred.
        LayerKind::Input => {
            return Err(shape_error(
                name,
                "an input layer has no inputs: `LayerGraph::add_input` adds it".into(),
            ));
        }
        LayerKind::Conv2d(conv) => image::convolution(name, conv, &inputs[0])?,
        LayerKind::ConvTranspose2d(conv) => image::transposed_convolution(name, conv, &inputs[0])?,
        LayerKind::Linear(linear) => {
            let (_, outer) = inputs[0].dims().split_last().unwrap_or((&0, &[]));
            Shape::new([outer, &[linear.out_features]].concat())
        }
        kind @ (LayerKind::BatchNorm(_)
        | LayerKind::LayerNorm(_)
        | LayerKind::RmsNorm(_)
        | LayerKind::GroupNorm(_)
        | LayerKind::LocalResponseNorm(_)) => norm::normalised(name, kind, &inputs[0])?,
        LayerKind::LeakyRelu(rule) => {
            if !(rule.negative_slope >= 0.0 && rule.negative_slope.is_finite()) {
                return Err(shape_error(name, "needs a finite negative slope >= 0".into()));
            }
            inputs[0].clone()
        }
        LayerKind::Relu
        | LayerKind::Relu6
        | LayerKind::HardSigmoid
        | LayerKind::HardSwish
        | LayerKind::GeluTanh
        | LayerKind::Gelu
        | LayerKind::QuickGelu
        | LayerKind::Silu
        | LayerKind::Sigmoid
        | LayerKind::Tanh
        | LayerKind::Softmax => inputs[0].clone(),
        LayerKind::Embedding(rule) => embedding(name, rule, &inputs[0])?,
        LayerKind::RotaryEmbedding(rule) => rotary_embedding(name, rule, &inputs[0])?,
        LayerKind::PositionEmbedding(rule) => position_embedding(name, rule, &inputs[0])?,
        LayerKind::ClassToken => {
            let (positions, features) = sequence(name, &inputs[0])?;
            Shape::sequence(positions.saturating_add(1), features)
        }
        LayerKind::MultiHeadAttention(attention) => attention_output(name, attention, inputs)?,
        LayerKind::AdditiveAttention(attention) => additive_output(name, attention, inputs)?,
        LayerKind::Recurrence(rule) => recurrence_output(name, rule, &inputs[0])?,
        LayerKind::MixtureOfExperts(rule) => mixture_output(name, rule, inputs)?,
        LayerKind::Reshape(reshape) => reshape_output(name, reshape, &inputs[0])?,
        LayerKind::Permute(permute) => permute_output(name, permute, &inputs[0])?,
        LayerKind::Select(select) => match inputs[0].dims() {
            [outermost, rest @ ..] if select.index < *outermost && !rest.is_empty() => Shape::new(rest),
            _ => {
                let problem = format!("has no position {} in {}", select.index, inputs[0]);
                return Err(shape_error(name, problem));
            }
        },
        LayerKind::Scale(scale) => scale_output(name, scale, &inputs[0])?,
        LayerKind::Slice(slice) => slice_output(name, slice, &inputs[0])?,
        LayerKind::Dropout(dropout) => {
            if !(0.0..1.0).contains(&dropout.probability) {
                let problem = format!("dropout probability {} is not in 0..1", dropout.probability);
                return Err(shape_error(name, problem));
            }
            inputs[0].clone()
        }
        LayerKind::MaxPool2d(pool) | LayerKind::AvgPool2d(pool) => image::pooling(name, pool, &inputs[0])?,
        LayerKind::AdaptiveAvgPool2d(pool) => {
            let (channels, _, _) = image::sizes(name, &inputs[0])?;
            Shape::image(channels, pool.output[0], pool.output[1])
        }
        LayerKind::Pad(pad) => image::padded(name, pad, &inputs[0])?,
        LayerKind::Flatten => Shape::features(inputs[0].elements()),
        LayerKind::Concat => concatenation(name, inputs)?,
        LayerKind::Add => same_shape(name, "adds", inputs)?,
        LayerKind::Multiply => match (inputs[0].as_image(), inputs[1].as_image()) {
            (Some((channels, ..)), Some((factors, 1, 1))) if channels == factors => inputs[0].clone(),
            _ => same_shape(name, "multiplies", inputs)?,
        },
        LayerKind::SoftmaxCrossEntropy(rule) => match inputs[0].dims() {
            _ if !(0.0..=1.0).contains(&rule.label_smoothing) => {
                let problem = format!("label smoothing {} is not in 0..=1", rule.label_smoothing);
                return Err(shape_error(name, problem));
            }
            _ if rule.ignored_label.is_some_and(|label| label.unsigned_abs() > 1 << 24) => {
                return Err(shape_error(name, "needs an ignored label of at most 2^24 in magnitude".into()));
            }
            [_] | [_, _] => Shape::features(1),
            _ => return Err(shape_error(name, format!("needs a vector of class scores, got {}", inputs[0]))),
        },
        LayerKind::ElementwiseLoss(_) => Shape::features(1),
        LayerKind::Opaque(opaque) => declared_output(name, opaque)?,
    };
    if shape.is_valid() {
        Ok(shape)
    } else {
        Err(shape_error(name, format!("output shape {shape} is empty or too large")))
    }
}

fn additive_output(name: &str, attention: &AdditiveAttention, inputs: &[Shape]) -> Result<Shape, GraphError> {
    if let Some(sizes) = attention.sizes(inputs) {
        return Ok(Shape::sequence(sizes.positions, sizes.features));
    }
    for input in inputs {
        sequence(name, input)?;
    }
    let [queries, keys, values] = inputs else {
        return Err(shape_error(name, "needs queries, keys and values".into()));
    };
    let problem = format!(
        "needs queries and keys of as many units, and values at as many positions as keys; got {queries}, \
         {keys} and {values}"
    );
    Err(shape_error(name, problem))
}

fn recurrence_output(name: &str, rule: &Recurrence, input: &Shape) -> Result<Shape, GraphError> {
    let sizes = rule.sizes(input).ok_or_else(|| {
        shape_error(name, format!("needs a sequence of {} gates, got {input}", rule.cell.gates()))
    })?;
    Ok(Shape::sequence(sizes.positions, sizes.width))
}

/// Returns the shape of images joined along their channels, or of vectors or sequences joined along
/// their features.
fn concatenation(name: &str, inputs: &[Shape]) -> Result<Shape, GraphError> {
    let joined = |shape: &Shape| match *shape.dims() {
        [channels, height, width] => Some((channels, vec![height, width])),
        [positions, features] => Some((features, vec![positions])),
        [features] => Some((features, Vec::new())),
        _ => None,
    };
    let unfit = |shape: &Shape| shape_error(name, format!("joins images, sequences or vectors, got {shape}"));
    let (mut units, others) = joined(&inputs[0]).ok_or_else(|| unfit(&inputs[0]))?;
    for input in &inputs[1..] {
        let (more, other_sizes) = joined(input).ok_or_else(|| unfit(input))?;
        if other_sizes != others {
            let what = match others.len() {
                2 => "images of different sizes",
                1 => "sequences of different lengths",
                _ => "vectors and others",
            };
            return Err(shape_error(name, format!("joins {what}, {} and {input}", inputs[0])));
        }
        units = units.saturating_add(more);
    }
    Ok(match others[..] {
        [height, width] => Shape::image(units, height, width),
        [positions] => Shape::sequence(positions, units),
        _ => Shape::features(units),
    })
}

fn mixture_output(name: &str, rule: &MixtureOfExperts, inputs: &[Shape]) -> Result<Shape, GraphError> {
    let MixtureOfExperts { experts, chosen, .. } = *rule;
    if !(1..=experts).contains(&chosen) {
        return Err(shape_error(name, format!("cannot choose {chosen} of {experts} experts")));
    }
    if rule.width == 0 || rule.capacity == Some(0) {
        return Err(shape_error(name, "needs a width, and a capacity if it is set, of at least 1".into()));
    }
    if rule.sizes(inputs).is_none() {
        let problem = format!(
            "needs features or a sequence, and the scores of {experts} experts, got {} and {}",
            inputs[0], inputs[1]
        );
        return Err(shape_error(name, problem));
    }
    // The first matrices of all experts, which are not smaller than the second ones.
    let elements = [experts, rule.inner_rows(), inputs[0].innermost()];
    if !Shape::new(elements).is_valid() {
        return Err(shape_error(
            name,
            format!("has too many parameters: {experts} experts of {}", rule.width),
        ));
    }
    Ok(inputs[0].clone())
}

fn slice_output(name: &str, slice: &Slice, input: &Shape) -> Result<Shape, GraphError> {
    let &Slice { start, length } = slice;
    match input.dims() {
        [outermost, rest @ ..] if start.saturating_add(length) <= *outermost => {
            Ok(Shape::new([&[length], rest].concat()))
        }
        _ => Err(shape_error(name, format!("has no {length} positions from {start} on in {input}"))),
    }
}

fn check_input_count(name: &str, kind: &LayerKind, got: usize) -> Result<(), GraphError> {
    let (fits, expected) = match kind {
        LayerKind::Input => (got == 0, "no inputs"),
        LayerKind::Concat | LayerKind::Add => (got >= 2, "at least two inputs"),
        LayerKind::Multiply => (got == 2, "two inputs"),
        LayerKind::MixtureOfExperts(_) => (got == 2, "two inputs: features, and the scores of experts"),
        LayerKind::Opaque(_) => (got >= 1, "at least one input"),
        LayerKind::MultiHeadAttention(attention) if attention.padding => {
            (got == 2 || got == 4, "one input, or three: queries, keys and values, and one for padding")
        }
        LayerKind::AdditiveAttention(_) => (got == 3, "three inputs: queries, keys and values"),
        LayerKind::MultiHeadAttention(_) => {
            (got == 1 || got == 3, "one input, or three: queries, keys and values")
        }
        _ => (got == 1, "one input"),
    };
    if fits {
        Ok(())
    } else {
        Err(GraphError::InputCount { layer: name.into(), kind: kind.label(), expected, got })
    }
}

fn embedding(name: &str, embedding: &Embedding, input: &Shape) -> Result<Shape, GraphError> {
    let vocabulary = embedding.vocabulary;
    match input.dims() {
        [_] if vocabulary == 0 => Err(shape_error(name, "needs a vocabulary of at least one token".into())),
        [_] if embedding.padding.is_some_and(|padding| padding >= vocabulary) => {
            Err(shape_error(name, format!("has a padding token beyond its vocabulary of {vocabulary}")))
        }
        &[positions] => Ok(Shape::sequence(positions, embedding.features)),
        _ => Err(shape_error(name, format!("needs a vector of tokens, got {input}"))),
    }
}

fn scale_output(name: &str, scale: &Scale, input: &Shape) -> Result<Shape, GraphError> {
    match scale {
        Scale::Constant(factor) if !factor.is_finite() => {
            return Err(shape_error(name, "needs a finite factor".into()));
        }
        Scale::Channels => {
            image::sizes(name, input)?;
        }
        _ => {}
    }
    Ok(input.clone())
}

fn position_embedding(name: &str, rule: &PositionEmbedding, input: &Shape) -> Result<Shape, GraphError> {
    let (positions, _) = sequence(name, input)?;
    let &PositionEmbedding { positions: vectors, first, .. } = rule;
    if vectors.checked_sub(first) < Some(rule.used(positions)) {
        let from = if first == 0 { String::new() } else { format!(" from vector {first} on") };
        let problem = format!("has {vectors} positions, got a sequence of {positions}{from}");
        return Err(shape_error(name, problem));
    }
    Ok(input.clone())
}

fn rotary_embedding(name: &str, rule: &RotaryEmbedding, input: &Shape) -> Result<Shape, GraphError> {
    let (positions, features) = sequence(name, input)?;
    // Engines have 32 bits for a position.
    if rule.first.checked_add(positions).is_none_or(|end| u32::try_from(end).is_err()) {
        return Err(shape_error(name, format!("has positions of more than 32 bits, from {} on", rule.first)));
    }
    if rule.width == 0 || rule.width % 2 != 0 || features % rule.width != 0 {
        let message = format!("cannot divide {features} features into heads of {} in pairs", rule.width);
        return Err(shape_error(name, message));
    }
    let rotated = rule.rotated_features();
    if rotated == 0 || rotated % 2 != 0 || rotated > rule.width {
        let problem = format!("cannot rotate {rotated} features of a head of {} in pairs", rule.width);
        return Err(shape_error(name, problem));
    }
    if rule.scaling.is_some_and(|scaling| !scaling.is_valid()) {
        return Err(shape_error(name, "has a scaling of its angles with a number out of range".into()));
    }
    if !(rule.base > 0.0 && rule.base.is_finite()) {
        return Err(shape_error(name, "needs a base > 0".into()));
    }
    Ok(input.clone())
}

/// Returns the shape of all inputs. `verb` is what the layer does with them, for the error.
fn same_shape(name: &str, verb: &str, inputs: &[Shape]) -> Result<Shape, GraphError> {
    if let Some(other) = inputs.iter().find(|&shape| *shape != inputs[0]) {
        return Err(shape_error(name, format!("{verb} different shapes, {} and {other}", inputs[0])));
    }
    Ok(inputs[0].clone())
}

fn attention_output(
    name: &str,
    attention: &MultiHeadAttention,
    inputs: &[Shape],
) -> Result<Shape, GraphError> {
    if attention.scale.is_some_and(|scale| !(scale > 0.0 && scale.is_finite())) {
        return Err(shape_error(name, "needs a finite scale > 0".into()));
    }
    if !(0.0..1.0).contains(&attention.dropout) {
        return Err(shape_error(name, "needs a dropout probability p with 0 <= p < 1".into()));
    }
    if attention.window.is_some_and(|window| window == 0 || !attention.causal) {
        return Err(shape_error(name, "needs a window of at least one position, and to be causal".into()));
    }
    if attention.relative.is_some_and(|relative| !relative.is_valid(attention.causal)) {
        let problem = "needs at least two buckets of relative positions in each direction, and a maximum \
                       distance of more than half of them";
        return Err(shape_error(name, problem.into()));
    }
    if let Some(biases) = attention.alibi {
        if attention.relative.is_some() {
            return Err(shape_error(name, "has relative positions and linear biases".into()));
        }
        if !biases.is_valid(attention.heads) {
            let problem = format!("needs finite linear biases of {} heads or more", attention.heads);
            return Err(shape_error(name, problem));
        }
    }
    if let Some(sizes) = attention.sizes(inputs) {
        return Ok(Shape::sequence(sizes.positions, sizes.heads * sizes.width));
    }
    let (inputs, padding) = inputs.split_at(inputs.len() - usize::from(attention.padding));
    for input in inputs {
        sequence(name, input)?;
    }
    let others = MultiHeadAttention { padding: false, ..attention.clone() };
    if let (Some(sizes), [padding]) = (others.sizes(inputs), padding) {
        let keys = sizes.key_positions;
        return Err(shape_error(name, format!("needs a number for each of {keys} keys, got {padding}")));
    }
    let heads = attention.heads;
    let problem = if let [queries, keys, values] = inputs {
        let positions = if attention.causal { "of as many positions as the queries " } else { "" };
        format!(
            "needs queries of {heads} heads, and keys and values of one shape {positions}with heads of the \
             same size, whose number divides {heads}; got {queries}, {keys} and {values}"
        )
    } else {
        let features = inputs[0].innermost();
        format!("needs queries, keys and values that {heads} heads share evenly, got {features} features")
    };
    Err(shape_error(name, problem))
}

fn reshape_output(name: &str, reshape: &Reshape, input: &Shape) -> Result<Shape, GraphError> {
    if !reshape.output.is_valid() || reshape.output.elements() != input.elements() {
        return Err(shape_error(name, format!("cannot make {} of {input}", reshape.output)));
    }
    Ok(reshape.output.clone())
}

fn permute_output(name: &str, permute: &Permute, input: &Shape) -> Result<Shape, GraphError> {
    let dims = input.dims();
    let mut sorted = permute.order.clone();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq(0..dims.len()) {
        let problem = format!("order {:?} does not permute the dimensions of {input}", permute.order);
        return Err(shape_error(name, problem));
    }
    Ok(Shape::new(permute.order.iter().map(|&dim| dims[dim]).collect::<Vec<_>>()))
}

/// Returns the declared output shape of an opaque layer, after checking its parameters and labels.
fn declared_output(name: &str, opaque: &Opaque) -> Result<Shape, GraphError> {
    for (index, parameter) in opaque.parameters.iter().enumerate() {
        if opaque.parameters[..index].iter().any(|other| other.name == parameter.name) {
            return Err(shape_error(name, format!("has two parameters named `{}`", parameter.name)));
        }
        // A scalar parameter has no dimensions.
        if !parameter.dims.is_empty() && !Shape::new(parameter.dims.as_slice()).is_valid() {
            let problem =
                format!("parameter `{}` is empty or too large: {:?}", parameter.name, parameter.dims);
            return Err(shape_error(name, problem));
        }
    }
    match opaque.labels {
        Some(0) => Err(shape_error(name, "is a loss without labels".into())),
        Some(_) if opaque.output.elements() != 1 => Err(shape_error(
            name,
            format!("is a loss, and has an output of {} a sample, not of 1", opaque.output),
        )),
        _ => Ok(opaque.output.clone()),
    }
}

fn sequence(name: &str, shape: &Shape) -> Result<(usize, usize), GraphError> {
    let problem = || shape_error(name, format!("needs a sequence (positions x features), got {shape}"));
    shape.as_sequence().ok_or_else(problem)
}

fn shape_error(layer: &str, problem: String) -> GraphError {
    GraphError::Shape { layer: layer.into(), problem }
}
