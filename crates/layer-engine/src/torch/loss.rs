//! Losses, and the conversion of labels and tokens to indices. The *scores* are
//! the inputs of the softmax, one for each class; a *position* is a prediction with its own label;
//! the *metrics* are those of `Role::Metrics`.

use layer_graph::{ElementwiseLoss, SoftmaxCrossEntropy};
use tch::{Kind, Tensor};

use super::Failure;
use super::launch::{Launch, LaunchFunction, LayerOperands};
use crate::Role;

/// Conversion of class labels or tokens, which are stored as floating-point numbers, to integers in
/// `0..limit`.
#[derive(Debug, Clone)]
pub(super) struct IndexConversion {
    /// Name of the layer, for error messages.
    pub(super) layer: String,
    /// Number of classes or of tokens in the vocabulary.
    pub(super) limit: usize,
    /// Function that creates the error for an invalid number, from the name of the layer, the
    /// number and the limit. `None` on GPUs, where numbers are not checked.
    pub(super) invalid: Option<fn(String, f64, usize) -> Failure>,
}

impl IndexConversion {
    /// Returns the number of classes or tokens in libtorch's integers.
    pub(super) fn limit(&self) -> i64 {
        self.limit as i64
    }

    /// Returns the numbers as integers clamped to `0..limit`, and a boolean tensor that is true
    /// where a number was invalid.
    ///
    /// # Errors
    /// The error of `invalid`, if it is set, for the first invalid number.
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

/// Labels of a launch, in columns.
struct Labels {
    /// Class of each position, a valid one also if its label is not.
    classes: Tensor,
    /// Whether the label of each position is invalid.
    wrong: Tensor,
    /// Whether the label of each position is ignored, and the weight of each sample.
    ignored: Option<(Tensor, Tensor)>,
}

/// Softmax and cross entropy over the classes of each position. Saves the natural logarithms of the
/// probabilities, in place of the scores if the pass is in place.
pub(super) struct CrossEntropyKernel {
    /// Operands of the pass that is prepared.
    operands: LayerOperands,
    /// Conversion of the labels.
    labels: IndexConversion,
    /// Share of the target that is spread over the classes.
    smoothing: f64,
    /// Label of positions that are ignored. With one, the weight of each sample is behind its
    /// labels.
    ignored: Option<i64>,
    /// Number of samples of the shard.
    samples: i64,
    /// Number of positions over which the loss of a sample is a mean.
    mean_positions: i64,
}

impl CrossEntropyKernel {
    /// Creates the pass of a shard of `samples` samples.
    pub(super) fn new(
        operands: LayerOperands,
        labels: IndexConversion,
        rule: &SoftmaxCrossEntropy,
        samples: usize,
        mean_positions: usize,
    ) -> Self {
        let [samples, mean_positions] = [samples, mean_positions].map(|count| count as i64);
        Self {
            operands,
            labels,
            smoothing: rule.label_smoothing,
            ignored: rule.ignored_label.map(i64::from),
            samples,
            mean_positions,
        }
    }

    fn labels(&self, launch: &Launch<'_, '_>) -> Result<Labels, Failure> {
        let values = self.operands.source(launch, Role::Labels)?.flat()?;
        let Some(ignored) = self.ignored else {
            let (classes, wrong) = self.labels.convert(&values.f_view([-1, 1])?)?;
            return Ok(Labels { classes, wrong, ignored: None });
        };
        let values = values.f_view([self.samples, -1])?;
        let positions = values.size()[1] - 1;
        let labels = values.f_narrow(1, 0, positions)?.f_reshape([-1, 1])?;
        let is_ignored = labels.f_eq(ignored)?;
        let (classes, wrong) = self.labels.convert(&labels.f_masked_fill(&is_ignored, 0)?)?;
        Ok(Labels { classes, wrong, ignored: Some((is_ignored, values.f_select(1, positions)?)) })
    }

    /// Returns whether the pass updates its input in place.
    fn is_in_place(&self) -> bool {
        self.operands.writes(Role::Input(0))
    }

    /// Returns the input that the pass updates, as a row for each position.
    fn updated_input(&self, launch: &mut Launch<'_, '_>) -> Result<Tensor, Failure> {
        let flat = self.operands.target(launch, Role::Input(0))?.flat()?;
        Ok(flat.f_view([-1, self.labels.limit()])?)
    }

    /// Returns the computation of the losses and the metrics, in training and evaluation.
    pub(super) fn forward(self) -> LaunchFunction {
        Box::new(move |launch| {
            let Labels { classes: labels, wrong, ignored } = self.labels(launch)?;
            let scores = if self.is_in_place() {
                self.updated_input(launch)?
            } else {
                self.operands.input(launch)?.f_view([-1, self.labels.limit()])?
            };
            let shares = scores.f_log_softmax(-1, None)?;
            let mut losses = shares.f_gather(1, &labels, false)?.f_mul_scalar(self.smoothing - 1.0)?;
            if self.smoothing > 0.0 {
                let mean = shares.f_mean_dim([1i64].as_slice(), true, None)?;
                losses = losses.f_sub(&mean.f_mul_scalar(self.smoothing)?)?;
            }
            let mut losses = losses.f_masked_fill(&wrong, f64::NAN)?;
            let mut right = scores.f_argmax(1, true)?.f_eq_tensor(&labels)?.f_to_kind(scores.kind())?;
            if let Some((is_ignored, _)) = &ignored {
                losses = losses.f_masked_fill(is_ignored, 0)?;
                right = right.f_masked_fill(is_ignored, 0)?;
            }
            let mean = |positions: &Tensor| -> Result<Tensor, Failure> {
                let sums = positions.f_view([self.samples, -1])?.f_sum_dim_intlist(
                    [1i64].as_slice(),
                    false,
                    None,
                )?;
                let means = sums.f_div_scalar(self.mean_positions)?;
                match &ignored {
                    Some((_, weights)) => Ok(means.f_mul(weights)?),
                    None => Ok(means),
                }
            };
            let (losses, right) = (mean(&losses)?, mean(&right)?);
            let sums = [losses.f_sum(Kind::Double)?, right.f_sum(Kind::Double)?];
            self.operands.put(
                launch,
                Role::Metrics,
                &Tensor::f_stack(&sums, 0)?.f_to_kind(scores.kind())?,
            )?;
            self.operands.put(launch, Role::Output, &losses)?;
            if self.is_in_place() {
                return self.operands.put(launch, Role::Input(0), &shares);
            }
            self.operands.save(launch, vec![shares])
        })
    }

