//! Hyper-parameters of the layers that work on images. Sizes, strides and paddings are in pixels.

use serde::{Deserialize, Serialize};

/// Hyper-parameters of a two-dimensional convolution. Pairs are `[height, width]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conv2d {
    /// Number of output channels. A multiple of `groups`.
    pub out_channels: usize,
    /// Size of the kernel.
    pub kernel: [usize; 2],
    /// Step between neighbouring positions of the kernel.
    pub stride: [usize; 2],
    /// Number of rows of zeros added at the top and at the bottom, and of columns of zeros added on
    /// the left and on the right.
    pub padding: [usize; 2],
    /// Distance between neighbouring elements of the kernel; 1 without dilation.
    #[serde(default = "undilated", skip_serializing_if = "is_undilated")]
    pub dilation: [usize; 2],
    /// Number of groups into which the input and output channels are divided; a group's outputs
    /// depend on its inputs only. 1 is an ordinary convolution.
    pub groups: usize,
    /// Whether a bias is added to each output channel.
    pub bias: bool,
}

impl Conv2d {
    /// Creates a convolution with a square kernel, stride 1, no padding, one group and a bias.
    #[must_use]
    pub fn new(out_channels: usize, kernel: usize) -> Self {
        Self::rectangular(out_channels, [kernel, kernel])
    }

    /// Creates a convolution with a `[height, width]` kernel, stride 1, no padding, one group and a
    /// bias.
    #[must_use]
    pub fn rectangular(out_channels: usize, kernel: [usize; 2]) -> Self {
        Self {
            out_channels,
            kernel,
            stride: [1, 1],
            padding: [0, 0],
            dilation: undilated(),
            groups: 1,
            bias: true,
        }
    }

    /// Sets the stride in both directions.
    #[must_use]
    pub fn stride(mut self, stride: usize) -> Self {
        self.stride = [stride, stride];
        self
    }

    /// Sets the padding in both directions.
    #[must_use]
    pub fn padding(mut self, padding: usize) -> Self {
        self.padding = [padding, padding];
        self
    }

    /// Sets the padding as `[height, width]`.
    #[must_use]
    pub fn padding_hw(mut self, padding: [usize; 2]) -> Self {
        self.padding = padding;
        self
    }

    /// Sets the dilation in both directions.
    #[must_use]
    pub fn dilation(mut self, dilation: usize) -> Self {
        self.dilation = [dilation, dilation];
        self
    }

    /// Sets the number of channel groups.
    #[must_use]
    pub fn groups(mut self, groups: usize) -> Self {
        self.groups = groups;
        self
    }

    /// Removes the bias, as is usual before a batch normalisation.
    #[must_use]
    pub fn without_bias(mut self) -> Self {
        self.bias = false;
        self
    }
}

/// Hyper-parameters of a group normalisation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupNorm {
    /// Number of groups, a divisor of the number of channels.
    pub groups: usize,
    /// Term added to the variance before the square root.
    pub epsilon: f64,
}

impl GroupNorm {
    /// Creates a normalisation with epsilon 1e-5, as in PyTorch.
    #[must_use]
    pub fn new(groups: usize) -> Self {
        Self { groups, epsilon: 1e-5 }
    }
}

/// Hyper-parameters of a padding with zeros. Pairs are `[height, width]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pad {
    /// Number of rows of zeros added at the top, and of columns added on the left.
    pub before: [usize; 2],
    /// Number of rows of zeros added at the bottom, and of columns added on the right.
    pub after: [usize; 2],
}

/// Hyper-parameters of a transposed two-dimensional convolution. Pairs are `[height, width]`.
///
/// Its output is the input gradient of a convolution with the same weight, whose output gradient is
/// the input. The output has `(inputs - 1) * stride - 2 * padding + dilation * (kernel - 1) +
/// output_padding + 1` rows or columns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConvTranspose2d {
    /// Number of output channels. A multiple of `groups`.
    pub out_channels: usize,
    /// Size of the kernel.
    pub kernel: [usize; 2],
    /// Distance between the places of neighbouring input pixels in the output.
    pub stride: [usize; 2],
    /// Number of rows removed at the top and at the bottom, and of columns removed on the left and
    /// on the right.
    pub padding: [usize; 2],
    /// Number of rows added at the bottom and of columns added on the right, less than the stride.
    pub output_padding: [usize; 2],
    /// Distance between neighbouring elements of the kernel; 1 without dilation.
    #[serde(default = "undilated", skip_serializing_if = "is_undilated")]
    pub dilation: [usize; 2],
    /// Number of groups into which the input and output channels are divided.
    pub groups: usize,
    /// Whether a bias is added to each output channel.
    pub bias: bool,
}

