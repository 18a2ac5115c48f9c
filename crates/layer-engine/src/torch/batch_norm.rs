//! Batch normalisation.

use layer_graph::BatchNorm;
use tch::{Kind, Tensor};

use super::Failure;
use super::buffer::Memory;
use super::dtypes::DTypes;
use super::ffi::batch_norm_backward;
use super::launch::{Launch, LaunchFunction, LayerOperands};
use super::library_error;
use super::moments::Moments;
use crate::{Pass, Role};

/// Batch normalisation in passes, between which its moments (sums over samples) can be reduced over
/// ranks. Moments that are not reduced stay in the form that libtorch's kernels return.
pub(super) struct BatchNormKernel {
    operands: LayerOperands,
    rule: BatchNorm,
    channels: i64,
    /// Number of values per channel.
    count: i64,
    /// The same number as a tensor of integers and as a tensor of the layer's type.
    count_tensor: Tensor,
    count_number: Tensor,
    dtypes: DTypes,
}

/// Mean and `1 / sqrt(variance + epsilon)` of each channel.
type Statistics = [Tensor; 2];

impl BatchNormKernel {
    /// Creates the computation for the shapes of `operands`.
    ///
    /// # Errors
    /// If libtorch cannot allocate the constants of the computation.
    pub(super) fn new(operands: LayerOperands, rule: &BatchNorm, dtypes: DTypes) -> Result<Self, Failure> {
        let dims = &operands.inputs[0];
        let (channels, count) = (dims[1], dims[0] * dims[2..].iter().product::<i64>());
        let count_tensor = Tensor::f_full([1], count, (Kind::Int, dtypes.device))?;
        let count_number = Tensor::f_full([1], count, (dtypes.kind, dtypes.device))?;
        Ok(Self { operands, rule: rule.clone(), channels, count, count_tensor, count_number, dtypes })
    }

    /// Returns the computation of a pass, or `None` if batch normalisation has no such pass.
    pub(super) fn operation(self, pass: Pass) -> Option<LaunchFunction> {
        match pass {
            Pass::ForwardMoments => Some(Box::new(move |launch| self.forward_moments(launch))),
            Pass::Forward => Some(Box::new(move |launch| self.forward(launch, true))),
            Pass::Recompute => Some(Box::new(move |launch| self.forward(launch, false))),
            Pass::Infer => Some(Box::new(move |launch| self.infer(launch))),
            Pass::BackwardMoments => Some(Box::new(move |launch| self.backward_moments(launch))),
            Pass::Backward => Some(Box::new(move |launch| self.backward(launch))),
            _ => None,
        }
    }

    fn on_gpu(&self) -> bool {
        self.dtypes.device.is_cuda()
    }

    fn forward_moments(&self, launch: &mut Launch<'_, '_>) -> Result<(), Failure> {
        let input = self.operands.input(launch)?;
        let epsilon = self.rule.epsilon;
        let (mean, inverse_deviation) = if self.on_gpu() {
            input.f_batch_norm_stats(epsilon)?
        } else {
            // Without running statistics to update, this returns mean and variance.
            let (mean, variance) = input.f_batch_norm_update_stats(None::<&Tensor>, None, 0.0)?;
            (mean, variance.f_add_scalar(epsilon)?.f_rsqrt()?)
        };
        let count = self.count as f64;
        let moments = Moments::Forward { mean, inverse_deviation, epsilon, count };
        self.operands.put_moments(launch, Role::Moments, moments)
    }

    fn forward(&self, launch: &mut Launch<'_, '_>, updates_running: bool) -> Result<(), Failure> {
        let statistics = match self.operands.source(launch, Role::Moments)?.memory() {
            Memory::Moments(Moments::Forward { mean, inverse_deviation, .. }) => {
                let statistics = [mean.shallow_clone(), inverse_deviation.shallow_clone()];
                if updates_running {
                    self.update_running(launch, &statistics, None)?;
                }
                statistics
            }
            _ => self.reduced_statistics(launch, updates_running)?,
        };
        if self.count > 0 {
            let parameters = self.operands.parameters(launch)?;
            let output = self.apply(&self.operands.input(launch)?, &parameters, &statistics)?;
            self.operands.put(launch, Role::Output, &output)?;
        }
        self.operands.save(launch, statistics.into())
    }

