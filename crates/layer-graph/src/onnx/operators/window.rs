//! Operators with a sliding window: convolution and pooling. Each function converts a node and
//! defines its output; it returns an error that names the node if this use of the operator is
//! invalid or has no layer.

use crate::onnx::OnnxError;
use crate::onnx::builder::{Builder, Parameters};
use crate::onnx::node::Node;
use crate::onnx::numbers::{axis, size};
use crate::{AdaptiveAvgPool2d, Conv2d, LayerId, LayerKind, Pad, Pool2d};

/// Sliding window with its padding. Pairs are `[height, width]`.
struct Window {
    stride: [usize; 2],
    /// Padding at the top and at the left.
    before: [usize; 2],
    /// Range of equivalent padding at the bottom and on the right: the minimum that the last window
    /// needs, and the maximum that adds no window.
    after: [(usize, usize); 2],
    /// Whether `ceil_mode` added a window.
    rounded_up: bool,
}

impl Window {
    fn new(node: Node<'_>, image: [usize; 2], kernel: [usize; 2]) -> Result<Self, OnnxError> {
        if node.sizes("dilations")?.is_some_and(|dilations| dilations != [1, 1]) {
            return Err(node.unsupported("dilations other than 1"));
        }
        let stride = node.sizes("strides")?.unwrap_or([1, 1]);
        if kernel.contains(&0) || stride.contains(&0) {
            return Err(node.invalid("kernel and strides must be at least 1"));
        }
        let pads = node.sizes("pads")?.unwrap_or([0; 4]);
        let padding = node.text("auto_pad", "NOTSET")?;
        let ceil = node.int("ceil_mode", 0)? != 0;
        let mut window = Self { stride, before: [0; 2], after: [(0, 0); 2], rounded_up: false };
        for i in 0..2 {
            let (size, kernel, stride) = (image[i], kernel[i], stride[i]);
            let whole = (size.div_ceil(stride) - 1) * stride + kernel;
            let same = whole.saturating_sub(size);
            let (before, after) = match padding {
                "NOTSET" => (pads[i], pads[i + 2]),
                "VALID" => (0, 0),
                "SAME_UPPER" => (same / 2, same - same / 2),
                "SAME_LOWER" => (same - same / 2, same / 2),
                other => return Err(node.invalid(format!("`auto_pad` is `{other}`"))),
            };
            let Some(room) = (before + size + after).checked_sub(kernel) else {
                return Err(
                    node.invalid(format!("a kernel of {kernel} does not fit into {before}+{size}+{after}"))
                );
            };
            let mut steps = room / stride;
            // A window that would start in the padding after the image is dropped.
            if ceil && room % stride != 0 && (steps + 1) * stride < before + size {
                steps += 1;
                window.rounded_up = true;
            }
            let min = (steps * stride + kernel).saturating_sub(before + size);
            window.before[i] = before;
            window.after[i] = (min, (steps + 1) * stride + kernel - 1 - before - size);
        }
        Ok(window)
    }

    /// Returns for each direction the padding needed after the image in excess of that before it,
    /// or `None` if less is needed.
    fn excess(&self) -> [Option<usize>; 2] {
        [0, 1].map(|i| {
            let (min, max) = self.after[i];
            (self.before[i] <= max).then(|| min.saturating_sub(self.before[i]))
        })
    }
}

