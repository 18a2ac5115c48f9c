//! Kinds of layers with their hyper-parameters: the numbers that define an operation and are not
//! learned.

mod additive;
mod attention;
mod cross_entropy;
mod experts;
mod image;
mod opaque;
mod rearrange;
mod recurrent;
mod rotary;
mod sequence;

use serde::{Deserialize, Serialize};

use crate::Shape;

pub use additive::{AdditiveAttention, AdditiveSizes};
pub use attention::{AttentionSizes, LinearBiases, MultiHeadAttention, RelativePositions};
pub use cross_entropy::SoftmaxCrossEntropy;
pub use experts::{ExpertActivation, ExpertSizes, MixtureOfExperts};
pub use image::{
    AdaptiveAvgPool2d, BatchNorm, Conv2d, ConvTranspose2d, GroupNorm, LocalResponseNorm, Pad, Pool2d,
};
pub use opaque::{Opaque, OpaquePass};
pub use rearrange::{Permute, Reshape, Select, Slice};
pub use recurrent::{Recurrence, RecurrenceSizes, RecurrentCell};
pub use rotary::{RotaryEmbedding, RotaryScaling};
pub use sequence::{Embedding, LayerNorm, Linear, PositionEmbedding, RmsNorm};

/// Operation of a layer with its hyper-parameters.
///
/// Quantities that follow from the inputs, such as channel counts and output sizes, are inferred
/// when the layer is added to a [`LayerGraph`](crate::LayerGraph).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum LayerKind {
    /// Input of the network; its output is a part of the sample. The first layers of a graph, at
    /// least one, are its inputs.
    Input,
    /// Two-dimensional convolution (cross-correlation, as in PyTorch).
    Conv2d(Conv2d),
    /// Transposed two-dimensional convolution, as in PyTorch.
    ConvTranspose2d(ConvTranspose2d),
    /// Affine map `y = W x + b` over the innermost dimension: a feature vector, or each position of
    /// a sequence or of a channels-last image.
    Linear(Linear),
    /// Batch normalisation of each channel of an image or a signal, or each feature of a vector.
    BatchNorm(BatchNorm),
    /// Layer normalisation (Ba, Kiros and Hinton, 2016) over the innermost dimension: a feature
    /// vector, or each position of a sequence or of a channels-last image.
    LayerNorm(LayerNorm),
    /// Root-mean-square normalisation (Zhang and Sennrich, 2019) over the innermost dimension: `x /
    /// sqrt(mean(x^2) + epsilon) * weight`.
    RmsNorm(RmsNorm),
    /// Group normalisation (Wu and He, 2018): each group of channels of a sample is normalised, and
    /// each channel has a weight and a bias. Channels are the outermost dimension. With one channel
    /// in each group, it is instance normalisation (Ulyanov, Vedaldi and Lempitsky, 2016).
    GroupNorm(GroupNorm),
    /// Local response normalisation (Krizhevsky, Sutskever and Hinton, 2012): divides each channel
    /// of an image by `(k + alpha * mean)^beta`. `mean` is the sum of squares over the existing
    /// neighbouring channels divided by `size`.
    LocalResponseNorm(LocalResponseNorm),
    /// `max(x, 0)`.
    Relu,
    /// `min(max(x, 0), 6)`.
    Relu6,
    /// `x` where it is positive, else `x` times the negative slope (Maas, Hannun and Ng, 2013).
    LeakyRelu(LeakyRelu),
    /// Approximation of the logistic function by a line (Howard et al., 2019): `min(max(x / 6 +
    /// 1/2, 0), 1)`.
    HardSigmoid,
    /// Approximation of the sigmoid linear unit (Howard et al., 2019): `x * hard_sigmoid(x)`.
    HardSwish,
    /// Gaussian error linear unit (Hendrycks and Gimpel, 2016) in its tanh approximation, as GPT-2
    /// uses it: `x * sigmoid(sqrt(8 / pi) * (x + 0.044715 x^3))`.
    GeluTanh,
    /// Exact Gaussian error linear unit: `x * Phi(x)`, where `Phi` is the standard normal
    /// distribution function.
    Gelu,
    /// Gaussian error linear unit in its sigmoid approximation, as CLIP uses it: `x * sigmoid(1.702
    /// x)`.
    QuickGelu,
    /// Sigmoid linear unit, also called swish: `x * sigmoid(x)`.
    Silu,
    /// Logistic function: `1 / (1 + exp(-x))`.
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
    /// Softmax over the innermost dimension.
    Softmax,
    /// Token embedding. Input: a vector of `positions` token ids. Output: `positions x features`.
    Embedding(Embedding),
    /// Adds a learned position vector to the feature vector at each position of a sequence.
    PositionEmbedding(PositionEmbedding),
    /// Rotation of the features of each head by angles that grow with the position.
    RotaryEmbedding(RotaryEmbedding),
    /// Prepends a learned vector to a sequence, as the class token of a vision transformer.
    ClassToken,
    /// Multi-head scaled dot-product attention (Vaswani et al., 2017).
    ///
    /// One input: `positions x 3 features`, for each position its query, key and value, each split
    /// into heads. Or three inputs: queries, `positions x heads d`; keys and values, each
    /// `key positions x key heads d`, with the number of features of a head, `d`. Equal groups of
    /// query heads share the key heads in order (grouped queries; Ainslie et al., 2023). A causal
    /// attention has as many key positions as positions. With
    /// [padding](MultiHeadAttention::padding), there is one more input. Output: `positions x
    /// features`, or `positions x heads d`. The projections before and after it are [`Linear`]
    /// layers. Its only parameters are those of [`RelativePositions`].
    MultiHeadAttention(MultiHeadAttention),
    /// Additive attention (Bahdanau, Cho and Bengio, 2015). Three inputs: queries, `positions x
    /// units`; keys, `key positions x units`; values, `key positions x features`. Output:
    /// `positions x features`.
    AdditiveAttention(AdditiveAttention),
    /// Recurrence of an LSTM or of a GRU over the positions of a sequence. Input: the gates,
    /// `positions x gates width`. Output: `positions x width`.
    Recurrence(Recurrence),
    /// Mixture of experts, of which the scores of a router choose some for each position.
    MixtureOfExperts(MixtureOfExperts),
    /// Maximum of each window. Padding counts as minus infinity.
    MaxPool2d(Pool2d),
    /// Average of each window. [`Pool2d::count_padding`] says whether padding counts as zeros (the
    /// default of PyTorch) or not at all.
    AvgPool2d(Pool2d),
    /// Average pooling of an image to a given height and width. To a multiple of the image's height
    /// and width, it repeats pixels: nearest-neighbour upsampling.
    AdaptiveAvgPool2d(AdaptiveAvgPool2d),
    /// Adds rows and columns of zeros around an image.
    Pad(Pad),
    /// Reshapes a sample of any shape to a vector of features.
    Flatten,
    /// Reshapes a sample to another shape with the same number of elements.
    Reshape(Reshape),
    /// Permutes the dimensions of a sample.
    Permute(Permute),
    /// Selects one position along the outermost dimension and removes that dimension, such as one
    /// token of a sequence.
    Select(Select),
    /// Selects a range of positions along the outermost dimension, such as channels of an image.
    Slice(Slice),
    /// Concatenates at least two images along the channels, or at least two vectors or sequences
    /// along the features.
    Concat,
    /// Element-wise sum of at least two inputs of the same shape.
    Add,
    /// Element-wise product of two inputs, as of a gate and the values that it lets through. They
    /// have the same shape, or the first are images and the second has one number a channel:
    /// `channels x 1 x 1`, as in a squeeze-and-excitation.
    Multiply,
    /// Product with a constant factor, or with learned ones.
    Scale(Scale),
    /// Dropout: zeroes each element, or each sample, with probability `p` during training and
    /// divides the others by `1 - p`.
    Dropout(Dropout),
    /// Softmax with cross entropy against the sample's label, the index of its class. Its output is
    /// the loss of each sample.
    ///
    /// Over a sequence of `positions x classes` there is one label for each position, and the loss
    /// of a sample is the mean over positions. A part of the layer has some of the positions, and
    /// its loss is their share of the mean. Labels may be smoothed, and one may be ignored.
    SoftmaxCrossEntropy(SoftmaxCrossEntropy),
    /// Loss of each element of the input against a number, its label. The loss of a sample is the
    /// mean over its elements.
    ElementwiseLoss(ElementwiseLoss),
    /// Operation known only by its cost. It can be planned and simulated, but no engine runs it.
    Opaque(Opaque),
}

