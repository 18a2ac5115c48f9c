use tch::{Kind, Tensor};

use super::Failure;
use super::launch::{Launch, LaunchFunction, LayerOperands};
use crate::Role;

/// Numbers of classes or of tokens, which must be below `limit`.
#[derive(Debug, Clone)]
pub(super) struct Indices {
    pub(super) layer: String,
    pub(super) limit: usize,
    /// Error for an invalid number, on devices whose results can be checked; `None` on GPUs.
    pub(super) invalid: Option<fn(String, f64, usize) -> Failure>,
}

impl Indices {
    pub(super) fn limit(&self) -> i64 {
        self.limit as i64
    }

    /// Returns the numbers as integers within the limit, and which of them were invalid.
    pub(super) fn convert(&self, numbers: &Tensor) -> Result<(Tensor, Tensor), Failure> {
        let mut whole = numbers.f_to_kind(Kind::Int64)?;
        let indices = whole.f_clamp_(0, self.limit() - 1)?;
        let changed = numbers.f_ne_tensor(&indices)?;
        if let Some(invalid) = self.invalid {
            if changed.f_any()?.f_int64_value(&[])? != 0 {
                let first = numbers.f_masked_select(&changed)?.f_double_value(&[0])?;
                return Err(invalid(self.layer.clone(), first, self.limit));
            }
        }
        Ok((indices, changed))
    }
}

/// Softmax and cross entropy over the classes of each position. Saves the logarithms of the
/// probabilities.
pub(super) struct CrossEntropyKernel {
    pub(super) operands: LayerOperands,
    pub(super) labels: Indices,
    pub(super) samples: i64,
}

impl CrossEntropyKernel {
    fn labels(&self, launch: &Launch<'_, '_>) -> Result<(Tensor, Tensor), Failure> {
        self.labels.convert(&self.operands.source(launch, Role::Labels)?.flat()?.f_view([-1, 1])?)
    }

    pub(super) fn forward(self) -> LaunchFunction {
        Box::new(move |launch| {
            let (labels, wrong) = self.labels(launch)?;
            let scores = self.operands.input(launch)?.f_view([-1, self.labels.limit()])?;
            let shares = scores.f_log_softmax(-1, None)?;
            let losses = shares.f_gather(1, &labels, false)?.f_neg()?.f_masked_fill(&wrong, f64::NAN)?;
            let right = scores.f_argmax(1, true)?.f_eq_tensor(&labels)?.f_to_kind(scores.kind())?;
            let mean = |positions: &Tensor| -> Result<Tensor, Failure> {
                Ok(positions.f_view([self.samples, -1])?.f_mean_dim([1i64].as_slice(), false, None)?)
            };
            let (losses, right) = (mean(&losses)?, mean(&right)?);
            let sums = [losses.f_sum(Kind::Double)?, right.f_sum(Kind::Double)?];
            self.operands.put(
                launch,
                Role::Metrics,
                &Tensor::f_stack(&sums, 0)?.f_to_kind(scores.kind())?,
            )?;
            self.operands.put(launch, Role::Output, &losses)?;
            self.operands.save(launch, vec![shares])
        })
    }

    pub(super) fn backward(self) -> LaunchFunction {
        Box::new(move |launch| {
            let [shares] = self.operands.saved(launch)?;
            let (labels, _) = self.labels(launch)?;
            let positions = shares.size()[0] / self.samples;
            let scale = self.operands.output_gradient(launch)?.f_div_scalar(positions)?;
            let scale = scale.f_expand([self.samples, positions], false)?.f_reshape([-1, 1])?;
            let mut gradient = shares.f_exp()?.f_mul_(&scale)?;
            let _ = gradient.f_scatter_add_(1, &labels, &scale.f_neg()?)?;
            self.operands.put(launch, Role::InputGradient(0), &gradient)
        })
    }
}