    fn apply(
        &self,
        input: &Tensor,
        parameters: &[Tensor],
        [mean, inverse]: &Statistics,
    ) -> Result<Tensor, Failure> {
        let (weight, bias) = (parameters.first(), parameters.get(1));
        let epsilon = self.rule.epsilon;
        if self.on_gpu() {
            return Ok(input.f_batch_norm_elemt(weight, bias, mean, inverse, epsilon)?);
        }
        let variance = self.variance(inverse)?;
        let (output, _, _) =
            input.f_native_batch_norm(weight, bias, Some(mean), Some(&variance), false, 0.0, epsilon)?;
        Ok(output)
    }

    fn variance(&self, inverse_deviation: &Tensor) -> Result<Tensor, Failure> {
        Ok(inverse_deviation.f_pow_tensor_scalar(-2)?.f_sub_scalar(self.rule.epsilon)?.f_clamp_min(0.0)?)
    }

    /// Moves the running statistics towards those of the batch, with the unbiased variance. `count`
    /// is the number of values if it is not that of the shard.
    fn update_running(
        &self,
        launch: &mut Launch<'_, '_>,
        [mean, inverse]: &Statistics,
        count: Option<&Tensor>,
    ) -> Result<(), Failure> {
        let flat = self.operands.target(launch, Role::Statistics)?.flat()?;
        let mut running_mean = flat.f_narrow(0, 0, self.channels)?;
        let mut running_variance = flat.f_narrow(0, self.channels, self.channels)?;
        let (momentum, epsilon) = (self.rule.momentum, self.rule.epsilon);
        if let Some(count) = count {
            let variance = self.variance(inverse)?.f_mul(count)?;
            let unbiased = variance.f_div(&count.f_sub_scalar(1.0)?.f_clamp_min(1.0)?)?;
            // Without values, the weight is zero.
            let weight = count.f_clamp_max(1.0)?.f_mul_scalar(momentum)?;
            let _ = running_mean.f_lerp_tensor_(mean, &weight.f_expand_as(mean)?)?;
            let _ = running_variance.f_lerp_tensor_(&unbiased, &weight.f_expand_as(mean)?)?;
        } else if self.on_gpu() && self.count > 1 {
            // libtorch divides by the number of values minus one.
            let input = self.operands.input(launch)?;
            let (means, inverses) = (mean.f_unsqueeze(0)?, inverse.f_unsqueeze(0)?);
            let running = (Some(&running_mean), Some(&running_variance));
            // A count passed as a number would be copied to the device, which is not allowed in a
            // capture.
            let counts = &self.count_number;
            let _ = input.f_batch_norm_gather_stats_with_counts(
                &means, &inverses, running.0, running.1, momentum, epsilon, counts,
            )?;
        } else if self.count > 0 {
            let correction = self.count as f64 / (self.count - 1).max(1) as f64;
            let _ = running_mean.f_lerp_(mean, momentum)?;
            let _ = running_variance.f_lerp_(&self.variance(inverse)?.f_mul_scalar(correction)?, momentum)?;
        }
        Ok(())
    }

    /// Computes the statistics from flat moments, which may be summed over ranks. Updates the
    /// running statistics if `updates_running` is set.
    fn reduced_statistics(
        &self,
        launch: &mut Launch<'_, '_>,
        updates_running: bool,
    ) -> Result<Statistics, Failure> {
        let flat = self.operands.source(launch, Role::Moments)?.flat()?.f_to_kind(Kind::Double)?;
        let count = flat.f_narrow(0, 2 * self.channels, 1)?;
        let sums = flat.f_narrow(0, 0, 2 * self.channels)?.f_div(&count.f_clamp_min(1.0)?)?;
        let mean = sums.f_narrow(0, 0, self.channels)?;
        let squares = sums.f_narrow(0, self.channels, self.channels)?;
        // Rounding can make the variance of a constant channel slightly negative.
        let variance = squares.f_sub(&mean.f_square()?)?.f_clamp_min(0.0)?;
        let inverse = variance.f_add_scalar(self.rule.epsilon)?.f_rsqrt()?;
        let kind = self.dtypes.kind;
        let statistics = [mean.f_to_kind(kind)?, inverse.f_to_kind(kind)?];
        if updates_running {
            self.update_running(launch, &statistics, Some(&count.f_to_kind(kind)?))?;
        }
        Ok(statistics)
    }