impl LayerKind {
    /// Softmax with cross entropy without options.
    pub const CROSS_ENTROPY: Self =
        Self::SoftmaxCrossEntropy(SoftmaxCrossEntropy { label_smoothing: 0.0, ignored_label: None });

    /// Returns the name of the kind, as in the JSON format, such as `conv2d`.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Conv2d(_) => "conv2d",
            Self::ConvTranspose2d(_) => "conv_transpose2d",
            Self::Linear(_) => "linear",
            Self::BatchNorm(_) => "batch_norm",
            Self::LayerNorm(_) => "layer_norm",
            Self::RmsNorm(_) => "rms_norm",
            Self::GroupNorm(_) => "group_norm",
            Self::LocalResponseNorm(_) => "local_response_norm",
            Self::Relu => "relu",
            Self::Relu6 => "relu6",
            Self::LeakyRelu(_) => "leaky_relu",
            Self::HardSigmoid => "hard_sigmoid",
            Self::HardSwish => "hard_swish",
            Self::GeluTanh => "gelu_tanh",
            Self::Gelu => "gelu",
            Self::QuickGelu => "quick_gelu",
            Self::Silu => "silu",
            Self::Sigmoid => "sigmoid",
            Self::Tanh => "tanh",
            Self::Softmax => "softmax",
            Self::Embedding(_) => "embedding",
            Self::PositionEmbedding(_) => "position_embedding",
            Self::RotaryEmbedding(_) => "rotary_embedding",
            Self::ClassToken => "class_token",
            Self::MultiHeadAttention(_) => "multi_head_attention",
            Self::AdditiveAttention(_) => "additive_attention",
            Self::Recurrence(_) => "recurrence",
            Self::MixtureOfExperts(_) => "mixture_of_experts",
            Self::MaxPool2d(_) => "max_pool2d",
            Self::AvgPool2d(_) => "avg_pool2d",
            Self::AdaptiveAvgPool2d(_) => "adaptive_avg_pool2d",
            Self::Pad(_) => "pad",
            Self::Flatten => "flatten",
            Self::Reshape(_) => "reshape",
            Self::Permute(_) => "permute",
            Self::Select(_) => "select",
            Self::Slice(_) => "slice",
            Self::Concat => "concat",
            Self::Add => "add",
            Self::Multiply => "multiply",
            Self::Scale(_) => "scale",
            Self::Dropout(_) => "dropout",
            Self::SoftmaxCrossEntropy(_) => "softmax_cross_entropy",
            Self::ElementwiseLoss(_) => "elementwise_loss",
            Self::Opaque(_) => "opaque",
        }
    }

    /// Returns whether the layer is a convolution of images, or a transposed one.
    #[must_use]
    pub fn is_convolution(&self) -> bool {
        matches!(self, Self::Conv2d(_) | Self::ConvTranspose2d(_))
    }

    /// Returns whether the layer applies a function of one number to each element: a rectifier, a
    /// Gaussian error linear unit, a sigmoid or another of these.
    #[must_use]
    pub fn is_activation(&self) -> bool {
        use LayerKind as K;
        self.is_smooth_activation()
            || matches!(self, K::Relu | K::Relu6 | K::LeakyRelu(_) | K::HardSigmoid | K::HardSwish)
    }

    /// Returns whether the layer is an [activation](Self::is_activation) that computes an
    /// exponential or an error function.
    #[must_use]
    pub fn is_smooth_activation(&self) -> bool {
        use LayerKind as K;
        matches!(self, K::GeluTanh | K::Gelu | K::QuickGelu | K::Silu | K::Sigmoid | K::Tanh)
    }

    /// Returns whether the layer draws a random number in training for each of several things of a
    /// sample: a dropout of elements, or an attention with dropout.
    #[must_use]
    pub fn draws_by_element(&self) -> bool {
        match self {
            Self::Dropout(dropout) => !dropout.of_samples,
            Self::MultiHeadAttention(attention) => attention.dropout > 0.0,
            _ => false,
        }
    }

    /// Returns whether the layer is a loss: its output is then one number, the loss of the sample.
    #[must_use]
    pub fn is_loss(&self) -> bool {
        match self {
            Self::SoftmaxCrossEntropy(_) | Self::ElementwiseLoss(_) => true,
            Self::Opaque(opaque) => opaque.labels.is_some(),
            _ => false,
        }
    }
}

