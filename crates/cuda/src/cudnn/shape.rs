//! Shapes of convolutions.

use crate::numerics::positive;
use crate::{Error, Numerics, Result};

/// Order of a tensor's dimensions in memory, the last being adjacent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Samples, channels, rows, columns.
    Nchw,
    /// Samples, rows, columns, channels.
    Nhwc,
}

/// Result of a convolution or of one of its gradients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The output, from the input and the weights.
    Forward,
    /// The gradient of the input, from those of the output and the weights.
    InputGradient,
    /// The gradient of the weights, from the input and the gradient of the output.
    WeightGradient,
}

/// Shape of a two-dimensional convolution or of one of its gradients. Sides are `[height, width]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConvolutionShape {
    /// Number of samples.
    pub samples: usize,
    /// Number of channels of the input, a multiple of the groups.
    pub in_channels: usize,
    /// Number of channels of the output, a multiple of the groups.
    pub out_channels: usize,
    /// Number of groups of channels; an output depends on the inputs of its group only.
    pub groups: usize,
    /// Sides of the input.
    pub input: [usize; 2],
    /// Sides of the window.
    pub kernel: [usize; 2],
    /// Steps of the window.
    pub stride: [usize; 2],
    /// Zeros before the first and behind the last row and column of the input.
    pub padding: [usize; 2],
    /// Distance of the inputs of neighboring weights.
    pub dilation: [usize; 2],
    /// Order of dimensions of all three tensors; for the weights, samples are output channels.
    pub layout: Layout,
    /// Result to compute.
    pub direction: Direction,
}

impl ConvolutionShape {
    /// Returns the sides of the output.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the window does not fit into the padded input, a number is zero that
    /// must not be, the groups do not divide the channels, or a size is too large.
    pub fn output(&self) -> Result<[usize; 2]> {
        let mut output = [0; 2];
        for (axis, side) in output.iter_mut().enumerate() {
            for (name, value) in [
                ("an input side", self.input[axis]),
                ("a kernel side", self.kernel[axis]),
                ("a stride", self.stride[axis]),
                ("a dilation", self.dilation[axis]),
                ("a padding + 1", self.padding[axis].saturating_add(1)),
            ] {
                positive::<i32>(name, value)?;
            }
            // Within 2^63, since the factors are less than 2^31.
            let padded = self.input[axis] + 2 * self.padding[axis];
            let window = self.dilation[axis] * (self.kernel[axis] - 1) + 1;
            let steps = padded.checked_sub(window).ok_or_else(|| {
                Error::Invalid(format!("a window of {window} exceeds a padded input of {padded}"))
            })?;
            *side = steps / self.stride[axis] + 1;
        }
        Ok(output)
    }

    /// Returns the size of input, weights and output together, in bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the convolution is impossible or its operands exceed any memory.
    pub fn operand_bytes(&self, numerics: Numerics) -> Result<usize> {
        // Each has fewer than 2^63 bytes.
        let elements = self.dimensions(numerics)?.map(|tensor| tensor.iter().product::<i64>().unsigned_abs());
        let sum = elements.into_iter().try_fold(0, u64::checked_add);
        let bytes = sum.and_then(|sum| sum.checked_mul(numerics.element_bytes() as u64));
        bytes
            .and_then(|bytes| usize::try_from(bytes).ok())
            .ok_or_else(|| Error::Invalid("the operands of a convolution exceed any memory".to_owned()))
    }

