use serde::{Deserialize, Serialize};

/// What a layer computes. The variants' fields are the layer's hyper-parameters; what follows from the inputs
/// (channel counts, output sizes) is inferred when the layer joins a [`LayerGraph`](crate::LayerGraph).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum LayerKind {
    /// Where the samples come in. Every graph has exactly one, its first layer.
    Input,
    /// Two-dimensional convolution (cross-correlation, as in every framework).
    Conv2d(Conv2d),
    /// `y = W x + b` over a feature vector.
    Linear(Linear),
    /// Batch normalisation over each channel of an image, or each feature of a vector.
    BatchNorm(BatchNorm),
    /// `max(x, 0)`.
    Relu,
    /// `x * sigmoid(sqrt(8 / pi) * (x + 0.044715 x^3))`: the Gaussian error linear unit (Hendrycks and Gimpel, 2016)
    /// by its tanh approximation, as GPT-2 uses it.
    GeluTanh,
    /// The largest value of each window; padding never wins.
    MaxPool2d(Pool2d),
    /// The mean of each window; padding counts as zeros, as is PyTorch's default.
    AvgPool2d(Pool2d),
    /// Average pooling to a given output size.
    AdaptiveAvgPool2d(AdaptiveAvgPool2d),
    /// An image as a vector of features.
    Flatten,
    /// Joins images along the channel dimension.
    Concat,
    /// The sum of its inputs, element by element.
    Add,
    /// Zeroes each element with a probability while training, and scales the others up.
    Dropout(Dropout),
    /// Softmax and cross entropy against the sample's label; its output is the loss of each sample.
    SoftmaxCrossEntropy,
}

impl LayerKind {
    /// The name of the kind, as in the JSON format.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Conv2d(_) => "conv2d",
            Self::Linear(_) => "linear",
            Self::BatchNorm(_) => "batch_norm",
            Self::Relu => "relu",
            Self::GeluTanh => "gelu_tanh",
            Self::MaxPool2d(_) => "max_pool2d",
            Self::AvgPool2d(_) => "avg_pool2d",
            Self::AdaptiveAvgPool2d(_) => "adaptive_avg_pool2d",
            Self::Flatten => "flatten",
            Self::Concat => "concat",
            Self::Add => "add",
            Self::Dropout(_) => "dropout",
            Self::SoftmaxCrossEntropy => "softmax_cross_entropy",
        }
    }
}

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

/// Hyper-parameters of a linear layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linear {
    /// Features of the output.
    pub out_features: usize,
    /// Whether a bias is added.
    pub bias: bool,
}

impl Linear {
    /// A linear layer with a bias.
    #[must_use]
    pub fn new(out_features: usize) -> Self {
        Self { out_features, bias: true }
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
}

impl Pool2d {
    /// A square window with this stride and no padding.
    #[must_use]
    pub fn new(kernel: usize, stride: usize) -> Self {
        Self { kernel: [kernel; 2], stride: [stride; 2], padding: [0, 0] }
    }

    /// Sets the padding in both directions.
    #[must_use]
    pub fn padding(mut self, padding: usize) -> Self {
        self.padding = [padding; 2];
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

/// Hyper-parameters of a dropout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dropout {
    /// Probability that an element is zeroed; in `0.0..1.0`.
    pub probability: f64,
}

macro_rules! into_kind {
    ($($kind:ident),*) => {$(
        impl From<$kind> for LayerKind {
            fn from(parameters: $kind) -> Self {
                Self::$kind(parameters)
            }
        }
    )*};
}
into_kind!(Conv2d, Linear, BatchNorm, AdaptiveAvgPool2d, Dropout);