/// Adds the layer of a `Conv` node. An addition of constants by channel that follows a convolution
/// without bias becomes its bias.
pub(super) fn convolution<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let (input, [channels, height, width]) = image(builder, node)?;
    let weight = builder.parameter(node, 1)?;
    let &[out_channels, group_channels, kernel_height, kernel_width] = weight.dims.as_slice() else {
        let problem = format!("a weight of dimensions {:?}: only images have layers", weight.dims);
        return Err(node.unsupported(problem));
    };
    let weight = weight.source.clone();
    let kernel = [kernel_height, kernel_width];
    if node.sizes("kernel_shape")?.is_some_and(|shape| shape != kernel) {
        return Err(
            node.invalid(format!("`kernel_shape` is not the weight's {kernel_height}x{kernel_width}"))
        );
    }
    let groups = node.int("group", 1)?;
    let groups = size(groups).ok_or_else(|| node.invalid(format!("`group` is {groups}")))?;
    if group_channels.checked_mul(groups) != Some(channels) {
        return Err(node.invalid(format!(
            "its weight is for {groups} groups of {group_channels} channels, but the image has {channels}"
        )));
    }
    let window = Window::new(node, [height, width], kernel)?;
    let (mut input, mut padding) = (input, window.before);
    if window.excess() != [Some(0); 2] {
        let pad = Pad { before: window.before, after: window.after.map(|(min, _)| min) };
        (input, padding) = (builder.add_before(node, pad, input)?, [0, 0]);
    }
    let output = node.output()?;
    let (output, bias) = match node.optional_input(2) {
        Some(_) => {
            let bias = builder.parameter(node, 2)?;
            if bias.dims != [out_channels] {
                return Err(node.invalid(format!("its bias is not of {out_channels} channels")));
            }
            // The newer exporter writes zeros for a convolution without a bias.
            (output, (!bias.is_computed_zero()).then(|| bias.source.clone()))
        }
        None => match builder.merge_reader(output, "Add", out_channels, 1, 4) {
            Some((sum, bias)) => (sum, Some(bias)),
            None => (output, None),
        },
    };
    if is_folded(node)? {
        builder.counts.folded += 1;
    }
    let convolution =
        Conv2d { out_channels, kernel, stride: window.stride, padding, groups, bias: bias.is_some() };
    builder.add_weighted(node, convolution, input, Parameters { weight, bias }, output)
}

/// Returns whether PyTorch folded a batch normalisation into a convolution. Its older exporter then
/// generates names for both parameters, its newer one for the bias. Parameters of modules keep
/// their names.
fn is_folded(node: Node<'_>) -> Result<bool, OnnxError> {
    let weight = node.input(1)?;
    let Some(bias) = node.optional_input(2) else { return Ok(false) };
    Ok(weight.starts_with("onnx::Conv_") || bias.strip_prefix(weight) == Some("_bias"))
}

/// Adds the layer of a `Pad` node of images with zeros.
pub(super) fn pad<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let (input, _) = image(builder, node)?;
    let pads = builder.list(node, 1, "pads", "its list of pads")?.unwrap_or_default().to_vec();
    let axes = builder.list(node, 3, "axes", "its list of axes")?.map(<[i64]>::to_vec);
    let axes = axes.unwrap_or_else(|| vec![0, 1, 2, 3]);
    let value = match node.optional_input(2) {
        Some(value) => builder.number(value),
        None => Some(node.float("value", 0.0)?),
    };
    let mode = node.text("mode", "constant")?;
    if mode != "constant" || value != Some(0.0) {
        return Err(node.unsupported("padding with something other than zeros"));
    }
    if pads.len() != 2 * axes.len() {
        return Err(node.invalid(format!("{} pads for {} axes", pads.len(), axes.len())));
    }
    let mut sides = [[0; 4]; 2];
    for (sides, pads) in sides.iter_mut().zip(pads.chunks(axes.len().max(1))) {
        for (&along, &count) in axes.iter().zip(pads) {
            let along = axis(along, 4).ok_or_else(|| node.invalid(format!("axis {along}")))?;
            let count = size(count).ok_or_else(|| node.unsupported(format!("a padding of {count}")))?;
            sides[along] = count;
        }
    }
    let [[0, 0, top, left], [0, 0, bottom, right]] = sides else {
        return Err(node.unsupported("padding of something other than height and width"));
    };
    builder.add(node, Pad { before: [top, left], after: [bottom, right] }, &[input])
}