    /// Returns the computation of the gradient of the scores.
    pub(super) fn backward(self) -> LaunchFunction {
        Box::new(move |launch| {
            let (shares, target) = if self.is_in_place() {
                (self.updated_input(launch)?, Role::Input(0))
            } else {
                let [shares] = self.operands.saved(launch)?;
                (shares.shallow_clone(), Role::InputGradient(0))
            };
            let Labels { classes: labels, ignored, .. } = self.labels(launch)?;
            let positions = shares.size()[0] / self.samples;
            let mut scale = self.operands.output_gradient(launch)?.f_div_scalar(self.mean_positions)?;
            if let Some((_, weights)) = &ignored {
                scale = scale.f_mul(&weights.f_view_as(&scale)?)?;
            }
            let mut scale = scale.f_expand([self.samples, positions], false)?.f_reshape([-1, 1])?;
            if let Some((is_ignored, _)) = &ignored {
                scale = scale.f_masked_fill(is_ignored, 0)?;
            }
            let mut errors = shares.f_exp()?;
            if self.smoothing > 0.0 {
                let _ = errors.f_sub_scalar_(self.smoothing / self.labels.limit() as f64)?;
            }
            let mut gradient = errors.f_mul_(&scale)?;
            let of_labels = scale.f_mul_scalar(self.smoothing - 1.0)?;
            let _ = gradient.f_scatter_add_(1, &labels, &of_labels)?;
            self.operands.put(launch, target, &gradient)
        })
    }
}

/// Loss of each element of a sample against its label.
pub(super) struct ElementwiseKernel {
    /// Operands of the pass that is prepared.
    operands: LayerOperands,
    /// The loss.
    loss: ElementwiseLoss,
    /// Number of samples of the shard.
    samples: i64,
}

impl ElementwiseKernel {
    /// Returns the computation of a pass of a shard of `samples` samples.
    pub(super) fn pass(
        operands: LayerOperands,
        loss: ElementwiseLoss,
        samples: usize,
        backward: bool,
    ) -> LaunchFunction {
        let pass = Self { operands, loss, samples: samples as i64 };
        if backward { pass.backward() } else { pass.forward() }
    }

    /// Returns the input and the labels, as a row for each sample.
    fn inputs(&self, launch: &Launch<'_, '_>) -> Result<[Tensor; 2], Failure> {
        let rows = [self.samples, -1];
        let labels = self.operands.source(launch, Role::Labels)?.flat()?.f_view(rows)?;
        Ok([self.operands.input(launch)?.f_reshape(rows)?, labels])
    }

    /// Returns the computation of the losses and the metrics, in training and evaluation.
    fn forward(self) -> LaunchFunction {
        Box::new(move |launch| {
            let [x, labels] = self.inputs(launch)?;
            let (losses, right) = match self.loss {
                ElementwiseLoss::MeanSquaredError => ((&x - &labels).f_square()?, x.f_zeros_like()?),
                ElementwiseLoss::BinaryCrossEntropy => {
                    let softplus = x.f_abs()?.f_neg()?.f_exp()?.f_log1p()?;
                    let losses = x.f_clamp_min(0)?.f_sub(&x.f_mul(&labels)?)?.f_add(&softplus)?;
                    (losses, x.f_gt(0)?.f_eq_tensor(&labels.f_gt(0.5)?)?.f_to_kind(x.kind())?)
                }
            };
            let mean = |values: &Tensor| values.f_mean_dim([1i64].as_slice(), false, None);
            let (losses, right) = (mean(&losses)?, mean(&right)?);
            let sums = [losses.f_sum(Kind::Double)?, right.f_sum(Kind::Double)?];
            let metrics = Tensor::f_stack(&sums, 0)?.f_to_kind(x.kind())?;
            self.operands.put(launch, Role::Metrics, &metrics)?;
            self.operands.put(launch, Role::Output, &losses)
        })
    }

    /// Returns the computation of the gradient of the input.
    fn backward(self) -> LaunchFunction {
        Box::new(move |launch| {
            let [x, labels] = self.inputs(launch)?;
            let slopes = match self.loss {
                ElementwiseLoss::MeanSquaredError => x.f_sub(&labels)?.f_mul_scalar(2)?,
                ElementwiseLoss::BinaryCrossEntropy => x.f_sigmoid()?.f_sub(&labels)?,
            };
            let scale = self.operands.output_gradient(launch)?.f_view([-1, 1])?;
            let scale = scale.f_div_scalar(slopes.size()[1])?;
            self.operands.put(launch, Role::InputGradient(0), &slopes.f_mul(&scale)?)
        })
    }
}
