//! Sliding windows, and operators of images with one: poolings, means, padding and upsampling. Each
//! function converts a node and defines its output; it returns an error that names the node if this
//! use of the operator is invalid or has no layer.

use crate::onnx::OnnxError;
use crate::onnx::builder::Builder;
use crate::onnx::node::Node;
use crate::onnx::numbers::{axis, size};
use crate::onnx::table::integer;
use crate::{AdaptiveAvgPool2d, LayerId, LayerKind, Pad, Pool2d};

/// Attributes of a sliding window. Pairs are `[height, width]`.
pub(super) struct Steps {
    pub(super) stride: [usize; 2],
    pub(super) dilation: [usize; 2],
    /// Padding at the top, on the left, at the bottom and on the right.
    pub(super) pads: [usize; 4],
}

impl Steps {
    /// Returns the attributes of a node of images, or of signals, which are images of one row.
    pub(super) fn of(node: Node<'_>, is_signal: bool) -> Result<Self, OnnxError> {
        let pair = |name: &str| {
            Ok(if is_signal { node.sizes(name)?.map(|[size]| [1, size]) } else { node.sizes(name)? })
        };
        let pads = if is_signal {
            node.sizes("pads")?.map(|[before, after]| [0, before, 0, after])
        } else {
            node.sizes("pads")?
        };
        Ok(Self {
            stride: pair("strides")?.unwrap_or([1, 1]),
            dilation: pair("dilations")?.unwrap_or([1, 1]),
            pads: pads.unwrap_or([0; 4]),
        })
    }
}

/// Sliding window with its padding. Pairs are `[height, width]`.
pub(super) struct Window {
    pub(super) stride: [usize; 2],
    /// Padding at the top and at the left.
    pub(super) before: [usize; 2],
    /// Range of equivalent padding at the bottom and on the right: the minimum that the last window
    /// needs, and the maximum that adds no window.
    pub(super) after: [(usize, usize); 2],
    /// Whether `ceil_mode` added a window.
    rounded_up: bool,
}

impl Window {
    pub(super) fn new(
        node: Node<'_>,
        image: [usize; 2],
        kernel: [usize; 2],
        steps: &Steps,
    ) -> Result<Self, OnnxError> {
        let &Steps { stride, dilation, pads } = steps;
        if kernel.contains(&0) || stride.contains(&0) || dilation.contains(&0) {
            return Err(node.invalid("kernel, strides and dilations must be at least 1"));
        }
        let kernel = [0, 1].map(|i| (kernel[i] - 1).saturating_mul(dilation[i]).saturating_add(1));
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
    pub(super) fn excess(&self) -> [Option<usize>; 2] {
        [0, 1].map(|i| {
            let (min, max) = self.after[i];
            (self.before[i] <= max).then(|| min.saturating_sub(self.before[i]))
        })
    }
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

/// Adds the layer of a `Resize` node that repeats pixels: an average over windows within one pixel.
pub(super) fn resize<'a>(builder: &mut Builder<'a>, node: Node<'a>) -> Result<(), OnnxError> {
    let (input, [channels, height, width]) = image(builder, node)?;
    if node.ints("axes").is_some() || node.text("keep_aspect_ratio_policy", "stretch")? != "stretch" {
        return Err(node.unsupported("factors of some axes, or those that keep the aspect ratio"));
    }
    let place = node.text("coordinate_transformation_mode", "half_pixel")?;
    let rounding = node.text("nearest_mode", "round_prefer_floor")?;
    let repeats = match place {
        "asymmetric" => rounding == "floor",
        "half_pixel" | "pytorch_half_pixel" => rounding.starts_with("round"),
        _ => false,
    };
    if node.text("mode", "nearest")? != "nearest" || !repeats {
        return Err(node.unsupported("another resampling than the nearest pixel"));
    }
    let at = if builder.opset < 11 { 1 } else { 2 };
    let output = if let Some(sizes) = builder.list(node, 3, "", "its sizes")? {
        match *sizes {
            [_, kept, height, width] if size(kept) == Some(channels) => [height, width].map(size),
            _ => [None; 2],
        }
    } else {
        let scales = node.optional_input(at).and_then(|value| builder.table(value));
        let scale = |position: usize, before: usize| match scales.as_ref()?.values.as_ref() {
            scales @ &[batch, channels, _, _] if [batch, channels].map(integer) == [Some(1); 2] => {
                size(integer(scales[position])?)?.checked_mul(before)
            }
            _ => None,
        };
        [scale(2, height), scale(3, width)]
    };
    match output {
        [Some(rows), Some(columns)] if rows % height == 0 && columns % width == 0 => {
            builder.add(node, AdaptiveAvgPool2d { output: [rows, columns] }, &[input])
        }
        _ => Err(node.unsupported("factors that are not integers of height and width, or not known")),
    }
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
    let steps = Steps::of(node, false)?;
    if steps.dilation != [1, 1] {
        return Err(node.unsupported("dilations other than 1"));
    }
    let window = Window::new(node, [height, width], kernel, &steps)?;
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
pub(super) fn image<'a>(
    builder: &mut Builder<'a>,
    node: Node<'a>,
) -> Result<(LayerId, [usize; 3]), OnnxError> {
    let layer = builder.layer(node, node.input(0)?)?;
    let shape = builder.shape(layer);
    let other = || node.unsupported(format!("a sample of shape {shape}: only images have layers"));
    let (channels, height, width) = shape.as_image().ok_or_else(other)?;
    Ok((layer, [channels, height, width]))
}
