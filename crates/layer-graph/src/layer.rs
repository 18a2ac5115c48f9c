use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::{LayerKind, Shape};

/// Bytes of one element. Activations and parameters are counted in single precision.
const ELEMENT_BYTES: u64 = 4;

/// One layer of a network with the shapes that were inferred for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    pub(crate) name: String,
    pub(crate) kind: LayerKind,
    pub(crate) inputs: Vec<Shape>,
    pub(crate) output: Shape,
}

/// A tensor that a layer owns: a learned parameter, or a running statistic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerTensor {
    /// Its name within the layer, as in PyTorch: `weight`, `bias`, `running_mean`, `running_var`.
    pub name: Cow<'static, str>,
    /// Its dimensions, outermost first: `out x in x height x width` for a convolution's weight.
    pub dims: Vec<usize>,
}

impl LayerTensor {
    /// A tensor of this name with these dimensions, outermost first.
    #[must_use]
    pub fn new(name: impl Into<Cow<'static, str>>, dims: impl Into<Vec<usize>>) -> Self {
        Self { name: name.into(), dims: dims.into() }
    }

    /// Elements of the tensor.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.dims.iter().product()
    }
}

impl Layer {
    /// The layer's name, unique in its graph.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the layer computes.
    #[must_use]
    pub fn kind(&self) -> &LayerKind {
        &self.kind
    }

    /// The shapes of one sample of each input, in order.
    #[must_use]
    pub fn input_shapes(&self) -> &[Shape] {
        &self.inputs
    }

    /// The shape of one sample of the output.
    #[must_use]
    pub fn output_shape(&self) -> &Shape {
        &self.output
    }

    /// The learned parameters, in the order in which they lie in the layer's flat parameter buffer.
    #[must_use]
    pub fn parameters(&self) -> Vec<LayerTensor> {
        let bias = |present: bool, count: usize| present.then(|| LayerTensor::new("bias", [count]));
        match &self.kind {
            LayerKind::Conv2d(conv) => {
                let inputs = self.inputs[0].dims()[0] / conv.groups;
                let dims = [conv.out_channels, inputs, conv.kernel[0], conv.kernel[1]];
                let weight = LayerTensor::new("weight", dims);
                std::iter::once(weight).chain(bias(conv.bias, conv.out_channels)).collect()
            }
            LayerKind::Linear(linear) => {
                let weight = LayerTensor::new("weight", [linear.out_features, self.inputs[0].innermost()]);
                std::iter::once(weight).chain(bias(linear.bias, linear.out_features)).collect()
            }
            LayerKind::BatchNorm(_) => {
                let channels = self.inputs[0].dims()[0];
                vec![LayerTensor::new("weight", [channels]), LayerTensor::new("bias", [channels])]
            }
            LayerKind::LayerNorm(_) => {
                let features = self.inputs[0].innermost();
                vec![LayerTensor::new("weight", [features]), LayerTensor::new("bias", [features])]
            }
            LayerKind::Embedding(embedding) => {
                vec![LayerTensor::new("weight", [embedding.vocabulary, embedding.features])]
            }
            LayerKind::PositionEmbedding(embedding) => {
                let features = self.inputs[0].innermost();
                vec![LayerTensor::new("weight", [1, embedding.positions, features])]
            }
            LayerKind::ClassToken => vec![LayerTensor::new("weight", [1, 1, self.inputs[0].innermost()])],
            LayerKind::Opaque(opaque) => opaque.parameters.clone(),
            _ => Vec::new(),
        }
    }

    /// Statistics that training updates without a gradient, in the order of the layer's flat state buffer.
    #[must_use]
    pub fn statistics(&self) -> Vec<LayerTensor> {
        match self.kind {
            LayerKind::BatchNorm(_) => {
                let channels = self.inputs[0].dims()[0];
                vec![
                    LayerTensor::new("running_mean", [channels]),
                    LayerTensor::new("running_var", [channels]),
                ]
            }
            _ => Vec::new(),
        }
    }

    /// What a tensor of the layer is called among all of the network's, as in PyTorch's `state_dict` where layers are named as modules:
    /// `conv1.weight`, `bn1.running_mean`.
    ///
    /// What PyTorch has no module for is named as there, too: class tokens and position embeddings are parameters, so that their name is the
    /// layer's, and the projection in front of an attention, whose layer is called `in_proj`, has an `in_proj_weight` and an
    /// `in_proj_bias`.
    #[must_use]
    pub fn tensor_name(&self, tensor: &LayerTensor) -> String {
        let layer = &self.name;
        match self.kind {
            LayerKind::ClassToken | LayerKind::PositionEmbedding(_) => layer.clone(),
            LayerKind::Linear(_) if layer.ends_with(".in_proj") => format!("{layer}_{}", tensor.name),
            _ => format!("{layer}.{}", tensor.name),
        }
    }