    /// Returns the dimensions of input, weights and output: samples (output channels), channels,
    /// rows and columns.
    ///
    /// # Errors
    /// As [`output`](Self::output).
    pub(super) fn dimensions(&self, numerics: Numerics) -> Result<[[i64; 4]; 3]> {
        let [height, width] = self.output()?;
        for (name, value) in [
            ("samples", self.samples),
            ("input channels", self.in_channels),
            ("output channels", self.out_channels),
            ("groups", self.groups),
        ] {
            positive::<i32>(&format!("a convolution with {name}"), value)?;
        }
        let Self { samples, in_channels, out_channels, groups, input, kernel, .. } = *self;
        if in_channels % groups != 0 || out_channels % groups != 0 {
            return Err(Error::Invalid(format!(
                "{groups} groups do not divide {in_channels} input and {out_channels} output channels"
            )));
        }
        let tensors = [
            [samples, in_channels, input[0], input[1]],
            [out_channels, in_channels / groups, kernel[0], kernel[1]],
            [samples, out_channels, height, width],
        ];
        for [n, c, h, w] in tensors {
            let bytes = [n, c, h, w, numerics.element_bytes()]
                .into_iter()
                .try_fold(1_usize, usize::checked_mul)
                .and_then(|bytes| i64::try_from(bytes).ok());
            if bytes.is_none() {
                return Err(Error::Invalid(format!("a tensor of {n} x {c} x {h} x {w} exceeds any memory")));
            }
        }
        Ok(tensors.map(|tensor| tensor.map(signed)))
    }
}

impl Layout {
    /// Returns the distances of neighbors in each dimension, in elements.
    pub(super) fn strides(self, [_, c, h, w]: [i64; 4]) -> [i64; 4] {
        match self {
            Self::Nchw => [c * h * w, h * w, w, 1],
            Self::Nhwc => [h * w * c, 1, w * c, c],
        }
    }
}

/// Returns a size, which was checked, as cuDNN's type.
pub(super) fn signed(size: usize) -> i64 {
    (size as u64).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: ConvolutionShape = ConvolutionShape {
        samples: 2,
        in_channels: 4,
        out_channels: 6,
        groups: 2,
        input: [9, 8],
        kernel: [3, 2],
        stride: [2, 1],
        padding: [1, 0],
        dilation: [1, 2],
        layout: Layout::Nhwc,
        direction: Direction::Forward,
    };

    #[test]
    fn dimensions_are_those_of_the_definition() {
        let tensors = [[2, 4, 9, 8], [6, 2, 3, 2], [2, 6, 5, 6]];
        assert_eq!(SHAPE.dimensions(Numerics::F32), Ok(tensors));
        assert_eq!(SHAPE.operand_bytes(Numerics::F32), Ok(4 * (576 + 72 + 360)));
        assert_eq!(SHAPE.operand_bytes(Numerics::Bf16), Ok(2 * (576 + 72 + 360)));
        assert_eq!(Layout::Nhwc.strides(tensors[0]), [288, 1, 32, 4]);
        assert_eq!(Layout::Nchw.strides(tensors[0]), [288, 72, 8, 1]);
    }

    #[test]
    fn impossible_shapes_are_one_line_errors() {
        let large = i32::MAX as usize;
        for (part, shape) in [
            ("samples", ConvolutionShape { samples: 0, ..SHAPE }),
            ("output channels", ConvolutionShape { out_channels: large + 1, ..SHAPE }),
            ("groups", ConvolutionShape { groups: 0, ..SHAPE }),
            ("do not divide", ConvolutionShape { groups: 4, ..SHAPE }),
            ("input side", ConvolutionShape { input: [9, 0], ..SHAPE }),
            ("stride", ConvolutionShape { stride: [0, 1], ..SHAPE }),
            ("dilation", ConvolutionShape { dilation: [1, 0], ..SHAPE }),
            ("padding", ConvolutionShape { padding: [usize::MAX, 0], ..SHAPE }),
            ("exceeds a padded input", ConvolutionShape { kernel: [12, 2], ..SHAPE }),
            ("exceeds a padded input", ConvolutionShape { dilation: [large, large], ..SHAPE }),
            ("any memory", ConvolutionShape { input: [large, large], ..SHAPE }),
        ] {
            let Err(Error::Invalid(message)) = shape.dimensions(Numerics::F32) else { panic!("{shape:?}") };
            assert!(message.contains(part) && message.lines().count() == 1, "{message}");
        }
    }
}
