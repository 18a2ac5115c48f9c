//! Operands of each pass of each layer kind.

use layer_graph::{Layer, LayerKind, Opaque, Scale};

use crate::Pass;

/// Role of a buffer among the operands of a layer: its content. Not the role of a part of the batch
/// in partial backpropagation. All buffers hold scalars of the engine's type; samples are the
/// outermost dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// The input with this index (from 0): `samples x input shape`. [`Pass::ForwardInPlace`]
    /// replaces it by values that depend on the engine, and [`Pass::BackwardInPlace`] these by the
    /// gradient of the input.
    Input(usize),
    /// Index of the class of each sample, or of each position of a sequence: `samples x label
    /// count`. With an ignored label, the weight of the sample follows its labels: `samples x
    /// (label count + 1)`, see `Layer::label_elements`.
    Labels,
    /// All parameters of the layer, concatenated in the order of `Layer::parameters`.
    Parameters,
    /// All running statistics of a batch normalisation, concatenated in the order of
    /// `Layer::statistics`. [`Pass::Forward`] updates them in place.
    Statistics,
    /// The output: `samples x output shape`. Of a loss layer, the loss of each sample; of its part,
    /// that of its positions as a share of the mean over all.
    Output,
    /// Values that the forward pass saves for the backward pass. The content depends on the engine.
    Saved,
    /// Sums over the samples of the forward pass: the sum of `x` of each channel, the sum of `x^2`
    /// of each channel, then the number of values per channel. The moments of two shards add up to
    /// the moments of both.
    Moments,
    /// Sums over the samples of the backward pass: the sum of the output gradient `g` of each
    /// channel, the sum of `g * normalised x` of each channel, then the number of values per
    /// channel.
    GradientMoments,
    /// Two elements: the loss summed over the shard's samples, and the number of samples classified
    /// correctly. A sequence counts as the fraction of its positions that are correct, several
    /// probabilities as the fraction on the right side of one half. Both are multiplied by the
    /// weight of the sample, if it has one. Zero for a mean squared error.
    /// Those of the parts of a loss add up to those of the whole layer.
    Metrics,
    /// Gradient of the output: `samples x output shape`.
    OutputGradient,
    /// Gradient of the input with this index (from 0): `samples x input shape`. Overwritten.
    InputGradient(usize),
    /// Gradient of all parameters, in their order, summed over the shard's samples. Overwritten.
    ParameterGradient,
}

impl Role {
    /// Returns the number of elements of the buffer of this role for `samples` samples.
    #[must_use]
    pub fn elements(self, layer: &Layer, samples: usize) -> usize {
        let output = samples * layer.output_shape().elements();
        match self {
            Self::Input(slot) | Self::InputGradient(slot) => {
                samples * layer.input_shapes().get(slot).map_or(0, layer_graph::Shape::elements)
            }
            Self::Labels => samples * layer.label_elements(),
            Self::Parameters | Self::ParameterGradient => layer.parameter_count(),
            Self::Statistics => layer.statistics().iter().map(layer_graph::LayerTensor::elements).sum(),
            Self::Output | Self::OutputGradient => output,
            Self::Saved => match layer.kind() {
                LayerKind::MaxPool2d(_) => output,
                LayerKind::BatchNorm(_) => 2 * channels(layer),
                LayerKind::RmsNorm(_) => samples * layer.output_shape().elements() / features(layer),
                LayerKind::LayerNorm(_) => 2 * samples * layer.output_shape().elements() / features(layer),
                LayerKind::GroupNorm(norm) => 2 * samples * norm.groups,
                LayerKind::MultiHeadAttention(attention) => {
                    samples * attention.heads * layer.output_shape().elements() / features(layer)
                }
                LayerKind::AdditiveAttention(attention) => samples * attention.saved(layer.input_shapes()),
                LayerKind::Recurrence(rule) => output * rule.cell.saved(),
                LayerKind::SoftmaxCrossEntropy(_) => samples * layer.input_shapes()[0].elements(),
                LayerKind::MixtureOfExperts(rule) => samples * rule.saved(layer.input_shapes()),
                LayerKind::Opaque(opaque) => samples * saved_elements(opaque),
                _ => 0,
            },
            Self::Moments | Self::GradientMoments => 2 * channels(layer) + 1,
            Self::Metrics => 2,
        }
    }
}

