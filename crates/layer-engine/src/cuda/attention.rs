//! Scaled dot-product attention. The function adds the launches of a pass to a `KernelBuilder`, a
//! kernel under preparation. It fails as the functions of `KernelBuilder` do.

use layer_graph::{Layer, MultiHeadAttention};

use super::kernel::Argument;
use super::kernel_builder::{KernelBuilder, size, tiles};
use super::module::Family;
use crate::{EngineError, Pass, Role};

const FAMILY: Family = Family::Attention;

/// Adds the launches of a pass of an attention layer over `samples` samples. Returns `None` if the
/// layer's output is not a sequence.
pub(super) fn add_launches(
    builder: &mut KernelBuilder<'_>,
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
    let common = [
        shape[0],
        shape[1],
        shape[2],
        size(usize::from(rule.causal)),
        scale,
        builder.operand(Role::Input(0)),
    ];
    // One block for each tile of each head of each sample.
    let grid = [samples * heads * tiles(positions, width), 1];
    let [y, saved] = [builder.operand(Role::Output), builder.operand(Role::Saved)];
    if pass != Pass::Backward {
        builder.launch((FAMILY, "attention_forward"), grid, [&common[..], &[y, saved]].concat())?;
        return Ok(Some(()));
    }
    let rows = samples * heads * positions;
    let means = builder.workspace(rows * size_of::<f32>())?;
    let (dy, dx) = (builder.operand(Role::OutputGradient), builder.operand(Role::InputGradient(0)));
    let arguments = [&[size(rows)], &shape[..], &[y, dy, means]].concat();
    builder.for_each_row((FAMILY, "attention_means"), rows, arguments)?;
    for kernel in ["attention_query_gradient", "attention_key_value_gradient"] {
        builder.launch((FAMILY, kernel), grid, [&common[..], &[saved, means, dy, dx]].concat())?;
    }
    Ok(Some(()))
}
