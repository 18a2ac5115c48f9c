//! Scaled dot-product attention. The function adds the launches of a pass to a `KernelBuilder`, a
//! kernel under preparation. It fails as the functions of `KernelBuilder` do.

use cuda::{AttentionPass, AttentionShape, Numerics};
use layer_graph::{Layer, MultiHeadAttention};

use super::kernel::Argument;
use super::kernel_builder::{Candidate, KernelBuilder, size, tiles};
use super::module::Family;
use super::vendor;
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
    let shape = AttentionShape {
        samples,
        positions,
        heads,
        width,
        causal: rule.causal,
        pass: if pass == Pass::Backward { AttentionPass::Backward } else { AttentionPass::Forward },
    };
    let [x, y, saved] = [Role::Input(0), Role::Output, Role::Saved].map(|role| builder.operand(role));
    let rows = samples * heads * positions;
    let scale = Argument::F32((1.0 / (width as f64).sqrt()) as f32);
    let sizes = [size(positions), size(heads), size(width)];
    let common = [sizes[0], sizes[1], sizes[2], size(usize::from(rule.causal)), scale, x];
    // One block for each tile of each head of each sample.
    let grid = [samples * heads * tiles(positions, width), 1];
    if pass != Pass::Backward {
        let vendor = |builder: &mut KernelBuilder<'_>| {
            // The library stores the statistics in evaluation, too.
            let is_saved = matches!(saved, Argument::Write(..));
            let saved = if is_saved { saved } else { builder.workspace(rows * size_of::<f32>())? };
            vendor::attentions(builder, &shape, &[x, y, saved])
        };
        let arguments = [&common[..], &[y, saved]].concat();
        let own =
            |builder: &mut KernelBuilder<'_>| builder.launch((FAMILY, "attention_forward"), grid, arguments);
        return choose(builder, "attention", &shape, vendor, own).map(Some);
    }
    let (dy, dx) = (builder.operand(Role::OutputGradient), builder.operand(Role::InputGradient(0)));
    let vendor =
        |builder: &mut KernelBuilder<'_>| vendor::attentions(builder, &shape, &[x, y, saved, dy, dx]);
    let own = |builder: &mut KernelBuilder<'_>| {
        let means = builder.workspace(rows * size_of::<f32>())?;
        let arguments = [&[size(rows)], &sizes[..], &[y, dy, means]].concat();
        builder.for_each_row((FAMILY, "attention_means"), rows, arguments)?;
        ["attention_query_gradient", "attention_key_value_gradient"].into_iter().try_for_each(|kernel| {
            builder.launch((FAMILY, kernel), grid, [&common[..], &[saved, means, dy, dx]].concat())
        })
    };
    choose(builder, "gradient of attention", &shape, vendor, own).map(Some)
}

/// Adds the launches of one of several candidates with operands in 16 bits, or those of `own` in
/// single precision, which the library does not compute.
fn choose(
    builder: &mut KernelBuilder<'_>,
    part: &'static str,
    shape: &AttentionShape,
    vendor: impl FnOnce(&mut KernelBuilder<'_>) -> Result<Vec<Candidate>, EngineError>,
    own: impl FnOnce(&mut KernelBuilder<'_>) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    match builder.numerics() {
        Numerics::Bf16 => builder.choose(part, shape, vendor, own),
        Numerics::F32 | Numerics::Tf32 => own(builder),
    }
}