impl ConvTranspose2d {
    /// Creates a transposed convolution with a square kernel, no padding, one group and a bias.
    #[must_use]
    pub fn new(out_channels: usize, kernel: usize, stride: usize) -> Self {
        Self {
            out_channels,
            kernel: [kernel, kernel],
            stride: [stride, stride],
            padding: [0, 0],
            output_padding: [0, 0],
            dilation: undilated(),
            groups: 1,
            bias: true,
        }
    }

    /// Returns the convolution of which this layer's output is the input gradient, without a bias.
    /// `in_channels` is the number of channels of this layer's input, its output channels.
    #[must_use]
    pub fn transposed(&self, in_channels: usize) -> Conv2d {
        let &Self { kernel, stride, padding, dilation, groups, .. } = self;
        Conv2d { out_channels: in_channels, kernel, stride, padding, dilation, groups, bias: false }
    }
}

fn undilated() -> [usize; 2] {
    [1, 1]
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_undilated(dilation: &[usize; 2]) -> bool {
    *dilation == undilated()
}

/// Hyper-parameters of a batch normalisation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchNorm {
    /// Term added to the variance before the square root.
    pub epsilon: f64,
    /// Weight of the current batch in the running statistics, in `0.0..=1.0`.
    pub momentum: f64,
}

impl Default for BatchNorm {
    /// Returns epsilon 1e-5 and momentum 0.1, as in PyTorch.
    fn default() -> Self {
        Self { epsilon: 1e-5, momentum: 0.1 }
    }
}

/// Hyper-parameters of a maximum or average pooling: the sliding window. Pairs are
/// `[height, width]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool2d {
    /// Size of the window.
    pub kernel: [usize; 2],
    /// Step between neighbouring positions of the window.
    pub stride: [usize; 2],
    /// Number of padded rows at the top and at the bottom, and of padded columns on the left and on
    /// the right. At most half of the kernel.
    pub padding: [usize; 2],
    /// Padding at the bottom and on the right in addition to `padding`, less than the kernel. It
    /// expresses `ceil_mode` of PyTorch and asymmetric padding of ONNX.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub extra_padding: [usize; 2],
    /// Whether padding counts as zeros in an average (`count_include_pad` of PyTorch). Ignored by
    /// maximum pooling.
    #[serde(default = "default_true", skip_serializing_if = "Clone::clone")]
    pub count_padding: bool,
}

fn is_zero(padding: &[usize; 2]) -> bool {
    *padding == [0, 0]
}

fn default_true() -> bool {
    true
}

impl Pool2d {
    /// Creates a square window with sides of `kernel` pixels and the given stride in both
    /// directions. It has no padding.
    #[must_use]
    pub fn new(kernel: usize, stride: usize) -> Self {
        Self {
            kernel: [kernel; 2],
            stride: [stride; 2],
            padding: [0, 0],
            extra_padding: [0, 0],
            count_padding: true,
        }
    }

    /// Sets the padding in both directions.
    #[must_use]
    pub fn padding(mut self, padding: usize) -> Self {
        self.padding = [padding; 2];
        self
    }

    /// Sets the additional padding at the bottom and on the right, `[height, width]`.
    #[must_use]
    pub fn extra_padding(mut self, extra_padding: [usize; 2]) -> Self {
        self.extra_padding = extra_padding;
        self
    }

    /// Excludes padding from averages.
    #[must_use]
    pub fn without_counting_padding(mut self) -> Self {
        self.count_padding = false;
        self
    }
}

/// Hyper-parameters of an adaptive average pooling, whose windows are chosen to give the output
/// size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdaptiveAvgPool2d {
    /// Output size `[height, width]`.
    pub output: [usize; 2],
}

/// Hyper-parameters of a local response normalisation, as defined by PyTorch: each channel is
/// divided by `(k + alpha * mean)^beta`, where `mean` is the sum of squares over the existing
/// neighbouring channels divided by `size`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalResponseNorm {
    /// Number of adjacent channels in the sum, at least 1, centred on the channel and including it.
    /// If it is even, there is one more channel before the centre than after it, as in PyTorch.
    /// (ONNX has one more after it.)
    pub size: usize,
    /// Factor of the mean square, at least 0.
    pub alpha: f64,
    /// Exponent of the divisor.
    pub beta: f64,
    /// Term added to the scaled mean square, greater than 0.
    pub k: f64,
}
