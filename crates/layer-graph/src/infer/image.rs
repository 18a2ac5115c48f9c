//! Shapes of layers that work on images.

use super::shape_error;
use crate::{Conv2d, GraphError, Pad, Pool2d, Shape};

/// Returns channels, height and width of an image.
pub(super) fn sizes(name: &str, shape: &Shape) -> Result<(usize, usize, usize), GraphError> {
    let problem = || shape_error(name, format!("needs an image (channels x height x width), got {shape}"));
    shape.as_image().ok_or_else(problem)
}

pub(super) fn padded(name: &str, pad: &Pad, input: &Shape) -> Result<Shape, GraphError> {
    let (channels, height, width) = sizes(name, input)?;
    let sum =
        |axis: usize, size: usize| size.saturating_add(pad.before[axis]).saturating_add(pad.after[axis]);
    Ok(Shape::image(channels, sum(0, height), sum(1, width)))
}

pub(super) fn convolution(name: &str, conv: &Conv2d, input: &Shape) -> Result<Shape, GraphError> {
    let (channels, height, width) = sizes(name, input)?;
    if conv.groups == 0 || channels % conv.groups != 0 || conv.out_channels % conv.groups != 0 {
        let problem = format!(
            "{} groups do not divide {channels} input and {} output channels",
            conv.groups, conv.out_channels
        );
        return Err(shape_error(name, problem));
    }
    let [out_height, out_width] = windows(name, [height, width], conv.kernel, conv.stride, conv.padding)?;
    Ok(Shape::image(conv.out_channels, out_height, out_width))
}

pub(super) fn pooling(name: &str, pool: &Pool2d, input: &Shape) -> Result<Shape, GraphError> {
    let (channels, height, width) = sizes(name, input)?;
    // A window that covers only padding has no maximum.
    if (0..2).any(|i| pool.padding[i] > pool.kernel[i] / 2) {
        let problem = format!("padding {:?} is more than half of kernel {:?}", pool.padding, pool.kernel);
        return Err(shape_error(name, problem));
    }
    if (0..2).any(|i| pool.extra_padding[i] >= pool.kernel[i].max(1)) {
        let problem =
            format!("extra padding {:?} is not less than kernel {:?}", pool.extra_padding, pool.kernel);
        return Err(shape_error(name, problem));
    }
    let size = [height.saturating_add(pool.extra_padding[0]), width.saturating_add(pool.extra_padding[1])];
    let [out_height, out_width] = windows(name, size, pool.kernel, pool.stride, pool.padding)?;
    for (i, (windows, size)) in [(out_height, height), (out_width, width)].into_iter().enumerate() {
        if (windows - 1) * pool.stride[i] >= size + pool.padding[i] {
            return Err(shape_error(name, "its last windows lie in the padding alone".into()));
        }
    }
    Ok(Shape::image(channels, out_height, out_width))
}

pub(super) fn concatenation(name: &str, inputs: &[Shape]) -> Result<Shape, GraphError> {
    let (mut channels, height, width) = sizes(name, &inputs[0])?;
    for input in &inputs[1..] {
        let (more, h, w) = sizes(name, input)?;
        if (h, w) != (height, width) {
            let problem = format!("joins images of different sizes, {} and {input}", inputs[0]);
            return Err(shape_error(name, problem));
        }
        channels = channels.saturating_add(more);
    }
    Ok(Shape::image(channels, height, width))
}

/// Returns the number of window positions along height and width.
fn windows(
    name: &str,
    size: [usize; 2],
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
) -> Result<[usize; 2], GraphError> {
    let mut counts = [0; 2];
    for i in 0..2 {
        if kernel[i] == 0 || stride[i] == 0 {
            return Err(shape_error(name, "kernel and stride must be at least 1".into()));
        }
        let padded = padding[i].checked_mul(2).and_then(|both| both.checked_add(size[i]));
        let Some(room) = padded.and_then(|padded| padded.checked_sub(kernel[i])) else {
            let problem = format!(
                "kernel {}x{} does not fit into {}x{} with padding {}x{}",
                kernel[0], kernel[1], size[0], size[1], padding[0], padding[1]
            );
            return Err(shape_error(name, problem));
        };
        counts[i] = room / stride[i] + 1;
    }
    Ok(counts)
}
