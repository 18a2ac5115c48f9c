//! Checks of normalisations.

use super::{image, shape_error};
use crate::{GraphError, GroupNorm, LayerKind, LayerNorm, RmsNorm, Shape};

/// Returns the shape of a normalised input, which is that of the input. `kind` is a normalisation.
pub(super) fn normalised(name: &str, kind: &LayerKind, input: &Shape) -> Result<Shape, GraphError> {
    let is_positive = |epsilon: f64| epsilon > 0.0 && epsilon.is_finite();
    let problem = match kind {
        LayerKind::BatchNorm(norm) => {
            let is_valid = is_positive(norm.epsilon) && (0.0..=1.0).contains(&norm.momentum);
            (!is_valid).then(|| "needs epsilon > 0 and momentum in 0..=1".to_owned())
        }
        LayerKind::LayerNorm(LayerNorm { epsilon }) | LayerKind::RmsNorm(RmsNorm { epsilon, .. }) => {
            (!is_positive(*epsilon)).then(|| "needs epsilon > 0".to_owned())
        }
        LayerKind::GroupNorm(GroupNorm { groups, epsilon }) => {
            let channels = input.dims().first().copied().unwrap_or_default();
            if *groups == 0 || channels % groups != 0 {
                Some(format!("{groups} groups do not divide {channels} channels"))
            } else {
                (!is_positive(*epsilon)).then(|| "needs epsilon > 0".to_owned())
            }
        }
        LayerKind::LocalResponseNorm(norm) => {
            let finite = norm.alpha.is_finite() && norm.beta.is_finite() && norm.k.is_finite();
            let is_valid = norm.size > 0 && finite && norm.alpha >= 0.0 && norm.k > 0.0;
            image::sizes(name, input)?;
            (!is_valid).then(|| "needs size >= 1, alpha >= 0 and k > 0, all finite".to_owned())
        }
        _ => None,
    };
    problem.map_or_else(|| Ok(input.clone()), |problem| Err(shape_error(name, problem)))
}