/// Adds the layer of a `MaxPool` node.
pub(super) fn max_pool<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let (input, pool, _) = pool(builder, node)?;
    builder.add(node, LayerKind::MaxPool2d(pool), &[input])
}

/// Adds the layer of an `AveragePool` node.
pub(super) fn average_pool<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let (input, mut pool, rounded_up) = pool(builder, node)?;
    let is_padded = pool.padding != [0, 0] || pool.extra_padding != [0, 0];
    pool.count_padding = node.int("count_include_pad", 0)? != 0;
    if pool.count_padding && rounded_up {
        return Err(
            node.unsupported("padding that counts, in windows of which some reach beyond it (`ceil_mode`)")
        );
    }
    // Without padding both settings are equivalent; the default is stored.
    pool.count_padding |= !is_padded;
    builder.add(node, LayerKind::AvgPool2d(pool), &[input])
}

/// Returns the input of a pooling, its window, and whether `ceil_mode` added a window.
fn pool<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(LayerId, Pool2d, bool), OnnxError> {
    let (input, [_, height, width]) = image(builder, node)?;
    let kernel = node.sizes("kernel_shape")?.ok_or_else(|| node.invalid("`kernel_shape` is missing"))?;
    let window = Window::new(node, [height, width], kernel)?;
    let [Some(bottom), Some(right)] = window.excess() else {
        return Err(node.unsupported("more padding before the image than after it"));
    };
    let pool = Pool2d {
        kernel,
        stride: window.stride,
        padding: window.before,
        extra_padding: [bottom, right],
        count_padding: true,
    };
    Ok((input, pool, window.rounded_up))
}

/// Adds the layer of a `GlobalMaxPool` node, the maximum over height and width.
pub(super) fn global_max_pool<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let (input, [_, height, width]) = image(builder, node)?;
    let pool = Pool2d { kernel: [height, width], ..Pool2d::new(1, 1) };
    builder.add(node, LayerKind::MaxPool2d(pool), &[input])
}

/// Adds the layer of an `AdaptiveAveragePool` node, which ONNX does not have.
pub(super) fn adaptive_average_pool<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let (input, _) = image(builder, node)?;
    let output = node.sizes("output_size")?.ok_or_else(|| node.invalid("`output_size` is missing"))?;
    builder.add(node, AdaptiveAvgPool2d { output }, &[input])
}

/// Adds the layer of a `GlobalAveragePool` node, the mean over height and width.
pub(super) fn global_average_pool<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let (input, _) = image(builder, node)?;
    builder.add(node, AdaptiveAvgPool2d { output: [1, 1] }, &[input])
}

/// Converts a `ReduceMean` node over height and width to a global average pooling, followed by a
/// flattening if the node removes these dimensions.
pub(super) fn mean<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let (input, _) = image(builder, node)?;
    let axes = builder.list(node, 1, "axes", "its list of axes")?;
    let mut axes: Vec<_> = axes.unwrap_or_default().iter().filter_map(|&value| axis(value, 4)).collect();
    axes.sort_unstable();
    if axes != [2, 3] {
        return Err(node.unsupported("only a mean over the height and width of an image has a layer"));
    }
    let pool = AdaptiveAvgPool2d { output: [1, 1] };
    if node.int("keepdims", 1)? != 0 {
        return builder.add(node, pool, &[input]);
    }
    let pooled = builder.add_inner(node, pool, &[input])?;
    builder.add(node, LayerKind::Flatten, &[pooled])
}

/// Returns the layer that computes the first input, with its channels, height and width.
fn image<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(LayerId, [usize; 3]), OnnxError> {
    let layer = builder.layer(node, node.input(0)?)?;
    let shape = builder.shape(layer);
    let other = || node.unsupported(format!("a sample of shape {shape}: only images have layers"));
    let (channels, height, width) = shape.as_image().ok_or_else(other)?;
    Ok((layer, [channels, height, width]))
}
