//! Mixtures of experts. The function adds the launches of a pass to a `KernelBuilder`, a kernel
//! under preparation. It fails as the functions of `KernelBuilder` do.

use layer_graph::{ExpertActivation, ExpertSizes, Layer, MixtureOfExperts};

use super::kernel::Argument;
use super::kernel_builder::KernelBuilder;
use super::module::Family;
use crate::{EngineError, Pass, Role};

const FAMILY: Family = Family::Experts;

/// Adds the launches of a pass of a mixture of experts over `samples` samples. Returns `None` if
/// its inputs do not fit.
pub(super) fn add_launches(
    builder: &mut KernelBuilder<'_>,
    layer: &Layer,
    rule: &MixtureOfExperts,
    samples: usize,
    pass: Pass,
) -> Result<Option<()>, EngineError> {
    let Some(ExpertSizes { positions, features, .. }) = rule.sizes(layer.input_shapes()) else {
        return Ok(None);
    };
    let &MixtureOfExperts { experts, chosen, width, .. } = rule;
    let inner_rows = rule.inner_rows();
    let all_positions = samples * positions;
    let rows = all_positions.saturating_mul(chosen);
    let activation = match rule.activation {
        ExpertActivation::Relu => 0,
        ExpertActivation::Gelu => 1,
        ExpertActivation::GeluTanh => 2,
        ExpertActivation::Silu => 3,
    };
    // Fields of `Sizes` in `kernels/experts.cu`.
    let sizes = Argument::fields([
        samples,
        positions,
        features,
        experts,
        chosen,
        width,
        activation,
        usize::from(rule.gated),
        usize::from(rule.normalised),
        rule.capacity.unwrap_or(positions).min(positions),
    ]);
    let [x, scores, first] =
        [Role::Input(0), Role::Input(1), Role::Parameters].map(|role| builder.operand(role));
    let second = first.offset(experts * inner_rows * features);
    let floats =
        |builder: &mut KernelBuilder<'_>, elements: usize| builder.workspace(elements * size_of::<f32>());
    let (choices, weights) = (floats(builder, rows)?, floats(builder, rows)?);
    builder.for_each((FAMILY, "experts_choose"), all_positions, [sizes, scores, choices, weights])?;
    let drops = rule.capacity.is_some_and(|capacity| capacity < positions);
    if drops {
        builder.for_each((FAMILY, "experts_limit"), samples * experts, [sizes, choices])?;
    }
    // Saved values have no rows for positions that a capacity drops.
    let saved = builder.operand(Role::Saved);
    let has_rows = !drops && !matches!(saved, Argument::U64(_));
    let inner = if has_rows { saved } else { floats(builder, rows * inner_rows)? };
    if !pass.is_backward() || !has_rows {
        let arguments = [sizes, choices, x, first, inner];
        builder.for_each_row((FAMILY, "experts_inner"), rows * inner_rows, arguments)?;
    }
    let factors = floats(builder, rows * width)?;
    builder.for_each((FAMILY, "experts_activate"), rows * width, [sizes, inner, factors])?;
    if !pass.is_backward() {
        let arguments = [sizes, choices, weights, factors, second, builder.operand(Role::Output)];
        builder.for_each_row((FAMILY, "experts_output"), all_positions * features, arguments)?;
        return Ok(Some(()));
    }
    let dy = builder.operand(Role::OutputGradient);
    let (gradients, inner_gradients) = (floats(builder, rows * width)?, floats(builder, rows * inner_rows)?);
    let arguments = [sizes, choices, second, dy, gradients];
    builder.for_each((FAMILY, "experts_factor_gradient"), rows * width, arguments)?;
    let arguments = [sizes, weights, inner, gradients, inner_gradients];
    builder.for_each((FAMILY, "experts_inner_gradient"), rows * width, arguments)?;
    if pass == Pass::Backward {
        let of_weights = floats(builder, rows)?;
        let [dx, of_scores] = [0, 1].map(|slot| builder.operand(Role::InputGradient(slot)));
        let arguments = [sizes, factors, gradients, of_weights];
        builder.for_each_row((FAMILY, "experts_weight_gradient"), rows, arguments)?;
        let arguments = [sizes, choices, inner_gradients, first, dx];
        builder.for_each((FAMILY, "experts_input_gradient"), all_positions * features, arguments)?;
        let arguments = [sizes, scores, choices, weights, of_weights, of_scores];
        builder.for_each((FAMILY, "experts_score_gradient"), all_positions, arguments)?;
    }
    let gradient = builder.operand(Role::ParameterGradient);
    let elements = experts * inner_rows * features;
    let arguments = [sizes, choices, x, inner_gradients, gradient];
    builder.for_each((FAMILY, "experts_first_gradient"), elements, arguments)?;
    let arguments = [sizes, choices, weights, factors, dy, gradient.offset(elements)];
    builder.for_each((FAMILY, "experts_second_gradient"), experts * features * width, arguments)?;
    Ok(Some(()))
}
