//! Batch, layer, group, root-mean-square and local response normalisation. Each function adds the
//! launches of a pass to a `KernelBuilder`, a kernel under preparation. It fails as the functions
//! of `KernelBuilder` do. `input` is the shape of one sample.

use layer_graph::{BatchNorm, GroupNorm, LocalResponseNorm, RmsNorm, Shape};

use super::chain::ElementwiseOperands;
use super::channels::Channels;
use super::kernel::Argument;
use super::kernel_builder::{KernelBuilder, size};
use super::module::Family;
use crate::{EngineError, ImageLayout, Pass, Role};

/// Adds the launch of a pass of a batch normalisation over `samples` samples. `chain` are the
/// elementwise operations that [`Pass::Forward`] and [`Pass::Recompute`] apply to the output, which
/// is a term besides those of the chain, and [`Pass::BackwardMoments`] before it reads the output
/// gradient. Without a chain the pass reads and writes its own operands only. Returns `None` if
/// there is no such pass.
pub(super) fn batch_norm(
    builder: &mut KernelBuilder<'_>,
    input: &Shape,
    rule: &BatchNorm,
    (samples, pass): (usize, Pass),
    chain: Option<ElementwiseOperands>,
) -> Result<Option<()>, EngineError> {
    const FAMILY: Family = Family::BatchNorm;
    let Some((&channels, positions)) = input.dims().split_first() else { return Ok(None) };
    let positions: usize = positions.iter().product();
    let layout = builder.device().image_layout;
    let shape = Channels::new(layout.adjacent_channels(input) > 1, samples, channels, positions);
    let x = builder.operand(Role::Input(0));
    let [parameters, saved] = [builder.operand(Role::Parameters), builder.operand(Role::Saved)];
    let statistics = builder.operand(Role::Statistics);
    let dy = builder.operand(Role::OutputGradient);
    let chain = chain.unwrap_or_else(|| ElementwiseOperands {
        terms: vec![dy],
        rectifies: false,
        gate: Argument::NONE,
        targets: vec![builder.operand(Role::Output)],
    });
    match pass {
        Pass::ForwardMoments => {
            let to = [builder.operand(Role::Moments), Argument::NONE];
            let kernels = ["batch_norm_moments", "batch_norm_moments_last"];
            shape.launch_sums(builder, (FAMILY, kernels), 2, &[x], &to)?;
        }
        Pass::Forward | Pass::Recompute => {
            let [epsilon, momentum] = [rule.epsilon, rule.momentum].map(Argument::F64);
            let numbers = [epsilon, momentum, Argument::U32(chain.rectifies.into())];
            let operand = |operands: &[Argument]| operands.first().copied().unwrap_or(Argument::NONE);
            let [added, y] = [&chain.terms, &chain.targets].map(|operands| operand(operands));
            let operands = [x, parameters, builder.operand(Role::Moments), saved, statistics, added, y];
            let kernels = ["batch_norm_forward", "batch_norm_forward_last"];
            shape.launch(builder, (FAMILY, kernels), &[&numbers[..], &operands].concat())?;
        }
        Pass::Infer => {
            let arguments =
                [Argument::F64(rule.epsilon), x, parameters, statistics, builder.operand(Role::Output)];
            let kernels = ["batch_norm_infer", "batch_norm_infer_last"];
            shape.launch(builder, (FAMILY, kernels), &arguments)?;
        }
        Pass::BackwardMoments => {
            let to = [builder.operand(Role::GradientMoments), builder.operand(Role::ParameterGradient)];
            let kernels = ["batch_norm_gradient_moments", "batch_norm_gradient_moments_last"];
            let inputs: Vec<_> = [x, saved].into_iter().chain(chain.arguments()).collect();
            shape.launch_sums(builder, (FAMILY, kernels), 2, &inputs, &to)?;
        }
        Pass::Backward => {
            let moments = builder.operand(Role::GradientMoments);
            let arguments = [x, parameters, saved, moments, dy, builder.operand(Role::InputGradient(0))];
            let kernels = ["batch_norm_input_gradient", "batch_norm_input_gradient_last"];
            shape.launch(builder, (FAMILY, kernels), &arguments)?;
        }
        _ => return Ok(None),
    }
    Ok(Some(()))
}

/// Adds the launches of a pass of a layer normalisation over the innermost dimension of `samples`
/// samples. `epsilon` is added to the variance.
pub(super) fn layer_norm(
    builder: &mut KernelBuilder<'_>,
    input: &Shape,
    epsilon: f64,
    samples: usize,
    pass: Pass,
) -> Result<(), EngineError> {
    const FAMILY: Family = Family::LayerNorm;
    let features = input.innermost();
    let rows = samples * input.elements() / features;
    let [x, dy] = [builder.operand(Role::Input(0)), builder.operand(Role::OutputGradient)];
    let [parameters, saved] = [builder.operand(Role::Parameters), builder.operand(Role::Saved)];
    if !pass.is_backward() {
        let y = builder.operand(Role::Output);
        let arguments = [size(rows), size(features), Argument::F64(epsilon), x, parameters, y, saved];
        return builder.for_each_row((FAMILY, "layer_norm_forward"), rows, arguments);
    }
    if pass == Pass::Backward {
        let dx = builder.operand(Role::InputGradient(0));
        let arguments = [size(rows), size(features), x, parameters, saved, dy, dx];
        builder.for_each_row((FAMILY, "layer_norm_input_gradient"), rows, arguments)?;
    }
    let arguments = [size(rows), size(features), x, saved, dy, builder.operand(Role::ParameterGradient)];
    builder.launch((FAMILY, "layer_norm_parameter_gradient"), [features.div_ceil(32), 1], arguments)
}

