//! Scaled dot-product attention. The function adds the launches of a pass to a plan (a kernel under
//! preparation). It fails if memory cannot be allocated or a GPU function cannot be loaded.

use layer_graph::{Layer, MultiHeadAttention};

use super::kernel::Argument;
use super::module::Family;
use super::plan::{Plan, size, tiles};
use crate::{EngineError, Pass, Role};

const FAMILY: Family = Family::Attention;

/// Plans a pass of an attention layer over `samples` samples. Returns `None` if the layer's output
/// is not a sequence.
pub(super) fn plan(
    plan: &mut Plan<'_>,
    layer: &Layer,
    rule: &MultiHeadAttention,
    samples: usize,
    pass: Pass,
) -> Result<Option<()>, EngineError> {
    let Some((positions, features)) = layer.output_shape().as_sequence() else { return Ok(None) };
    let heads = rule.heads;
    let width = features / heads;
    let scale = Argument::F32((1.0 / (width as f64).sqrt()) as f32);
    let shape = [size(positions), size(heads), size(width)];
    let common =
        [shape[0], shape[1], shape[2], size(usize::from(rule.causal)), scale, plan.operand(Role::Input(0))];
    // One block for each tile of each head of each sample.
    let grid = [samples * heads * tiles(positions, width), 1];
    let [y, saved] = [plan.operand(Role::Output), plan.operand(Role::Saved)];
    if pass != Pass::Backward {
        plan.launch((FAMILY, "attention_forward"), grid, [&common[..], &[y, saved]].concat())?;
        return Ok(Some(()));
    }
    let rows = samples * heads * positions;
    let means = plan.workspace(rows * size_of::<f32>())?;
    let (dy, dx) = (plan.operand(Role::OutputGradient), plan.operand(Role::InputGradient(0)));
    let arguments = [&[size(rows)], &shape[..], &[y, dy, means]].concat();
    plan.for_each_row((FAMILY, "attention_means"), rows, arguments)?;
    for kernel in ["attention_query_gradient", "attention_key_value_gradient"] {
        plan.launch((FAMILY, kernel), grid, [&common[..], &[saved, means, dy, dx]].concat())?;
    }
    Ok(Some(()))
}
