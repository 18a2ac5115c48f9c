//! Shapes of layers that work on images.

use super::shape_error;
use crate::{Conv2d, ConvTranspose2d, GraphError, Pad, Pool2d, Shape};

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
    check_groups(name, conv.groups, channels, conv.out_channels)?;
    let kernel = dilated(name, conv.kernel, conv.dilation)?;
    let [out_height, out_width] = windows(name, [height, width], kernel, conv.stride, conv.padding)?;
    Ok(Shape::image(conv.out_channels, out_height, out_width))
}

pub(super) fn transposed_convolution(
    name: &str,
    conv: &ConvTranspose2d,
    input: &Shape,
) -> Result<Shape, GraphError> {
    let (channels, height, width) = sizes(name, input)?;
    check_groups(name, conv.groups, channels, conv.out_channels)?;
    let kernel = dilated(name, conv.kernel, conv.dilation)?;
    let mut output = [0; 2];
    for (axis, size) in [height, width].into_iter().enumerate() {
        let (stride, added) = (conv.stride[axis], conv.output_padding[axis]);
        if kernel[axis] == 0 || stride == 0 {
            return Err(shape_error(name, "needs a kernel and a stride of at least 1".into()));
        }
        if added >= stride {
            let problem = format!("needs an output padding less than the stride of {stride}, got {added}");
            return Err(shape_error(name, problem));
        }
        let whole = (size - 1).saturating_mul(stride).saturating_add(kernel[axis]).saturating_add(added);
        let removed = conv.padding[axis].saturating_mul(2);
        output[axis] = whole.saturating_sub(removed);
    }
    Ok(Shape::image(conv.out_channels, output[0], output[1]))
}

fn check_groups(name: &str, groups: usize, inputs: usize, outputs: usize) -> Result<(), GraphError> {
    if groups == 0 || inputs % groups != 0 || outputs % groups != 0 {
        let problem = format!("{groups} groups do not divide {inputs} input and {outputs} output channels");
        return Err(shape_error(name, problem));
    }
    Ok(())
}

/// Returns the size of the part of an image that a kernel covers; 0 for a kernel without elements.
fn dilated(name: &str, kernel: [usize; 2], dilation: [usize; 2]) -> Result<[usize; 2], GraphError> {
    if dilation.contains(&0) {
        return Err(shape_error(name, "dilation must be at least 1".into()));
    }
    let covered = |size: usize, dilation: usize| match size {
        0 => 0,
        _ => (size - 1).saturating_mul(dilation).saturating_add(1),
    };
    Ok([0, 1].map(|axis| covered(kernel[axis], dilation[axis])))
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