/// Adds the launches of a pass of a root-mean-square normalisation over the innermost dimension of
/// `samples` samples.
pub(super) fn rms_norm(
    builder: &mut KernelBuilder<'_>,
    input: &Shape,
    rule: &RmsNorm,
    samples: usize,
    pass: Pass,
) -> Result<(), EngineError> {
    const FAMILY: Family = Family::LayerNorm;
    let features = input.innermost();
    let rows = samples * input.elements() / features;
    let offset = Argument::F32(if rule.unit_offset { 1.0 } else { 0.0 });
    let [x, dy] = [builder.operand(Role::Input(0)), builder.operand(Role::OutputGradient)];
    let [weight, saved] = [builder.operand(Role::Parameters), builder.operand(Role::Saved)];
    if !pass.is_backward() {
        let (epsilon, y) = (Argument::F64(rule.epsilon), builder.operand(Role::Output));
        let arguments = [size(rows), size(features), epsilon, offset, x, weight, y, saved];
        return builder.for_each_row((FAMILY, "rms_norm_forward"), rows, arguments);
    }
    if pass == Pass::Backward {
        let dx = builder.operand(Role::InputGradient(0));
        let arguments = [size(rows), size(features), offset, x, weight, saved, dy, dx];
        builder.for_each_row((FAMILY, "rms_norm_input_gradient"), rows, arguments)?;
    }
    let arguments = [size(rows), size(features), x, saved, dy, builder.operand(Role::ParameterGradient)];
    builder.launch((FAMILY, "rms_norm_parameter_gradient"), [features.div_ceil(32), 1], arguments)
}

/// Adds the launches of a pass of a group normalisation of `samples` samples.
pub(super) fn group_norm(
    builder: &mut KernelBuilder<'_>,
    input: &Shape,
    rule: &GroupNorm,
    samples: usize,
    pass: Pass,
) -> Result<(), EngineError> {
    const FAMILY: Family = Family::LayerNorm;
    let channels = input.dims()[0];
    let is_last = builder.device().image_layout.adjacent_channels(input) > 1;
    // Fields of `Groups` in `kernels/layer_norm.cu`.
    let shape = [rule.groups, channels / rule.groups, input.elements() / channels, usize::from(is_last)];
    let shape = Argument::fields(shape);
    let rows = [samples * rule.groups, 1];
    let [x, dy] = [builder.operand(Role::Input(0)), builder.operand(Role::OutputGradient)];
    let [parameters, saved] = [builder.operand(Role::Parameters), builder.operand(Role::Saved)];
    if !pass.is_backward() {
        let y = builder.operand(Role::Output);
        let arguments = [shape, Argument::F64(rule.epsilon), x, parameters, y, saved];
        return builder.launch((FAMILY, "group_norm_forward"), rows, arguments);
    }
    if pass == Pass::Backward {
        let arguments = [shape, x, parameters, saved, dy, builder.operand(Role::InputGradient(0))];
        builder.launch((FAMILY, "group_norm_input_gradient"), rows, arguments)?;
    }
    let gradient = builder.operand(Role::ParameterGradient);
    let arguments = [size(samples), shape, x, saved, dy, gradient];
    builder.launch((FAMILY, "group_norm_parameter_gradient"), [channels, 1], arguments)
}

/// Adds the launches of a pass of a local response normalisation over `samples` samples. Returns
/// `None` if the input is not an image.
pub(super) fn response_norm(
    builder: &mut KernelBuilder<'_>,
    input: &Shape,
    rule: &LocalResponseNorm,
    samples: usize,
    backward: bool,
) -> Result<Option<()>, EngineError> {
    const FAMILY: Family = Family::ResponseNorm;
    let Some((channels, height, width)) = input.as_image() else { return Ok(None) };
    let elements = samples * input.elements();
    let shares = rule.alpha / rule.size as f64;
    let single = |number: f64| Argument::F32(number as f32);
    // Number of channels before and after a channel that normalise it.
    let reach = [size(rule.size / 2), size((rule.size - 1) / 2)];
    // Distance of neighbouring channels.
    let stride = match builder.device().image_layout {
        ImageLayout::ChannelsFirst => height * width,
        ImageLayout::ChannelsLast => 1,
    };
    let sizes = [size(elements), size(channels), size(stride), reach[0], reach[1]];
    let rule_arguments = [single(shares), single(rule.beta), single(rule.k)];
    let x = builder.operand(Role::Input(0));
    if !backward {
        let arguments = [&sizes[..], &rule_arguments, &[x, builder.operand(Role::Output)]].concat();
        builder.for_each((FAMILY, "response_norm_forward"), elements, arguments)?;
        return Ok(Some(()));
    }
    let bytes = elements * size_of::<f32>();
    let [of_output, ratios] = [builder.workspace(bytes)?, builder.workspace(bytes)?];
    let dy = builder.operand(Role::OutputGradient);
    let arguments = [&sizes[..], &rule_arguments, &[x, dy, of_output, ratios]].concat();
    builder.for_each((FAMILY, "response_norm_ratios"), elements, arguments)?;
    let factor = single(2.0 * shares * rule.beta);
    let arguments =
        [&sizes[..], &[factor, x, of_output, ratios, builder.operand(Role::InputGradient(0))]].concat();
    builder.for_each((FAMILY, "response_norm_input_gradient"), elements, arguments)?;
    Ok(Some(()))
}