/// Returns the number of `f32` elements that hold the values an opaque layer saves per sample.
fn saved_elements(opaque: &Opaque) -> usize {
    opaque.saved_bytes.div_ceil(4) as usize
}

fn channels(layer: &Layer) -> usize {
    layer.output_shape().dims()[0]
}

/// Returns the number of features of a vector, or of each position of a sequence.
fn features(layer: &Layer) -> usize {
    layer.output_shape().innermost().max(1)
}

/// Returns whether the derivative of a kind is a function of its output.
pub(crate) fn derives_from_output(kind: &LayerKind) -> bool {
    use LayerKind as K;
    matches!(kind, K::Relu | K::Relu6 | K::LeakyRelu(_) | K::HardSigmoid | K::Sigmoid | K::Tanh | K::Softmax)
}

/// Returns whether the backward pass of a kind reads the gradient of the output only.
fn passes_gradient(kind: &LayerKind) -> bool {
    use LayerKind as K;
    matches!(kind, K::AvgPool2d(_) | K::AdaptiveAvgPool2d(_) | K::Concat | K::Add | K::Dropout(_) | K::Pad(_))
        || matches!(kind, K::Flatten | K::Reshape(_) | K::Permute(_) | K::Select(_) | K::Slice(_))
        || matches!(kind, K::RotaryEmbedding(_) | K::Scale(Scale::Constant(_)))
}

/// Returns whether a kind multiplies its input by its parameters.
fn multiplies_by_parameters(kind: &LayerKind) -> bool {
    use LayerKind as K;
    matches!(kind, K::Conv2d(_) | K::ConvTranspose2d(_) | K::Linear(_))
        || matches!(kind, K::Scale(Scale::Features | Scale::Channels))
}

/// Operands of a layer's pass, in the order in which a launch passes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// Content of each buffer that the pass reads.
    pub reads: Vec<Role>,
    /// Content of each buffer that the pass writes or updates in place. A pass that updates its
    /// input has it here only, as the first.
    pub writes: Vec<Role>,
}

impl Signature {
    /// Returns the operands of a pass, or `None` if the layer has no such pass.
    #[must_use]
    pub fn of(layer: &Layer, pass: Pass) -> Option<Self> {
        if pass != Pass::Recompute {
            return Self::of_original_pass(layer, pass);
        }
        // The loss has no recompute pass: its backward pass follows its forward pass immediately.
        let is_loss = layer.kind().is_loss();
        let mut signature = Self::of_original_pass(layer, Pass::Forward).filter(|_| !is_loss)?;
        signature.writes.retain(|role| *role != Role::Statistics);
        Some(signature)
    }

