//! Embeddings, position embeddings and class tokens. Each function adds the launches of a pass to a
//! plan (a kernel under preparation). It fails if a GPU function cannot be loaded.

use super::kernel::Argument;
use super::module::Family;
use super::plan::{Plan, size};
use super::rearrange::{StridedRows, copy_rows};
use crate::{EngineError, Pass, Role};

const FAMILY: Family = Family::Sequence;

fn is_backward(pass: Pass) -> bool {
    matches!(pass, Pass::Backward | Pass::BackwardParameters)
}

/// Plans a pass of an embedding over `tokens` tokens of all samples. `vocabulary` is the number of
/// different tokens, `features` the length of the vector of each.
pub(super) fn embedding(
    plan: &mut Plan<'_>,
    tokens: usize,
    [vocabulary, features]: [usize; 2],
    pass: Pass,
) -> Result<(), EngineError> {
    let sizes = [size(tokens), size(vocabulary), size(features), plan.operand(Role::Input(0))];
    if !is_backward(pass) {
        let arguments = [&sizes[..], &[plan.operand(Role::Parameters), plan.operand(Role::Output)]].concat();
        return plan.for_each((FAMILY, "embedding_forward"), tokens * features, arguments);
    }
    if pass == Pass::Backward {
        // A token is an index: there is no gradient with respect to it.
        let arguments = [size(tokens), plan.operand(Role::InputGradient(0))];
        plan.for_each((Family::Elementwise, "fill_zeros"), tokens, arguments)?;
    }
    let (dy, gradient) = (plan.operand(Role::OutputGradient), plan.operand(Role::ParameterGradient));
    plan.launch((FAMILY, "embedding_gradient"), [vocabulary, 1], [&sizes[..], &[dy, gradient]].concat())
}

/// Plans a pass of a position embedding over `samples` samples of `elements` elements. The layer
/// has `parameters` parameters, of which the first `elements` are added to each sample.
pub(super) fn positions(
    plan: &mut Plan<'_>,
    [samples, elements, parameters]: [usize; 3],
    pass: Pass,
) -> Result<(), EngineError> {
    if !is_backward(pass) {
        let (x, y) = (plan.operand(Role::Input(0)), plan.operand(Role::Output));
        let arguments = [size(samples), size(elements), x, plan.operand(Role::Parameters), y];
        return plan.for_each((FAMILY, "add_to_rows"), samples * elements, arguments);
    }
    input_gradient(plan, [samples, elements], elements, 0, pass)?;
    sum_of_rows(plan, samples, elements, parameters)
}

/// Plans a pass of a class token, which is prepended to each of `samples` samples of `elements`
/// elements. `token` is the number of elements of the class token.
pub(super) fn class_token(
    plan: &mut Plan<'_>,
    [samples, elements, token]: [usize; 3],
    pass: Pass,
) -> Result<(), EngineError> {
    let longer = elements + token;
    if !is_backward(pass) {
        let rows = |operand: Argument, stride| StridedRows { operand, stride };
        let (x, y) = (plan.operand(Role::Input(0)), plan.operand(Role::Output));
        // A stride of 0 repeats the parameters for each sample.
        let parameters = rows(plan.operand(Role::Parameters), 0);
        copy_rows(plan, [samples, token], parameters, rows(y, longer))?;
        return copy_rows(plan, [samples, elements], rows(x, elements), rows(y.offset(token), longer));
    }
    input_gradient(plan, [samples, elements], longer, token, pass)?;
    sum_of_rows(plan, samples, longer, token)
}

/// Plans the copy of each sample's gradient from element `start` on, if the pass computes the input
/// gradient.
fn input_gradient(
    plan: &mut Plan<'_>,
    [samples, elements]: [usize; 2],
    stride: usize,
    start: usize,
    pass: Pass,
) -> Result<(), EngineError> {
    if pass != Pass::Backward {
        return Ok(());
    }
    let from = StridedRows { operand: plan.operand(Role::OutputGradient).offset(start), stride };
    let to = StridedRows { operand: plan.operand(Role::InputGradient(0)), stride: elements };
    copy_rows(plan, [samples, elements], from, to)
}

/// Plans the gradient of the parameters: the sum over the samples of the first elements of each.
fn sum_of_rows(
    plan: &mut Plan<'_>,
    samples: usize,
    stride: usize,
    parameters: usize,
) -> Result<(), EngineError> {
    let (dy, gradient) = (plan.operand(Role::OutputGradient), plan.operand(Role::ParameterGradient));
    let arguments = [size(samples), size(stride), size(parameters), dy, gradient];
    plan.for_each((FAMILY, "sum_of_rows"), parameters, arguments)
}