    /// Labels of one sample: one at each position of a sequence for a [`LayerKind::SoftmaxCrossEntropy`], as many as it says for an opaque
    /// loss, none for other kinds.
    #[must_use]
    pub fn label_count(&self) -> usize {
        match &self.kind {
            LayerKind::SoftmaxCrossEntropy => self.inputs[0].elements() / self.inputs[0].innermost(),
            LayerKind::Opaque(opaque) => opaque.labels.unwrap_or_default(),
            _ => 0,
        }
    }

    /// Number of learned parameters.
    #[must_use]
    pub fn parameter_count(&self) -> usize {
        self.parameters().iter().map(LayerTensor::elements).sum()
    }

    /// Bytes of the learned parameters in single precision.
    #[must_use]
    pub fn parameter_bytes(&self) -> u64 {
        self.parameter_count() as u64 * ELEMENT_BYTES
    }

    /// Bytes of one sample of the output in single precision.
    #[must_use]
    pub fn output_bytes(&self) -> u64 {
        self.output.elements() as u64 * ELEMENT_BYTES
    }

    /// Bytes of one sample of all inputs in single precision.
    #[must_use]
    pub fn input_bytes(&self) -> u64 {
        self.inputs.iter().map(|shape| shape.elements() as u64 * ELEMENT_BYTES).sum()
    }

    /// Floating-point operations of one sample's forward pass; a multiply-add counts as two.
    ///
    /// Element-wise layers count their arithmetic by a fixed number an element (softmax, and softmax with cross entropy: five,
    /// batch normalisation with its statistics: six, layer normalisation: eight, GELU: ten). Attention counts both of its
    /// products in full, masked or not.
    #[must_use]
    pub fn forward_flops(&self) -> u64 {
        let outputs = self.output.elements() as u64;
        let inputs: u64 = self.inputs.iter().map(|shape| shape.elements() as u64).sum();
        match &self.kind {
            LayerKind::Input
            | LayerKind::Flatten
            | LayerKind::Concat
            | LayerKind::Reshape(_)
            | LayerKind::Permute(_)
            | LayerKind::Select(_)
            | LayerKind::Embedding(_)
            | LayerKind::ClassToken => 0,
            LayerKind::Conv2d(_) | LayerKind::Linear(_) => {
                let parameters = self.parameters();
                let products: usize = parameters[0].dims[1..].iter().product();
                outputs * (2 * products as u64 + (parameters.len() as u64 - 1))
            }
            LayerKind::BatchNorm(_) => 6 * inputs,
            LayerKind::LayerNorm(_) => 8 * inputs,
            LayerKind::LocalResponseNorm(norm) => outputs * (2 * norm.size as u64 + 4),
            LayerKind::Relu | LayerKind::Dropout(_) | LayerKind::PositionEmbedding(_) => outputs,
            LayerKind::GeluTanh | LayerKind::Gelu => 10 * outputs,
            LayerKind::MultiHeadAttention(attention) => {
                let positions = self.output.dims()[0] as u64;
                4 * outputs * positions + 5 * attention.heads as u64 * positions * positions
            }
            LayerKind::MaxPool2d(pool) | LayerKind::AvgPool2d(pool) => {
                outputs * (pool.kernel[0] * pool.kernel[1]) as u64
            }
            LayerKind::AdaptiveAvgPool2d(_) => inputs,
            LayerKind::Add => outputs * (self.inputs.len() as u64 - 1),
            LayerKind::Softmax | LayerKind::SoftmaxCrossEntropy => 5 * inputs,
            LayerKind::Opaque(opaque) => opaque.forward.flops,
        }
    }

    /// Floating-point operations of one sample's backward pass: the gradients of the inputs and, where there are
    /// parameters, of the parameters, each of which costs a convolution or linear layer as much as its forward. So does
    /// the gradient of each factor of a product in an attention.
    #[must_use]
    pub fn backward_flops(&self) -> u64 {
        match &self.kind {
            LayerKind::Conv2d(_)
            | LayerKind::Linear(_)
            | LayerKind::BatchNorm(_)
            | LayerKind::LayerNorm(_)
            | LayerKind::MultiHeadAttention(_) => 2 * self.forward_flops(),
            LayerKind::Embedding(_) => self.output.elements() as u64,
            LayerKind::SoftmaxCrossEntropy => 2 * self.inputs[0].elements() as u64,
            LayerKind::Opaque(opaque) => opaque.backward.flops,
            _ => self.forward_flops(),
        }
    }
}
