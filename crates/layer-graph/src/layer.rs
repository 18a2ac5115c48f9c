//! A layer of a network, with the sizes and costs that follow from its kind and its shapes.

use crate::{ElementwiseLoss, LayerKind, LayerTensor, MultiHeadAttention, Scale, Shape, TensorBox};

/// Bytes of one element in single precision.
const ELEMENT_BYTES: u64 = 4;

/// Layer of a network with its inferred shapes.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// Name of the layer, unique in its graph.
    pub(crate) name: String,
    /// Operation of the layer with its hyper-parameters.
    pub(crate) kind: LayerKind,
    /// Shapes of the inputs for one sample, in the order of the inputs.
    pub(crate) inputs: Vec<Shape>,
    /// Shape of the output for one sample.
    pub(crate) output: Shape,
    /// Box of the whole layer's random numbers that the layer draws, if it is a part of a layer
    /// that draws a number for each of several things.
    pub(crate) random_box: Option<TensorBox>,
    /// Number of positions of the whole layer, if it is a part of a loss.
    pub(crate) mean_positions: Option<usize>,
    /// Factor of the loss in the sum of losses: 1 by default, and for layers that are no loss.
    pub(crate) loss_weight: f64,
}

impl Layer {
    /// Creates a whole layer.
    pub(crate) fn new(name: String, kind: LayerKind, inputs: Vec<Shape>, output: Shape) -> Self {
        Self { name, kind, inputs, output, random_box: None, mean_positions: None, loss_weight: 1.0 }
    }

    /// Returns the layer's name, unique in its graph.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the operation of the layer with its hyper-parameters.
    #[must_use]
    pub fn kind(&self) -> &LayerKind {
        &self.kind
    }

    /// Returns the shapes of one sample of each input, in the order of the inputs.
    #[must_use]
    pub fn input_shapes(&self) -> &[Shape] {
        &self.inputs
    }

    /// Returns the shape of one sample of the output.
    #[must_use]
    pub fn output_shape(&self) -> &Shape {
        &self.output
    }

    /// Returns the random numbers that the layer draws for one sample in training, as a box of
    /// those of the whole layer. They are keyed by their place in the whole layer, so that its
    /// parts draw the same ones.
    ///
    /// There is one for each weight of an attention, `heads x positions x key positions`, and for
    /// each element of the output of other kinds, if they
    /// [draw numbers by element](LayerKind::draws_by_element).
    #[must_use]
    pub fn random_box(&self) -> TensorBox {
        self.random_box.clone().unwrap_or_else(|| match &self.kind {
            LayerKind::MultiHeadAttention(attention) => {
                let weights = attention.sizes(&self.inputs).map(|sizes| sizes.weights());
                TensorBox::whole(weights.unwrap_or_default())
            }
            _ => TensorBox::whole([self.output.elements()]),
        })
    }

    /// Returns the number of positions over which the loss of a sample is a mean: that of the
    /// [labels](Self::label_count), or of the whole layer's if the layer is a part of a loss.
    #[must_use]
    pub fn mean_positions(&self) -> usize {
        self.mean_positions.unwrap_or_else(|| self.label_count())
    }

    /// Returns the factor of the layer's loss in the sum of the network's losses: 1 unless
    /// [`LayerGraph::set_loss_weight`](crate::LayerGraph::set_loss_weight) set another one.
    #[must_use]
    pub fn loss_weight(&self) -> f64 {
        self.loss_weight
    }

