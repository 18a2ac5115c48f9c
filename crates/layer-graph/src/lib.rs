#![doc = include_str!("../README.md")]

mod error;
mod graph;
pub mod hf;
mod infer;
mod json;
mod kind;
mod layer;
mod losses;
#[cfg(feature = "onnx")]
pub mod onnx;
mod shape;
mod size;
mod split;
mod tensor;
pub mod zoo;

pub use error::GraphError;
pub use graph::{LayerGraph, LayerId};
pub use kind::{
    AdaptiveAvgPool2d, AdditiveAttention, AdditiveSizes, AttentionSizes, BatchNorm, Conv2d, ConvTranspose2d,
    Dropout, ElementwiseLoss, Embedding, ExpertActivation, ExpertSizes, GroupNorm, LayerKind, LayerNorm,
    LeakyRelu, Linear, LinearBiases, LocalResponseNorm, MixtureOfExperts, MultiHeadAttention, Opaque,
    OpaquePass, Pad, Permute, Pool2d, PositionEmbedding, Recurrence, RecurrenceSizes, RecurrentCell,
    RelativePositions, Reshape, RmsNorm, RotaryEmbedding, RotaryScaling, Scale, Select, Slice,
    SoftmaxCrossEntropy,
};
pub use layer::Layer;
#[cfg(feature = "onnx")]
pub use onnx::pt2;
pub use shape::Shape;
pub use split::{Division, LayerPart, NetworkSplits, Split, SplitValues, TensorView, Values};
pub use tensor::{LayerTensor, TensorBox};