/// Hyper-parameters of a leaky rectifier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeakyRelu {
    /// Factor of inputs of at most zero: a finite number of at least 0.
    pub negative_slope: f64,
}

impl Default for LeakyRelu {
    /// Returns the negative slope 0.01, as in PyTorch.
    fn default() -> Self {
        Self { negative_slope: 0.01 }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Loss of an element `x` against its label `t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ElementwiseLoss {
    /// `(x - t)^2`.
    MeanSquaredError,
    /// Cross entropy of the probability `1 / (1 + exp(-x))` against the probability `t`: `log(1 +
    /// exp(x)) - t x`.
    BinaryCrossEntropy,
}

/// Factors of a scaling.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// One factor that is not learned, such as that of the embeddings of Gemma.
    Constant(f64),
    /// A learned factor for each index of the innermost dimension: a feature of a vector, or of
    /// each position of a sequence or of a channels-last image (Touvron et al., "Going deeper with
    /// image transformers", 2021).
    Features,
    /// A learned factor for each channel of an image.
    Channels,
}

impl Scale {
    /// Returns the number of learned factors for samples of a shape.
    #[must_use]
    pub fn factors(&self, sample: &Shape) -> usize {
        match self {
            Self::Constant(_) => 0,
            Self::Features => sample.innermost(),
            Self::Channels => sample.dims()[0],
        }
    }
}

/// Hyper-parameters of a dropout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dropout {
    /// Probability that an element, or a sample, is zeroed, in `0.0..1.0`.
    pub probability: f64,
    /// Whether all elements of a sample are zeroed or kept together: stochastic depth (Huang et
    /// al., 2016).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_samples: bool,
}

impl Dropout {
    /// Creates a dropout of elements.
    #[must_use]
    pub fn new(probability: f64) -> Self {
        Self { probability, of_samples: false }
    }
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
into_kind!(
    Conv2d,
    ConvTranspose2d,
    Linear,
    BatchNorm,
    LeakyRelu,
    LayerNorm,
    RmsNorm,
    GroupNorm,
    LocalResponseNorm,
    Embedding,
    PositionEmbedding,
    RotaryEmbedding,
    MultiHeadAttention,
    AdditiveAttention,
    Recurrence,
    MixtureOfExperts,
    AdaptiveAvgPool2d,
    Pad,
    Reshape,
    Permute,
    Select,
    Slice,
    Scale,
    Dropout,
    SoftmaxCrossEntropy,
    ElementwiseLoss,
    Opaque
);