    /// Returns the learned parameters, in the order in which they are concatenated in the layer's
    /// parameter buffer. Tied layers list the parameters that they share.
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
            LayerKind::ConvTranspose2d(conv) => {
                let [height, width] = conv.kernel;
                let dims = [self.inputs[0].dims()[0], conv.out_channels / conv.groups, height, width];
                let weight = LayerTensor::new("weight", dims);
                std::iter::once(weight).chain(bias(conv.bias, conv.out_channels)).collect()
            }
            LayerKind::Linear(linear) => {
                let weight = LayerTensor::new("weight", [linear.out_features, self.inputs[0].innermost()]);
                std::iter::once(weight).chain(bias(linear.bias, linear.out_features)).collect()
            }
            LayerKind::BatchNorm(_) | LayerKind::GroupNorm(_) => {
                let channels = self.inputs[0].dims()[0];
                vec![LayerTensor::new("weight", [channels]), LayerTensor::new("bias", [channels])]
            }
            LayerKind::LayerNorm(_) => {
                let features = self.inputs[0].innermost();
                vec![LayerTensor::new("weight", [features]), LayerTensor::new("bias", [features])]
            }
            LayerKind::RmsNorm(_) => vec![LayerTensor::new("weight", [self.inputs[0].innermost()])],
            LayerKind::Embedding(embedding) => {
                vec![LayerTensor::new("weight", [embedding.vocabulary, embedding.features])]
            }
            LayerKind::PositionEmbedding(embedding) => {
                let features = self.inputs[0].innermost();
                vec![LayerTensor::new("weight", [1, embedding.positions, features])]
            }
            LayerKind::ClassToken => vec![LayerTensor::new("weight", [1, 1, self.inputs[0].innermost()])],
            LayerKind::Scale(scale) => match scale.factors(&self.inputs[0]) {
                0 => Vec::new(),
                factors => vec![LayerTensor::new("weight", [factors])],
            },
            LayerKind::Recurrence(rule) => {
                let (gates, width) = (self.inputs[0].innermost(), self.output.innermost());
                let weight = LayerTensor::new("weight", [gates, width]);
                std::iter::once(weight).chain(bias(rule.bias, gates)).collect()
            }
            LayerKind::MixtureOfExperts(rule) => {
                let (features, rows) = (self.inputs[0].innermost(), rule.inner_rows());
                let first = if rule.gated { "gate_up_proj" } else { "up_proj" };
                vec![
                    LayerTensor::new(first, [rule.experts, rows, features]),
                    LayerTensor::new("down_proj", [rule.experts, features, rule.width]),
                ]
            }
            LayerKind::MultiHeadAttention(MultiHeadAttention { heads, relative: Some(relative), .. }) => {
                vec![LayerTensor::new("relative_attention_bias.weight", [relative.buckets, *heads])]
            }
            LayerKind::AdditiveAttention(attention) => {
                let units = self.inputs[0].innermost();
                let vector = [LayerTensor::new("linear_att", [units])];
                let normal =
                    [LayerTensor::new("normalize_scalar", [1]), LayerTensor::new("normalize_bias", [units])];
                vector.into_iter().chain(normal.into_iter().filter(|_| attention.normalised)).collect()
            }
            LayerKind::Opaque(opaque) => opaque.parameters.clone(),
            _ => Vec::new(),
        }
    }

    /// Returns the running statistics, which training updates without a gradient, in the order in
    /// which they are concatenated in the layer's statistics buffer. Empty for layers other than
    /// batch normalisations.
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

    /// Returns the qualified name of one of the layer's parameters or statistics: its key in
    /// PyTorch's `state_dict`, such as `conv1.weight` or `bn1.running_mean`, if layers are named as
    /// PyTorch modules.
    ///
    /// Class tokens, position embeddings and learned factors are plain parameters in PyTorch, so
    /// their key is the layer's name. The input projection of an attention, a linear layer whose
    /// name ends in `.in_proj`, has keys that end in `.in_proj_weight` and `.in_proj_bias`. For
    /// level 0 of a recurrent module `lstm`, the layer `lstm.ih_l0` has the keys
    /// `lstm.weight_ih_l0` and `lstm.bias_ih_l0`, and `lstm.hh_l0` those with `hh`. Those of the
    /// reverse direction end in `_reverse`.
    #[must_use]
    pub fn tensor_name(&self, tensor: &LayerTensor) -> String {
        let layer = &self.name;
        let (path, part) = layer.split_at(layer.rfind('.').map_or(0, |dot| dot + 1));
        match self.kind {
            LayerKind::ClassToken | LayerKind::PositionEmbedding(_) | LayerKind::Scale(_) => layer.clone(),
            LayerKind::Linear(_) if layer.ends_with(".in_proj") => format!("{layer}_{}", tensor.name),
            LayerKind::Linear(_) | LayerKind::Recurrence(_) if is_of_recurrent_module(part) => {
                format!("{path}{}_{part}", tensor.name)
            }
            _ => format!("{layer}.{}", tensor.name),
        }
    }

    /// Returns the number of labels of one sample: one for each position for a
    /// [`LayerKind::SoftmaxCrossEntropy`], one for each element for a
    /// [`LayerKind::ElementwiseLoss`], the declared number for an opaque loss, 0 for other kinds.
    #[must_use]
    pub fn label_count(&self) -> usize {
        match &self.kind {
            LayerKind::SoftmaxCrossEntropy(_) => self.inputs[0].elements() / self.inputs[0].innermost(),
            LayerKind::ElementwiseLoss(_) => self.inputs[0].elements(),
            LayerKind::Opaque(opaque) => opaque.labels.unwrap_or_default(),
            _ => 0,
        }
    }

    /// Returns the label of positions that a [`LayerKind::SoftmaxCrossEntropy`] ignores, if it
    /// ignores one.
    #[must_use]
    pub fn ignored_label(&self) -> Option<i32> {
        match &self.kind {
            LayerKind::SoftmaxCrossEntropy(rule) => rule.ignored_label,
            _ => None,
        }
    }

    /// Returns the number of elements that a loss reads for each sample besides its scores: the
    /// labels and, if it [ignores](Self::ignored_label) one, the weight of the sample. The loss of
    /// a sample, a mean over its positions, is multiplied by its weight: the number of positions of
    /// the batch divided by the number of those that are not ignored.
    #[must_use]
    pub fn label_elements(&self) -> usize {
        self.label_count() + usize::from(self.ignored_label().is_some())
    }

    /// Returns the number of learned parameters (scalars).
    #[must_use]
    pub fn parameter_count(&self) -> usize {
        self.parameters().iter().map(LayerTensor::elements).fold(0, usize::saturating_add)
    }

    /// Returns the bytes of the learned parameters in single precision.
    #[must_use]
    pub fn parameter_bytes(&self) -> u64 {
        self.parameter_count() as u64 * ELEMENT_BYTES
    }

    /// Returns the bytes of one sample of the output in single precision.
    #[must_use]
    pub fn output_bytes(&self) -> u64 {
        self.output.elements() as u64 * ELEMENT_BYTES
    }

    /// Returns the bytes of one sample of all inputs together, in single precision.
    #[must_use]
    pub fn input_bytes(&self) -> u64 {
        self.inputs.iter().map(|shape| shape.elements() as u64 * ELEMENT_BYTES).sum()
    }

    /// Returns the number of floating-point operations of one sample's forward pass. A multiply-add
    /// counts as two.
    ///
    /// Element-wise layers count a fixed number of operations for each element:
    /// - softmax, with or without cross entropy: 5
    /// - batch normalisation, with its statistics: 6
    /// - layer and group normalisation: 8
    /// - root-mean-square normalisation: 4
    /// - GELU, `SiLU`, sigmoid and hyperbolic tangent: 10
    /// - recurrence, beside its products: 58 for an LSTM, 38 for a GRU
    /// - additive attention: 13 for each pair of a query and a key and each unit
    ///
    /// Attention counts both of its products in full, whether or not it is causal; with a window,
    /// those of as many keys for each query. A mixture of experts counts the experts that are
    /// chosen for each position; with a capacity, at most as many as it allows. Larger numbers than
    /// `u64::MAX` are `u64::MAX`.
    #[must_use]
    pub fn forward_flops(&self) -> u64 {
        let outputs = self.output.elements() as u64;
        let inputs = self.inputs.iter().map(|shape| shape.elements() as u64).fold(0, u64::saturating_add);
        let times = u64::saturating_mul;
        match &self.kind {
            LayerKind::Input
            | LayerKind::Flatten
            | LayerKind::Concat
            | LayerKind::Pad(_)
            | LayerKind::Reshape(_)
            | LayerKind::Permute(_)
            | LayerKind::Select(_)
            | LayerKind::Slice(_)
            | LayerKind::Embedding(_)
            | LayerKind::ClassToken => 0,
            LayerKind::Conv2d(_) | LayerKind::Linear(_) => {
                let parameters = self.parameters();
                let products =
                    parameters[0].dims[1..].iter().map(|&dim| dim as u64).fold(1, u64::saturating_mul);
                times(outputs, times(2, products).saturating_add(parameters.len() as u64 - 1))
            }
            LayerKind::ConvTranspose2d(conv) => {
                let taps = times(conv.kernel[0] as u64, conv.kernel[1] as u64);
                let products = times(times(inputs, (conv.out_channels / conv.groups) as u64), taps);
                times(2, products).saturating_add(if conv.bias { outputs } else { 0 })
            }
            LayerKind::Recurrence(rule) => {
                let width = self.output.innermost() as u64;
                let products = times(inputs, times(2, width).saturating_add(u64::from(rule.bias)));
                products.saturating_add(times(outputs, rule.cell.flops()))
            }
            LayerKind::MixtureOfExperts(rule) => {
                rule.sizes(&self.inputs).map_or(0, |sizes| rule.flops(sizes))
            }
            LayerKind::BatchNorm(_) => times(6, inputs),
            LayerKind::LayerNorm(_) | LayerKind::GroupNorm(_) => times(8, inputs),
            LayerKind::RmsNorm(_) => times(4, inputs),
            LayerKind::LocalResponseNorm(norm) => {
                times(outputs, times(2, norm.size as u64).saturating_add(4))
            }
            LayerKind::Relu6
            | LayerKind::HardSigmoid
            | LayerKind::HardSwish
            | LayerKind::RotaryEmbedding(_) => times(3, outputs),
            LayerKind::Relu
            | LayerKind::LeakyRelu(_)
            | LayerKind::Multiply
            | LayerKind::Scale(_)
            | LayerKind::Dropout(_)
            | LayerKind::PositionEmbedding(_) => outputs,
            LayerKind::GeluTanh
            | LayerKind::Gelu
            | LayerKind::QuickGelu
            | LayerKind::Silu
            | LayerKind::Sigmoid
            | LayerKind::Tanh => times(10, outputs),
            LayerKind::MultiHeadAttention(attention) => {
                let keys = attention.sizes(&self.inputs).map_or(0, |sizes| attention.max_keys(&sizes)) as u64;
                let positions = self.output.dims()[0] as u64;
                let scores = times(times(attention.heads as u64, positions), keys);
                let of_score = 5 + u64::from(attention.relative.is_some() || attention.alibi.is_some());
                times(times(4, outputs), keys).saturating_add(times(of_score, scores))
            }
            LayerKind::AdditiveAttention(attention) => {
                let (weights, units, features) = attention.sizes(&self.inputs).map_or((0, 0, 0), |sizes| {
                    (sizes.weights() as u64, sizes.units as u64, sizes.features as u64)
                });
                // The function, a sum, and a product that is added to a sum; the softmax; the mean.
                let of_weight = times(13, units).saturating_add(5).saturating_add(times(2, features));
                times(weights, of_weight)
            }
            LayerKind::MaxPool2d(pool) | LayerKind::AvgPool2d(pool) => {
                times(outputs, times(pool.kernel[0] as u64, pool.kernel[1] as u64))
            }
            LayerKind::AdaptiveAvgPool2d(_) => inputs.max(outputs),
            LayerKind::Add => times(outputs, self.inputs.len() as u64 - 1),
            LayerKind::Softmax | LayerKind::SoftmaxCrossEntropy(_) => times(5, inputs),
            LayerKind::ElementwiseLoss(ElementwiseLoss::MeanSquaredError) => times(3, inputs),
            LayerKind::ElementwiseLoss(ElementwiseLoss::BinaryCrossEntropy) => times(10, inputs),
            LayerKind::Opaque(opaque) => opaque.forward.flops,
        }
    }

    /// Returns the number of floating-point operations of one sample's backward pass. A
    /// multiply-add counts as two.
    ///
    /// It computes the gradients of the inputs and of the parameters. For a convolution or a linear
    /// layer, each of the two costs as much as the forward pass. In the products of an attention,
    /// the gradient of each factor costs as much as the product, as in an element-wise product.
    #[must_use]
    pub fn backward_flops(&self) -> u64 {
        match &self.kind {
            LayerKind::Conv2d(_)
            | LayerKind::ConvTranspose2d(_)
            | LayerKind::Linear(_)
            | LayerKind::BatchNorm(_)
            | LayerKind::LayerNorm(_)
            | LayerKind::RmsNorm(_)
            | LayerKind::GroupNorm(_)
            | LayerKind::Multiply
            | LayerKind::Scale(Scale::Features | Scale::Channels)
            | LayerKind::Recurrence(_)
            | LayerKind::MixtureOfExperts(_)
            | LayerKind::MultiHeadAttention(_)
            | LayerKind::AdditiveAttention(_) => self.forward_flops().saturating_mul(2),
            LayerKind::Embedding(_) => self.output.elements() as u64,
            LayerKind::SoftmaxCrossEntropy(_) => (self.inputs[0].elements() as u64).saturating_mul(2),
            LayerKind::Opaque(opaque) => opaque.backward.flops,
            _ => self.forward_flops(),
        }
    }
}

/// Returns whether the last part of a layer's name is that of a recurrent module's products, such
/// as `ih_l0` or `ih_l0_reverse`. It is then part of the keys, also of other linear layers of this
/// name.
fn is_of_recurrent_module(part: &str) -> bool {
    let part = part.strip_suffix("_reverse").unwrap_or(part);
    let number = part.strip_prefix("ih_l").or_else(|| part.strip_prefix("hh_l"));
    number.is_some_and(|number| number.parse::<usize>().is_ok())
}
