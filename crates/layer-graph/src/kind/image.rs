//! Hyper-parameters of the layers that work on images.

use serde::{Deserialize, Serialize};

/// Hyper-parameters of a convolution. Pairs are `[height, width]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conv2d {
    /// Number of output channels. A multiple of `groups`.
    pub out_channels: usize,
    /// Size of the kernel.
    pub kernel: [usize; 2],
    /// Step between neighbouring positions of the kernel.
    pub stride: [usize; 2],
    /// Zeros added on each side.
    pub padding: [usize; 2],
    /// Number of channel groups. 1 is an ordinary convolution.
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
        Self { out_channels, kernel, stride: [1, 1], padding: [0, 0], groups: 1, bias: true }
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

    /// Sets the number of groups.
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

/// Hyper-parameters of a batch normalisation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchNorm {
    /// Term added to the variance before the square root.
    pub epsilon: f64,
    /// Weight of the current batch in the running statistics.
    pub momentum: f64,
}

impl Default for BatchNorm {
    /// Returns epsilon 1e-5 and momentum 0.1, as in PyTorch.
    fn default() -> Self {
        Self { epsilon: 1e-5, momentum: 0.1 }
    }
}

/// Hyper-parameters of a pooling window. Pairs are `[height, width]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool2d {
    /// Size of the window.
    pub kernel: [usize; 2],
    /// Step between neighbouring positions of the window.
    pub stride: [usize; 2],
    /// Padding on each side. At most half of the kernel.
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
    /// Creates a square window with the given stride and no padding.
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

    /// Sets the additional padding at the bottom and on the right.
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

/// Hyper-parameters of an adaptive average pooling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdaptiveAvgPool2d {
    /// Output size `[height, width]`.
    pub output: [usize; 2],
}

/// Hyper-parameters of a local response normalisation, as defined by PyTorch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalResponseNorm {
    /// Number of neighbouring channels in the sum, at least 1, centred on the channel. If it is
    /// even, there is one more channel before the centre than after it, as in PyTorch. (ONNX has
    /// one more after it.)
    pub size: usize,
    /// Factor of the mean square.
    pub alpha: f64,
    /// Exponent.
    pub beta: f64,
    /// Term added to the scaled mean square.
    pub k: f64,
}