    fn infer(&self, launch: &mut Launch<'_, '_>) -> Result<(), Failure> {
        let flat = self.operands.source(launch, Role::Statistics)?.flat()?;
        let parameters = self.operands.parameters(launch)?;
        let (output, _, _) = self.operands.input(launch)?.f_native_batch_norm(
            parameters.first(),
            parameters.get(1),
            Some(&flat.f_narrow(0, 0, self.channels)?),
            Some(&flat.f_narrow(0, self.channels, self.channels)?),
            false,
            0.0,
            self.rule.epsilon,
        )?;
        self.operands.put(launch, Role::Output, &output)
    }

    fn backward_moments(&self, launch: &mut Launch<'_, '_>) -> Result<(), Failure> {
        let missing = || library_error("libtorch returned no gradient of a batch normalisation");
        let [mean, inverse] = self.operands.saved(launch)?;
        let input = self.operands.input(launch)?;
        let output_gradient = self.operands.output_gradient(launch)?;
        let (centred, weight, bias) = if self.on_gpu() {
            let (_, centred, weight, bias) = input.f_batch_norm_backward_reduce(
                &output_gradient,
                mean,
                inverse,
                // Only the kind and the device of the weight are used; without a weight the call
                // fails.
                Some(mean),
                true,
                true,
                true,
            )?;
            (centred, weight, bias)
        } else {
            let [_, weight, bias] = batch_norm_backward(&output_gradient, &input, [mean, inverse])?;
            let (weight, bias) = (weight.ok_or_else(missing)?, bias.ok_or_else(missing)?);
            (weight.f_div(inverse)?, weight, bias)
        };
        let joined = Tensor::f_cat(&[&weight, &bias], 0)?;
        self.operands.put(launch, Role::ParameterGradient, &joined)?;
        let count = self.count as f64;
        let moments = Moments::Backward { gradient: bias, centred, normalised: weight, count };
        self.operands.put_moments(launch, Role::GradientMoments, moments)
    }

    fn backward(&self, launch: &mut Launch<'_, '_>) -> Result<(), Failure> {
        let [mean, inverse] = self.operands.saved(launch)?;
        let moments = self.operands.source(launch, Role::GradientMoments)?;
        let (gradient, centred, count) =
            if let Memory::Moments(Moments::Backward { gradient, centred, .. }) = moments.memory() {
                (gradient.shallow_clone(), centred.shallow_clone(), self.count_tensor.shallow_clone())
            } else {
                let flat = moments.flat()?;
                let normalised = flat.f_narrow(0, self.channels, self.channels)?;
                let count = flat.f_narrow(0, 2 * self.channels, 1)?.f_to_kind(Kind::Int)?;
                (flat.f_narrow(0, 0, self.channels)?, normalised.f_div(inverse)?, count)
            };
        let weight = &self.operands.parameters(launch)?[0];
        let (input, output_gradient) = (self.operands.input(launch)?, self.operands.output_gradient(launch)?);
        if self.on_gpu() {
            let sums = (&gradient, &centred, &count);
            let result = input.f_batch_norm_backward_elemt(
                &output_gradient,
                mean,
                inverse,
                Some(weight),
                sums.0,
                sums.1,
                sums.2,
            )?;
            return self.operands.put(launch, Role::InputGradient(0), &result);
        }
        // scale * (dy - mean(dy) - normalised x * mean(dy * normalised x)), as a linear function of
        // dy and x.
        let scale = weight.f_mul(inverse)?;
        let slope = scale.f_mul(&centred)?.f_mul(&inverse.f_square()?)?.f_div(&count)?.f_neg()?;
        let offset = scale.f_mul(&gradient)?.f_div(&count)?.f_neg()?.f_sub(&slope.f_mul(mean)?)?;
        let mut dims = vec![1; input.dim()];
        dims[1] = self.channels;
        let [scale, slope, offset] = [scale, slope, offset].map(|line| line.f_view(&dims[..]));
        let mut result = offset?.f_addcmul(&input, &slope?)?;
        let _ = result.f_addcmul_(&output_gradient, &scale?)?;
        self.operands.put(launch, Role::InputGradient(0), &result)
    }
}
