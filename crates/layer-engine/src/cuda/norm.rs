//! Batch normalisation, layer normalisation and local response normalisation. Each function adds
//! the launches of a pass to a `KernelBuilder`, a kernel under preparation. It fails as the
//! functions of `KernelBuilder` do. `input` is the shape of one sample.

use layer_graph::{BatchNorm, LocalResponseNorm, Shape};

use super::chain::ElementwiseOperands;
use super::kernel::Argument;
use super::kernel_builder::{KernelBuilder, size};
use super::module::Family;
use super::slices::{BLOCK_CHANNELS, divide};
use crate::{EngineError, ImageLayout, Pass, Role};

/// Approximate minimum number of terms of a slice of a channel's sums, four for each thread.
const MIN_SLICE: usize = 1024;

/// Maximum number of blocks of a launch along y.
const MAX_BLOCKS: usize = (1 << 16) - 1;

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
    let Some((&channels, positions)) = input.dims().split_first() else { return Ok(None) };
    let positions: usize = positions.iter().product();
    let shape = match builder.device().image_layout.adjacent_channels(input) {
        1 => Channels { is_last: false, sizes: [samples, channels, positions] },
        // Each pixel is a sample.
        _ => Channels { is_last: true, sizes: [samples * positions, channels, 1] },
    };
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
            channel_sums(builder, ["batch_norm_moments", "batch_norm_moments_last"], &shape, &[x], to)?;
        }
        Pass::Forward | Pass::Recompute => {
            let [epsilon, momentum] = [rule.epsilon, rule.momentum].map(Argument::F64);
            let numbers = [epsilon, momentum, Argument::U32(chain.rectifies.into())];
            let operand = |operands: &[Argument]| operands.first().copied().unwrap_or(Argument::NONE);
            let [added, y] = [&chain.terms, &chain.targets].map(|operands| operand(operands));
            let operands = [x, parameters, builder.operand(Role::Moments), saved, statistics, added, y];
            channels_apart(
                builder,
                ["batch_norm_forward", "batch_norm_forward_last"],
                &shape,
                &[&numbers[..], &operands].concat(),
            )?;
        }
        Pass::Infer => {
            let arguments =
                [Argument::F64(rule.epsilon), x, parameters, statistics, builder.operand(Role::Output)];
            channels_apart(builder, ["batch_norm_infer", "batch_norm_infer_last"], &shape, &arguments)?;
        }
        Pass::BackwardMoments => {
            let to = [builder.operand(Role::GradientMoments), builder.operand(Role::ParameterGradient)];
            let inputs: Vec<_> = [x, saved].into_iter().chain(chain.arguments()).collect();
            channel_sums(
                builder,
                ["batch_norm_gradient_moments", "batch_norm_gradient_moments_last"],
                &shape,
                &inputs,
                to,
            )?;
        }
        Pass::Backward => {
            let moments = builder.operand(Role::GradientMoments);
            let arguments = [x, parameters, saved, moments, dy, builder.operand(Role::InputGradient(0))];
            channels_apart(
                builder,
                ["batch_norm_input_gradient", "batch_norm_input_gradient_last"],
                &shape,
                &arguments,
            )?;
        }
        _ => return Ok(None),
    }
    Ok(Some(()))
}

/// Channels that a launch computes.
struct Channels {
    /// Whether all channels of a sample's position are adjacent, for the second of two variants of
    /// a GPU function.
    is_last: bool,
    /// Number of samples, channels, and positions.
    sizes: [usize; 3],
}

impl Channels {
    /// Number of values of a channel.
    fn count(&self) -> usize {
        self.sizes[0] * self.sizes[2]
    }

    /// Number of groups of channels that a block computes together.
    fn groups(&self) -> usize {
        if self.is_last { self.sizes[1].div_ceil(BLOCK_CHANNELS) } else { self.sizes[1] }
    }

    /// Minimum number of values of a channel that a block computes.
    fn min_slice(&self) -> usize {
        if self.is_last { MIN_SLICE / BLOCK_CHANNELS } else { MIN_SLICE }
    }

    fn variant(&self, kernels: [&'static str; 2]) -> (Family, &'static str) {
        (Family::BatchNorm, kernels[usize::from(self.is_last)])
    }
}

/// Adds a launch that computes channels, or groups of channels, by blocks of their own, at least
/// one. `arguments` are those after the sizes and the number of values of a channel of a block.
fn channels_apart(
    builder: &mut KernelBuilder<'_>,
    kernels: [&'static str; 2],
    channels: &Channels,
    arguments: &[Argument],
) -> Result<(), EngineError> {
    let slice = channels.min_slice().max(channels.count().div_ceil(MAX_BLOCKS));
    let arguments = [&channels.sizes.map(size)[..], &[size(slice)], arguments].concat();
    let grid = [channels.groups(), channels.count().div_ceil(slice).max(1)];
    builder.launch(channels.variant(kernels), grid, arguments)
}

/// Adds the launch of two sums per channel over samples and positions. If there are few channels,
/// the terms are divided into slices, which the last block of a channel or group adds in a fixed
/// order. `to` has the addresses of the moments, and of the parameters' gradient or no address.
fn channel_sums(
    builder: &mut KernelBuilder<'_>,
    kernels: [&'static str; 2],
    channels: &Channels,
    inputs: &[Argument],
    to: [Argument; 2],
) -> Result<(), EngineError> {
    let (count, groups) = (channels.count(), channels.groups());
    let (slices, terms) = divide(count, groups, count.div_ceil(channels.min_slice()));
    let shared = match slices {
        1 => [Argument::NONE; 2],
        // The sums of the slices, and a counter for each group.
        _ => [
            builder.workspace(slices * channels.sizes[1] * 2 * size_of::<f64>())?,
            builder.workspace(groups * size_of::<u32>())?,
        ],
    };
    let arguments = [&channels.sizes.map(size)[..], &[size(terms)], inputs, &shared, &to].concat();
    builder.launch(channels.variant(kernels), [groups, slices], arguments)
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
    if !matches!(pass, Pass::Backward | Pass::BackwardParameters) {
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
