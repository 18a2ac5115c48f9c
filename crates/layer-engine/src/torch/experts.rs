//! Mixtures of experts. The backward pass is that of [`autograd`].
//!
//! Each expert computes all positions, and those that did not choose it have the weight zero: the
//! sizes of all tensors are then known before the launch, as captured graphs need. It computes as
//! many times more products as there are experts for each one that is chosen.

use layer_graph::{ExpertActivation, MixtureOfExperts};
use tch::{Kind, Tensor};

use super::Failure;
use super::autograd;
use super::dtypes::DTypes;
use super::launch::{LaunchFunction, LayerOperands};

/// Returns the forward pass.
pub(super) fn forward(operands: LayerOperands, rule: &MixtureOfExperts, dtypes: DTypes) -> LaunchFunction {
    let rule = rule.clone();
    autograd::forward(operands, move |leaves| outputs(leaves, &rule, dtypes))
}

/// Computes the outputs. `leaves` are the features, the scores and both parameters.
fn outputs(leaves: &[Tensor], rule: &MixtureOfExperts, dtypes: DTypes) -> Result<Tensor, Failure> {
    let (input, scores) = (&leaves[0], &leaves[1]);
    let shares = shares(scores, rule)?;
    let narrowed = dtypes.narrow(input)?;
    let mut sum = input.f_zeros_like()?;
    for expert in 0..rule.experts as i64 {
        let [first, second] = [&leaves[2], &leaves[3]].map(|all| all.f_select(0, expert));
        let share = shares.f_narrow(-1, expert, 1)?;
        // Zeros where the expert is not chosen: its results there may overflow, and infinity times
        // its share of 0 is not 0.
        let chosen = narrowed.f_masked_fill(&share.f_eq(0)?, 0)?;
        let inner = dtypes.widen(&chosen.f_matmul(&dtypes.narrow(&first?)?.f_tr()?)?)?;
        let width = rule.width as i64;
        let factors = activated(&inner.f_narrow(-1, 0, width)?, rule.activation)?;
        let factors = if rule.gated { factors.f_mul(&inner.f_narrow(-1, width, width)?)? } else { factors };
        let output = dtypes.widen(&dtypes.narrow(&factors)?.f_matmul(&dtypes.narrow(&second?)?.f_tr()?)?)?;
        sum = sum.f_add(&output.f_mul(&share)?)?;
    }
    Ok(sum)
}

/// Returns the weight of each expert at each position, 0 for those that are not chosen or have
/// their capacity of positions of the sample.
fn shares(scores: &Tensor, rule: &MixtureOfExperts) -> Result<Tensor, Failure> {
    // Stable: of equal scores, the lower index comes first.
    let order = scores.f_argsort_stable(true, -1, true)?;
    let chosen = order.f_narrow(-1, 0, rule.chosen as i64)?;
    let mut is_chosen = scores.f_detach()?.f_zeros_like()?.f_scatter_value(-1, &chosen, 1.0)?;
    let mut shares = scores.f_softmax(-1, None)?.f_mul(&is_chosen)?;
    if rule.normalised {
        shares = shares.f_div(&shares.f_sum_dim_intlist(-1, true, None)?)?;
    }
    // Without positions there is at most one for each expert.
    if let Some(capacity) = rule.capacity.filter(|_| scores.dim() == 3) {
        let before = is_chosen.f_cumsum(1, Kind::Int64)?;
        is_chosen = before.f_le(capacity as i64)?.f_to_kind(scores.kind())?;
        shares = shares.f_mul(&is_chosen)?;
    }
    Ok(shares)
}

fn activated(x: &Tensor, activation: ExpertActivation) -> Result<Tensor, Failure> {
    Ok(match activation {
        ExpertActivation::Relu => x.f_relu()?,
        ExpertActivation::Gelu => x.f_gelu("none")?,
        ExpertActivation::GeluTanh => x.f_gelu("tanh")?,
        ExpertActivation::Silu => x.f_silu()?,
    })
}
