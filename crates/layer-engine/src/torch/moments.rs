//! Sums of a batch normalisation over samples.

use tch::{Kind, Tensor};

use super::Failure;

/// Sums of a batch normalisation over the samples of a shard, in the form of libtorch's kernels.
/// Tensors have one element per channel; `count` is the number of values per channel.
#[derive(Debug)]
pub(super) enum Moments {
    /// Mean and `1 / sqrt(variance + epsilon)` of each channel, in the forward pass.
    Forward { mean: Tensor, inverse_deviation: Tensor, epsilon: f64, count: f64 },
    /// Sums of the output gradient `g`, of `g * (x - mean)`, and of `g * normalised x` of each
    /// channel.
    Backward { gradient: Tensor, centred: Tensor, normalised: Tensor, count: f64 },
}

impl Moments {
    /// Returns first sums, second sums and count in one tensor, as `Role::Moments` and
    /// `Role::GradientMoments` define them.
    ///
    /// # Errors
    /// If libtorch fails.
    pub(super) fn flatten(&self) -> Result<Tensor, Failure> {
        let (kind, count, sums) = match self {
            Self::Forward { mean, inverse_deviation, epsilon, count } => {
                let double = |tensor: &Tensor| tensor.f_to_kind(Kind::Double);
                let (mean, inverse) = (double(mean)?, double(inverse_deviation)?);
                let variance = inverse.f_pow_tensor_scalar(-2)?.f_sub_scalar(*epsilon)?;
                let squares = variance.f_add(&mean.f_square()?)?;
                (
                    inverse_deviation.kind(),
                    *count,
                    [mean.f_mul_scalar(*count)?, squares.f_mul_scalar(*count)?],
                )
            }
            Self::Backward { gradient, normalised, count, .. } => {
                (gradient.kind(), *count, [gradient.shallow_clone(), normalised.shallow_clone()])
            }
        };
        let [first, second] = sums;
        let count = Tensor::f_full([1], count, (first.kind(), first.device()))?;
        Ok(Tensor::f_cat(&[first, second, count], 0)?.f_to_kind(kind)?)
    }
}
