//! Hyper-parameters of the layers that work on images.

use serde::{Deserialize, Serialize};

/// Hyper-parameters of a convolution. Pairs are `[height, width]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conv2d {
    /// Channels of the output; a multiple of `groups`.
    pub out_channels: usize,
    /// Size of the kernel.
    pub kernel: [usize; 2],
    /// Step of the kernel.
    pub stride: [usize; 2],
    /// Zeros added at each side.
    pub padding: [usize; 2],
    /// Independent groups of channels; 1 is an ordinary convolution.
    pub groups: usize,
    /// Whether a bias is added to each output channel.
    pub bias: bool,
}

impl Conv2d {
    /// A convolution with a square kernel, stride 1, no padding, one group, and a bias.
    #[must_use]
    pub fn new(out_channels: usize, kernel: usize) -> Self {
        Self::rectangular(out_channels, [kernel, kernel])
    }

    /// A convolution with a `[height, width]` kernel, stride 1, no padding, one group, and a bias.
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

    /// Sets the padding by direction: `[height, width]`.
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

    /// Leaves the bias out, as before a batch normalisation.
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
    /// Added to the variance before its square root.
    pub epsilon: f64,
    /// Weight of the current batch in the running statistics.
    pub momentum: f64,
}

impl Default for BatchNorm {
    /// Epsilon 1e-5 and momentum 0.1, as in PyTorch.
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
    /// Step of the window.
    pub stride: [usize; 2],
    /// Padding at each side; at most half of the kernel.
    pub padding: [usize; 2],
    /// Padding at the bottom and at the right in addition to `padding`, less than the kernel: what rounding the number of windows
    /// up comes to.
    #[serde(default, skip_serializing_if = "is_none")]
    pub extra_padding: [usize; 2],
    /// Whether all of the padding counts as zeros in a mean. It never counts in a maximum.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub count_padding: bool,
}

fn is_none(padding: &[usize; 2]) -> bool {
    *padding == [0, 0]
}

fn yes() -> bool {
    true
}

impl Pool2d {
    /// A square window with this stride and no padding.
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

    /// Sets the padding at the bottom and at the right beyond that at each side.
    #[must_use]
    pub fn extra_padding(mut self, extra_padding: [usize; 2]) -> Self {
        self.extra_padding = extra_padding;
        self
    }

    /// Leaves the padding out of a mean.
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
    /// Size of the output, `[height, width]`.
    pub output: [usize; 2],
}

/// Hyper-parameters of a local response normalisation, as PyTorch defines them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalResponseNorm {
    /// Neighbouring channels that are summed, at least one: the channel itself in the middle, and of an even number one more
    /// before it than after it (as in PyTorch; ONNX has it the other way round).
    pub size: usize,
    /// Factor of the mean square.
    pub alpha: f64,
    /// The power.
    pub beta: f64,
    /// Added to the scaled mean square.
    pub k: f64,
}
