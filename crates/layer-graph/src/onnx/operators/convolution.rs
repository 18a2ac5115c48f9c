//! Convolutions of images and of signals, and transposed ones. A signal, `channels x length`, is an
//! image of one row. Each function converts a node and defines its output; it returns an error that
//! names the node if this use of the operator is invalid or has no layer.

use super::window::{Steps, Window, image};
use crate::onnx::OnnxError;
use crate::onnx::builder::{Builder, Parameters};
use crate::onnx::constants::Source;
use crate::onnx::node::Node;
use crate::onnx::numbers::size;
use crate::{Conv2d, ConvTranspose2d, LayerId, Pad, Reshape, Shape};

/// Adds the layer of a `Conv` node. An addition of constants by channel that follows a convolution
/// without bias becomes its bias.
pub(super) fn convolution<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let (weight, dims) = weight(builder, node)?;
    let layer = builder.layer(node, node.input(0)?)?;
    let signal = match (builder.shape(layer).dims(), &dims[..]) {
        (&[channels, length], [_, _, _]) => Some([channels, 1, length]),
        _ => None,
    };
    let (input, [channels, height, width]) = match signal {
        Some(sizes) => (layer, sizes),
        None => image(builder, node)?,
    };
    let (out_channels, group_channels, kernel) = match dims[..] {
        [outputs, inputs, width] if signal.is_some() => (outputs, inputs, [1, width]),
        [outputs, inputs, height, width] => (outputs, inputs, [height, width]),
        _ => {
            let problem = format!("a weight of dimensions {dims:?}: only images and signals have layers");
            return Err(node.unsupported(problem));
        }
    };
    check_kernel(node, &dims)?;
    let groups = groups(node)?;
    if group_channels.checked_mul(groups) != Some(channels) {
        return Err(node.invalid(format!(
            "its weight is for {groups} groups of {group_channels} channels, but the image has {channels}"
        )));
    }
    let steps = Steps::of(node, signal.is_some())?;
    let window = Window::new(node, [height, width], kernel, &steps)?;
    let name = builder.layer_name(node);
    let (mut input, mut padding) = (input, window.before);
    if signal.is_some() {
        let output = Shape::image(channels, height, width);
        input = builder.add_beside(node, &name, Reshape { output }, input)?;
    }
    if window.excess() != [Some(0); 2] {
        let pad = Pad { before: window.before, after: window.after.map(|(min, _)| min) };
        (input, padding) = (builder.add_beside(node, &name, pad, input)?, [0, 0]);
    }
    let rank = dims.len();
    let (output, bias) = bias(builder, node, out_channels, rank)?;
    if is_folded(node)? {
        builder.counts.folded += 1;
    }
    let (stride, dilation) = (window.stride, steps.dilation);
    let has_bias = bias.is_some();
    let kind = Conv2d { out_channels, kernel, stride, padding, dilation, groups, bias: has_bias };
    let parameters = Parameters { weight, bias };
    if signal.is_none() {
        return builder.add_weighted(node, kind, input, parameters, output);
    }
    let layer = builder.add_weighted_inner(node, kind, input, parameters)?;
    let signal = Shape::sequence(out_channels, builder.shape(layer).innermost());
    let layer = builder.add_beside(node, &name, Reshape { output: signal }, layer)?;
    builder.define(output, layer)
}

/// Adds the layer of a `ConvTranspose` node of images.
pub(super) fn transposed<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let (input, [channels, ..]): (LayerId, _) = image(builder, node)?;
    let (weight, dims) = weight(builder, node)?;
    let [inputs, of_group, height, width] = dims[..] else {
        return Err(node.unsupported(format!("a weight of dimensions {dims:?}: only images have layers")));
    };
    check_kernel(node, &dims)?;
    let groups = groups(node)?;
    let out_channels = of_group.checked_mul(groups).filter(|_| inputs == channels);
    let Some(out_channels) = out_channels else {
        let problem = format!("its weight is for {inputs} channels, but the image has {channels}");
        return Err(node.invalid(problem));
    };
    if node.text("auto_pad", "NOTSET")? != "NOTSET" || node.ints("output_shape").is_some() {
        return Err(node.unsupported("a padding that follows from the shape of the output"));
    }
    let Steps { stride, dilation, pads: [top, left, bottom, right] } = Steps::of(node, false)?;
    let added = node.sizes("output_padding")?.unwrap_or([0, 0]);
    let more = |before: usize, after: usize| before.checked_sub(after);
    let [Some(down), Some(across)] = [more(top, bottom), more(left, right)] else {
        return Err(node.unsupported("more padding after the image than before it"));
    };
    let output_padding = [added[0].saturating_add(down), added[1].saturating_add(across)];
    let (output, bias) = bias(builder, node, out_channels, 4)?;
    let kind = ConvTranspose2d {
        out_channels,
        kernel: [height, width],
        stride,
        padding: [top, left],
        output_padding,
        dilation,
        groups,
        bias: bias.is_some(),
    };
    builder.add_weighted(node, kind, input, Parameters { weight, bias }, output)
}

/// Returns the weight of a convolution and its dimensions.
fn weight<'a>(builder: &Builder<'a>, node: Node<'a>) -> Result<(Source, Vec<usize>), OnnxError> {
    let weight = builder.parameter(node, 1)?;
    Ok((weight.source.clone(), weight.dims.clone()))
}

/// Checks that the size of the kernel is that of the weight, if the node has it.
fn check_kernel(node: Node<'_>, weight: &[usize]) -> Result<(), OnnxError> {
    let kernel = weight.get(2..).unwrap_or_default();
    let is_same = |sizes: &[i64]| sizes.iter().map(|&value| size(value)).eq(kernel.iter().map(|&k| Some(k)));
    if node.ints("kernel_shape").is_some_and(|sizes| !is_same(sizes)) {
        return Err(node.invalid(format!("`kernel_shape` is not that of its weight, {kernel:?}")));
    }
    Ok(())
}

fn groups(node: Node<'_>) -> Result<usize, OnnxError> {
    let groups = node.int("group", 1)?;
    size(groups).ok_or_else(|| node.invalid(format!("`group` is {groups}")))
}

/// Returns the output of a convolution and its bias, if it has one: an input, or constants by
/// channel that the next node adds to its output of `rank` dimensions.
fn bias<'a>(
    builder: &mut Builder<'a>,
    node: Node<'a>,
    channels: usize,
    rank: usize,
) -> Result<(&'a str, Option<Source>), OnnxError> {
    let output = node.output()?;
    if node.optional_input(2).is_none() {
        return Ok(match builder.merge_reader(output, "Add", channels, 1, rank) {
            Some((sum, bias)) => (sum, Some(bias)),
            None => (output, None),
        });
    }
    let bias = builder.parameter(node, 2)?;
    if bias.dims != [channels] {
        return Err(node.invalid(format!("its bias is not of {channels} channels")));
    }
    // The newer exporter writes zeros for a convolution without a bias.
    Ok((output, (!bias.is_computed_zero()).then(|| bias.source.clone())))
}

/// Returns whether PyTorch folded a batch normalisation into a convolution. Its older exporter then
/// generates names for both parameters, its newer one for the bias. Parameters of modules keep
/// their names.
fn is_folded(node: Node<'_>) -> Result<bool, OnnxError> {
    let weight = node.input(1)?;
    let Some(bias) = node.optional_input(2) else { return Ok(false) };
    Ok(weight.starts_with("onnx::Conv_") || bias.strip_prefix(weight) == Some("_bias"))
}
