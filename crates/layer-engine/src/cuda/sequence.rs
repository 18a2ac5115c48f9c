//! Embeddings, position embeddings and class tokens. Each function adds the launches of a pass to a
//! `KernelBuilder`, a kernel under preparation. It fails as the functions of `KernelBuilder` do.

use std::f64::consts::TAU;

use layer_graph::{Embedding, PositionEmbedding, RotaryEmbedding, Shape};

use super::kernel::Argument;
use super::kernel_builder::{KernelBuilder, size};
use super::module::Family;
use super::rearrange::{StridedRows, copy_rows};
use crate::{EngineError, Pass, Role};

const FAMILY: Family = Family::Sequence;

/// Adds the launches of a pass of an embedding over `tokens` tokens of all samples.
pub(super) fn embedding(
    builder: &mut KernelBuilder<'_>,
    tokens: usize,
    rule: &Embedding,
    pass: Pass,
) -> Result<(), EngineError> {
    let &Embedding { vocabulary, features, padding } = rule;
    let sizes = [size(tokens), size(vocabulary), size(features), builder.operand(Role::Input(0))];
    if !pass.is_backward() {
        let arguments =
            [&sizes[..], &[builder.operand(Role::Parameters), builder.operand(Role::Output)]].concat();
        return builder.for_each((FAMILY, "embedding_forward"), tokens * features, arguments);
    }
    if pass == Pass::Backward {
        // A token is an index: there is no gradient with respect to it.
        let arguments = [size(tokens), builder.operand(Role::InputGradient(0))];
        builder.for_each((Family::Elementwise, "fill_zeros"), tokens, arguments)?;
    }
    let (dy, gradient) = (builder.operand(Role::OutputGradient), builder.operand(Role::ParameterGradient));
    // The vocabulary itself is no token.
    let arguments = [&sizes[..], &[dy, gradient, size(padding.unwrap_or(vocabulary))]].concat();
    builder.launch((FAMILY, "embedding_gradient"), [vocabulary, 1], arguments)
}

/// Adds the launches of a pass of a position embedding over `samples` samples of shape `input`.
pub(super) fn positions(
    builder: &mut KernelBuilder<'_>,
    input: &Shape,
    rule: &PositionEmbedding,
    samples: usize,
    pass: Pass,
) -> Result<(), EngineError> {
    let features = input.innermost();
    let (total, first) = (samples * input.elements(), rule.first * features);
    // The same parameters are added to each row: a sample, or a position.
    let row = rule.used(input.elements() / features) * features;
    let rows = total / row;
    if !pass.is_backward() {
        let (x, y) = (builder.operand(Role::Input(0)), builder.operand(Role::Output));
        let learned = builder.operand(Role::Parameters).offset(first);
        let arguments = [size(rows), size(row), x, learned, y];
        return builder.for_each((FAMILY, "add_to_rows"), total, arguments);
    }
    input_gradient(builder, [rows, row], row, 0, pass)?;
    if !rule.repeated {
        return sum_of_rows(builder, [rows, row], rule.positions * features, first);
    }
    // There are many short rows, which are summed as those of a bias.
    let (dy, gradient) = (builder.operand(Role::OutputGradient), builder.operand(Role::ParameterGradient));
    let parameters = rule.positions * features;
    builder.for_each((Family::Elementwise, "fill_zeros"), parameters, [size(parameters), gradient])?;
    let arguments = [size(rows), size(row), dy, gradient.offset(first)];
    builder.launch((Family::MatrixProduct, "linear_bias_gradient"), [row.div_ceil(32), 1], arguments)
}

/// Adds the launch of a pass of a rotary embedding of samples of shape `input`.
pub(super) fn rotary_embedding(
    builder: &mut KernelBuilder<'_>,
    input: &Shape,
    rule: &RotaryEmbedding,
    samples: usize,
    backward: bool,
) -> Result<(), EngineError> {
    let (from, to) = if backward {
        (Role::OutputGradient, Role::InputGradient(0))
    } else {
        (Role::Input(0), Role::Output)
    };
    let (pairs, features) = (samples * input.elements() / 2, input.innermost());
    let rotated = rule.rotated_features();
    let sizes = [pairs, features, rule.width, rotated, usize::from(rule.interleaved)];
    let places = [input.elements() / features, rule.first];
    // Angle of each pair at position 1 as a part of a full circle, in words of 32 bits.
    let direction = if backward { -1.0 } else { 1.0 };
    let turns = (0..rotated / 2).flat_map(|pair| {
        let bits = (direction * rule.frequency(pair) / TAU).to_bits();
        [bits as u32, (bits >> 32) as u32]
    });
    let turns = builder.table(&turns.collect::<Vec<_>>())?;
    let operands = [turns, builder.operand(from), builder.operand(to)];
    let arguments = [&sizes.map(size)[..], &places.map(size), &operands].concat();
    builder.for_each((FAMILY, "rotate"), pairs, arguments)
}

/// Adds the launches of a pass of a class token, which is prepended to each of `samples` samples of
/// `elements` elements. `token` is the number of elements of the class token.
pub(super) fn class_token(
    builder: &mut KernelBuilder<'_>,
    [samples, elements, token]: [usize; 3],
    pass: Pass,
) -> Result<(), EngineError> {
    let longer = elements + token;
    if !pass.is_backward() {
        let rows = |operand: Argument, stride| StridedRows { operand, stride };
        let (x, y) = (builder.operand(Role::Input(0)), builder.operand(Role::Output));
        // A stride of 0 repeats the parameters for each sample.
        let parameters = rows(builder.operand(Role::Parameters), 0);
        copy_rows(builder, [samples, token], parameters, rows(y, longer))?;
        return copy_rows(builder, [samples, elements], rows(x, elements), rows(y.offset(token), longer));
    }
    input_gradient(builder, [samples, elements], longer, token, pass)?;
    sum_of_rows(builder, [samples, longer], token, 0)
}

/// Adds the launch that copies each sample's gradient from element `start` on, if the pass computes
/// the input gradient.
fn input_gradient(
    builder: &mut KernelBuilder<'_>,
    [samples, elements]: [usize; 2],
    stride: usize,
    start: usize,
    pass: Pass,
) -> Result<(), EngineError> {
    if pass != Pass::Backward {
        return Ok(());
    }
    let from = StridedRows { operand: builder.operand(Role::OutputGradient).offset(start), stride };
    let to = StridedRows { operand: builder.operand(Role::InputGradient(0)), stride: elements };
    copy_rows(builder, [samples, elements], from, to)
}

/// Adds the launch that computes the gradient of the parameters: from the parameter `first` on, the
/// sum of the rows, each of `row` elements, as far as there are parameters.
fn sum_of_rows(
    builder: &mut KernelBuilder<'_>,
    [rows, row]: [usize; 2],
    parameters: usize,
    first: usize,
) -> Result<(), EngineError> {
    let (dy, gradient) = (builder.operand(Role::OutputGradient), builder.operand(Role::ParameterGradient));
    let arguments = [size(rows), size(row), size(parameters), size(first), dy, gradient];
    builder.for_each((FAMILY, "sum_of_rows"), parameters, arguments)
}
