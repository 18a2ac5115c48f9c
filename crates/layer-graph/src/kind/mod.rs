mod image;
mod opaque;
mod rearrange;
mod sequence;

use serde::{Deserialize, Serialize};

pub use image::{AdaptiveAvgPool2d, BatchNorm, Conv2d, LocalResponseNorm, Pool2d};
pub use opaque::{Opaque, OpaquePass};
pub use rearrange::{Permute, Reshape, Select};
pub use sequence::{Embedding, LayerNorm, Linear, MultiHeadAttention, PositionEmbedding};

/// What a layer computes. The variants' fields are the layer's hyper-parameters; what follows from the inputs
/// (channel counts, output sizes) is inferred when the layer is added to a [`LayerGraph`](crate::LayerGraph).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum LayerKind {
    /// The network's input. Every graph has exactly one, its first layer.
    Input,
    /// Two-dimensional convolution (cross-correlation, as in every framework).
    Conv2d(Conv2d),
    /// `y = W x + b` over a feature vector, or over each position of a sequence or of an image whose channels come last: over the
    /// innermost dimension.
    Linear(Linear),
    /// Batch normalisation over each channel of an image, or each feature of a vector.
    BatchNorm(BatchNorm),
    /// Layer normalisation (Ba, Kiros and Hinton, 2016) over the features of a vector, or of each position of a sequence or of an
    /// image whose channels come last: over the innermost dimension.
    LayerNorm(LayerNorm),
    /// Divides each channel of an image by `(k + alpha * mean square of its neighbours)^beta`, where the mean is the sum over
    /// the neighbouring channels that exist divided by `size` (Krizhevsky, Sutskever and Hinton, 2012).
    LocalResponseNorm(LocalResponseNorm),
    /// `max(x, 0)`.
    Relu,
    /// `x * sigmoid(sqrt(8 / pi) * (x + 0.044715 x^3))`: the Gaussian error linear unit (Hendrycks and Gimpel, 2016)
    /// by its tanh approximation, as GPT-2 uses it.
    GeluTanh,
    /// `x * Phi(x)`, with the distribution function of the standard normal distribution: the Gaussian error linear unit
    /// itself.
    Gelu,
    /// Softmax over the innermost dimension.
    Softmax,
    /// The learned vector of each token. Its input is a vector of token numbers, `positions`; its output a sequence,
    /// `positions x features`.
    Embedding(Embedding),
    /// Adds the learned vector of its position to each element of a sequence.
    PositionEmbedding(PositionEmbedding),
    /// Puts a learned vector in front of a sequence: the class token of a vision transformer, whose output is classified.
    ClassToken,
    /// Scaled dot-product attention of several heads (Vaswani et al., 2017) over a sequence of
    /// `positions x 3 features`: for each position its query, key and value, one after another, each cut into heads. The
    /// output is `positions x features`. The projections before and after it are [`Linear`] layers.
    MultiHeadAttention(MultiHeadAttention),
    /// The largest value of each window; padding counts as minus infinity.
    MaxPool2d(Pool2d),
    /// The mean of each window. Padding counts as zeros, as is PyTorch's default, or not at all: see
    /// [`Pool2d::count_padding`].
    AvgPool2d(Pool2d),
    /// Average pooling to a given output size.
    AdaptiveAvgPool2d(AdaptiveAvgPool2d),
    /// An image as a vector of features.
    Flatten,
    /// The same elements in another shape.
    Reshape(Reshape),
    /// The dimensions of a sample in another order.
    Permute(Permute),
    /// One position along the outermost dimension, which is removed, such as a token of a sequence.
    Select(Select),
    /// Joins images along the channel dimension.
    Concat,
    /// The sum of its inputs, element by element.
    Add,
    /// Zeroes each element with a probability while training, and scales the others up.
    Dropout(Dropout),
    /// Softmax and cross entropy against the sample's label; its output is the loss of each sample. Over a sequence,
    /// `positions x classes`, a sample has a label at each position, and its loss is their mean.
    SoftmaxCrossEntropy,
    /// Whatever no other kind is, of which only the cost is known: it can be planned, and no engine runs it.
    Opaque(Opaque),
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
            Self::LayerNorm(_) => "layer_norm",
            Self::LocalResponseNorm(_) => "local_response_norm",
            Self::Relu => "relu",
            Self::GeluTanh => "gelu_tanh",
            Self::Gelu => "gelu",
            Self::Softmax => "softmax",
            Self::Embedding(_) => "embedding",
            Self::PositionEmbedding(_) => "position_embedding",
            Self::ClassToken => "class_token",
            Self::MultiHeadAttention(_) => "multi_head_attention",
            Self::MaxPool2d(_) => "max_pool2d",
            Self::AvgPool2d(_) => "avg_pool2d",
            Self::AdaptiveAvgPool2d(_) => "adaptive_avg_pool2d",
            Self::Flatten => "flatten",
            Self::Reshape(_) => "reshape",
            Self::Permute(_) => "permute",
            Self::Select(_) => "select",
            Self::Concat => "concat",
            Self::Add => "add",
            Self::Dropout(_) => "dropout",
            Self::SoftmaxCrossEntropy => "softmax_cross_entropy",
            Self::Opaque(_) => "opaque",
        }
    }

    /// Whether its output is the loss of each sample.
    #[must_use]
    pub fn is_loss(&self) -> bool {
        match self {
            Self::SoftmaxCrossEntropy => true,
            Self::Opaque(opaque) => opaque.labels.is_some(),
            _ => false,
        }
    }
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
into_kind!(
    Conv2d,
    Linear,
    BatchNorm,
    LayerNorm,
    LocalResponseNorm,
    Embedding,
    PositionEmbedding,
    MultiHeadAttention,
    AdaptiveAvgPool2d,
    Reshape,
    Permute,
    Select,
    Dropout,
    Opaque
);