    /// Returns the operands of a pass other than [`Pass::Recompute`].
    fn of_original_pass(layer: &Layer, pass: Pass) -> Option<Self> {
        use LayerKind as K;
        use Role::{
            GradientMoments, Input, InputGradient, Labels, Metrics, Moments, Output, OutputGradient,
            ParameterGradient, Parameters, Saved, Statistics,
        };
        let slots = 0..layer.input_shapes().len();
        let (reads, writes) = match (layer.kind(), pass) {
            (kind, Pass::Forward | Pass::Infer) if multiplies_by_parameters(kind) => {
                (vec![Input(0), Parameters], vec![Output])
            }
            (kind, Pass::Backward) if multiplies_by_parameters(kind) => {
                (vec![Input(0), Parameters, OutputGradient], vec![InputGradient(0), ParameterGradient])
            }
            (kind, Pass::BackwardParameters)
                if multiplies_by_parameters(kind) || matches!(kind, K::Embedding(_)) =>
            {
                (vec![Input(0), OutputGradient], vec![ParameterGradient])
            }
            (K::Opaque(opaque), _) => return Self::of_opaque(layer, opaque, pass),
            (K::SoftmaxCrossEntropy(_), _) => return Self::of_cross_entropy(pass),
            (K::ElementwiseLoss(_), Pass::Forward | Pass::Infer) => {
                (vec![Input(0), Labels], vec![Output, Metrics])
            }
            (K::ElementwiseLoss(_), Pass::Backward) => {
                (vec![Input(0), Labels, OutputGradient], vec![InputGradient(0)])
            }
            (K::MultiHeadAttention(_), _) => return Self::of_attention(layer, pass),
            (K::MixtureOfExperts(_) | K::AdditiveAttention(_), _) => return Self::of_all_inputs(layer, pass),
            (K::BatchNorm(_), Pass::ForwardMoments) => (vec![Input(0)], vec![Moments]),
            (K::BatchNorm(_), Pass::Forward) => {
                (vec![Input(0), Parameters, Moments], vec![Output, Saved, Statistics])
            }
            (K::BatchNorm(_), Pass::Infer) => (vec![Input(0), Parameters, Statistics], vec![Output]),
            (K::BatchNorm(_), Pass::BackwardMoments) => {
                (vec![Input(0), Saved, OutputGradient], vec![GradientMoments, ParameterGradient])
            }
            (K::BatchNorm(_), Pass::Backward) => {
                (vec![Input(0), Parameters, Saved, OutputGradient, GradientMoments], vec![InputGradient(0)])
            }
            (K::LayerNorm(_) | K::RmsNorm(_) | K::GroupNorm(_) | K::Recurrence(_), Pass::Forward) => {
                (vec![Input(0), Parameters], vec![Output, Saved])
            }
            (K::LayerNorm(_) | K::RmsNorm(_) | K::GroupNorm(_), Pass::Backward) => {
                (vec![Input(0), Parameters, Saved, OutputGradient], vec![InputGradient(0), ParameterGradient])
            }
            (K::LayerNorm(_) | K::RmsNorm(_) | K::GroupNorm(_), Pass::BackwardParameters) => {
                (vec![Input(0), Saved, OutputGradient], vec![ParameterGradient])
            }
            (
                K::LayerNorm(_)
                | K::RmsNorm(_)
                | K::GroupNorm(_)
                | K::Recurrence(_)
                | K::Embedding(_)
                | K::PositionEmbedding(_)
                | K::ClassToken,
                Pass::Forward | Pass::Infer,
            ) => (vec![Input(0), Parameters], vec![Output]),
            (K::Embedding(_), Pass::Backward) => {
                (vec![Input(0), OutputGradient], vec![InputGradient(0), ParameterGradient])
            }
            (K::PositionEmbedding(_) | K::ClassToken, Pass::Backward) => {
                (vec![OutputGradient], vec![InputGradient(0), ParameterGradient])
            }
            (K::PositionEmbedding(_) | K::ClassToken, Pass::BackwardParameters) => {
                (vec![OutputGradient], vec![ParameterGradient])
            }
            (K::Recurrence(_), Pass::Backward) => {
                (vec![Parameters, Output, Saved, OutputGradient], vec![InputGradient(0), ParameterGradient])
            }
            (K::Recurrence(_), Pass::BackwardParameters) => {
                (vec![Parameters, Output, Saved, OutputGradient], vec![ParameterGradient])
            }
            (kind, Pass::Backward) if derives_from_output(kind) => {
                (vec![Output, OutputGradient], vec![InputGradient(0)])
            }
            (kind, Pass::Backward) if kind.is_activation() || matches!(kind, K::LocalResponseNorm(_)) => {
                (vec![Input(0), OutputGradient], vec![InputGradient(0)])
            }
            (K::MaxPool2d(_), Pass::Forward) => (vec![Input(0)], vec![Output, Saved]),
            (K::Multiply, Pass::Backward) => {
                (vec![Input(0), Input(1), OutputGradient], vec![InputGradient(0), InputGradient(1)])
            }
            (K::MaxPool2d(_), Pass::Backward) => (vec![Saved, OutputGradient], vec![InputGradient(0)]),
            (
                K::Softmax | K::LocalResponseNorm(_) | K::MaxPool2d(_) | K::Multiply,
                Pass::Forward | Pass::Infer,
            ) => (slots.map(Input).collect(), vec![Output]),
            (kind, Pass::Forward | Pass::Infer) if kind.is_activation() || passes_gradient(kind) => {
                (slots.map(Input).collect(), vec![Output])
            }
            (kind, Pass::Backward) if passes_gradient(kind) => {
                (vec![OutputGradient], slots.map(InputGradient).collect())
            }
            _ => return None,
        };
        Some(Self { reads, writes })
    }

