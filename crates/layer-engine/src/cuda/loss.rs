//! Softmax and cross entropy. The function adds the launches of a pass to a plan (a kernel under
//! preparation). It fails if memory cannot be allocated or a GPU function cannot be loaded.

use super::module::Family;
use super::plan::{Plan, size};
use crate::{EngineError, Role};

const FAMILY: Family = Family::Loss;

/// Plans a pass of softmax and cross entropy over `samples` samples, each with `positions` labels
/// of `classes` classes.
pub(super) fn plan(
    plan: &mut Plan<'_>,
    [samples, positions, classes]: [usize; 3],
    backward: bool,
) -> Result<(), EngineError> {
    let rows = samples * positions;
    let [saved, labels] = [plan.operand(Role::Saved), plan.operand(Role::Labels)];
    if backward {
        let (dy, dx) = (plan.operand(Role::OutputGradient), plan.operand(Role::InputGradient(0)));
        let arguments = [size(rows), size(classes), size(positions), saved, labels, dy, dx];
        return plan.for_each((FAMILY, "cross_entropy_backward"), rows * classes, arguments);
    }
    let bytes = rows * size_of::<f64>();
    let [losses, right] = [plan.workspace(bytes)?, plan.workspace(bytes)?];
    let scores = plan.operand(Role::Input(0));
    let arguments = [size(rows), size(classes), scores, labels, saved, losses, right];
    plan.for_each_row((FAMILY, "cross_entropy_positions"), rows, arguments)?;
    let sizes = [size(samples), size(positions), losses, right];
    let arguments = [&sizes[..], &[plan.operand(Role::Output)]].concat();
    plan.for_each_row((FAMILY, "cross_entropy_samples"), samples, arguments)?;
    let arguments = [&sizes[..], &[plan.operand(Role::Metrics)]].concat();
    plan.launch((FAMILY, "cross_entropy_metrics"), [1, 1], arguments)
}