    /// Returns the operands of a pass of an attention.
    fn of_attention(layer: &Layer, pass: Pass) -> Option<Self> {
        use Role::{Output, OutputGradient, ParameterGradient, Parameters, Saved};
        let learns = layer.parameter_count() > 0;
        let learned = |role: Role| learns.then_some(role);
        let slots = 0..layer.input_shapes().len();
        let inputs = slots.clone().map(Role::Input).chain(learned(Parameters));
        let for_gradients = [Output, Saved, OutputGradient];
        let (reads, writes) = match pass {
            Pass::Forward => (inputs.collect(), vec![Output, Saved]),
            Pass::Infer => (inputs.collect(), vec![Output]),
            Pass::Backward => {
                let gradients = slots.map(Role::InputGradient).chain(learned(ParameterGradient));
                (inputs.chain(for_gradients).collect(), gradients.collect())
            }
            Pass::BackwardParameters if learns => {
                (inputs.chain(for_gradients).collect(), vec![ParameterGradient])
            }
            _ => return None,
        };
        Some(Self { reads, writes })
    }

    /// Returns the operands of a pass of a layer with parameters that reads all of its inputs, also
    /// for its gradients.
    fn of_all_inputs(layer: &Layer, pass: Pass) -> Option<Self> {
        use Role::{Input, InputGradient, Output, OutputGradient, ParameterGradient, Parameters, Saved};
        let slots = 0..layer.input_shapes().len();
        let inputs: Vec<_> = slots.clone().map(Input).chain([Parameters]).collect();
        let for_gradients = || [&inputs[..], &[Saved, OutputGradient]].concat();
        let (reads, writes) = match pass {
            Pass::Forward => (inputs, vec![Output, Saved]),
            Pass::Infer => (inputs, vec![Output]),
            Pass::Backward => {
                (for_gradients(), slots.map(InputGradient).chain([ParameterGradient]).collect())
            }
            Pass::BackwardParameters => (for_gradients(), vec![ParameterGradient]),
            _ => return None,
        };
        Some(Self { reads, writes })
    }

    /// Returns the operands of a pass of a softmax with cross entropy.
    fn of_cross_entropy(pass: Pass) -> Option<Self> {
        use Role::{Input, InputGradient, Labels, Metrics, Output, OutputGradient, Saved};
        let (reads, writes) = match pass {
            Pass::Forward => (vec![Input(0), Labels], vec![Output, Saved, Metrics]),
            Pass::ForwardInPlace => (vec![Labels], vec![Input(0), Output, Metrics]),
            Pass::BackwardInPlace => (vec![Labels, OutputGradient], vec![Input(0)]),
            Pass::Infer => (vec![Input(0), Labels], vec![Output, Metrics]),
            Pass::Backward => (vec![Saved, Labels, OutputGradient], vec![InputGradient(0)]),
            _ => return None,
        };
        Some(Self { reads, writes })
    }

    /// Returns the operands of a pass of an opaque layer. Its saved values do not include its
    /// inputs, which the backward pass reads too.
    fn of_opaque(layer: &Layer, opaque: &Opaque, pass: Pass) -> Option<Self> {
        let is_loss = opaque.labels.is_some();
        let optional = |role: Role, is_present: bool| is_present.then_some(role);
        let inputs = (0..layer.input_shapes().len()).map(Role::Input);
        let gradients = (0..layer.input_shapes().len()).map(Role::InputGradient);
        let learns = layer.parameter_count() > 0;
        let parameters = optional(Role::Parameters, learns);
        let parameter_gradient = optional(Role::ParameterGradient, learns);
        let labels = optional(Role::Labels, is_loss);
        let saved = optional(Role::Saved, opaque.saved_bytes > 0);
        let (reads, writes): (Vec<Role>, Vec<Role>) = match pass {
            Pass::Forward => (
                inputs.chain(parameters).chain(labels).collect(),
                [Role::Output].into_iter().chain(saved).chain(optional(Role::Metrics, is_loss)).collect(),
            ),
            Pass::Infer => (
                inputs.chain(parameters).chain(labels).collect(),
                [Role::Output].into_iter().chain(optional(Role::Metrics, is_loss)).collect(),
            ),
            Pass::Backward | Pass::BackwardParameters => {
                let with_inputs = pass == Pass::Backward;
                let reads = inputs.chain(parameters).chain(saved).chain(labels);
                (
                    reads.chain([Role::OutputGradient]).collect(),
                    gradients.filter(|_| with_inputs).chain(parameter_gradient).collect(),
                )
            }
            _ => return None,
        };
        Some(Self { reads, writes })
    }
}
