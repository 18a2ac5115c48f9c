//! Preparation of kernels: creates the operation for a kernel's description.

use layer_graph::{Layer, LayerKind, Select, Slice};

use super::activation::{
    ActivationBackward, ActivationForward, Function, HardGate, HardSigmoid, LeakyRelu, NormalGate, QuickGate,
    Relu6, Sigmoid, SigmoidGate, Tanh, TanhGate,
};
use super::additive_attention::AdditiveLayer;
use super::attention::Attention;
use super::avg_pool::AvgPool;
use super::batch_norm::{BatchNormPass, BatchNormalisation};
use super::concat::{Concatenate, Split};
use super::conv::{ConvPass, Convolution, Geometry};
use super::dropout::Dropout;
use super::elementwise::{
    AddInPlace, CopyToAll, MultiplyBackward, MultiplyForward, ReluBackward, ReluForward, Scale, Sum, SumParts,
};
use super::elementwise_loss::ElementwiseLosses;
use super::embedding::{EmbeddingLookup, EmbeddingPass};
use super::experts::Experts;
use super::group_norm::GroupNormalisation;
use super::layer_norm::LayerNormRule;
use super::linear::{LinearLayer, LinearPass};
use super::local_response_norm::ResponseNormalisation;
use super::loss::{CrossEntropy, InPlace, LossPass};
use super::max_pool::{MaxPool, MaxPoolPass};
use super::operation::{CpuKernel, Operation, mismatch};
use super::optimizer::{SgdStep, SquaredNorm};
use super::rearrange::{Padding, Permutation, Selection};
use super::recurrence::RecurrentLayer;
use super::rms_norm::RmsNormRule;
use super::rotation::Rotation;
use super::row_norm::RowNormalisation;
use super::scaling::Scaling;
use super::sequence::{AddPositions, LearnedPass, PrependToken};
use super::softmax::{SoftmaxBackward, SoftmaxForward};
use super::workers::Workers;
use super::{NAME, Real};
use crate::{EngineError, KernelSpec, Pass, Precision, Role, Shard, Signature};

/// Prepares the kernel of a description, with its workspace, on operands with one element in each
/// scalar. Its work is distributed over `workers`. `precision` is that in which the results of the
/// kernel are stored.
///
/// # Errors
/// [`EngineError::Unsupported`] or [`EngineError::Opaque`] if there is no such kernel;
/// [`EngineError::Operand`] for a sum without terms.
pub(super) fn kernel<T: Real>(
    spec: &KernelSpec<'_>,
    precision: Precision,
    workers: &Workers,
) -> Result<CpuKernel<T>, EngineError> {
    match spec {
        KernelSpec::Layer { layer, pass, shard } => {
            let unsupported = || EngineError::unsupported(NAME, layer, *pass);
            let signature = Signature::of(layer, *pass).ok_or_else(unsupported)?;
            let operation = operation(layer, *pass, *shard, precision, workers).ok_or_else(unsupported)?;
            let lengths =
                |roles: &[Role]| roles.iter().map(|role| role.elements(layer, shard.samples)).collect();
            let name = format!("{} {pass:?}", layer.name());
            Ok(CpuKernel::new(name, lengths(&signature.reads), lengths(&signature.writes), operation))
        }
        &KernelSpec::Sum { terms, elements } => {
            if terms == 0 {
                return Err(mismatch("Sum", "reads", 1, 0));
            }
            let operation = Box::new(Sum(workers.clone()));
            Ok(CpuKernel::new("Sum".into(), vec![elements; terms], vec![elements], operation))
        }
        &KernelSpec::SumParts { terms, elements } => {
            if terms == 0 {
                return Err(mismatch("SumParts", "reads", 1, 0));
            }
            let operation = Box::new(SumParts(workers.clone()));
            Ok(CpuKernel::new("SumParts".into(), vec![terms * elements], vec![elements], operation))
        }
        &KernelSpec::Add { elements } => {
            let operation = Box::new(AddInPlace(workers.clone()));
            Ok(CpuKernel::new("Add".into(), vec![elements], vec![elements], operation))
        }
        KernelSpec::Scale { sample_elements, factors } => {
            let factors: Vec<(usize, f64)> =
                factors.iter().map(|(samples, factor)| (samples * sample_elements, *factor)).collect();
            let elements = factors.iter().map(|(elements, _)| elements).sum();
            let operation = Box::new(Scale { workers: workers.clone(), factors });
            Ok(CpuKernel::new("Scale".into(), Vec::new(), vec![elements], operation))
        }
        KernelSpec::SquaredNorm { elements } => {
            Ok(CpuKernel::new("SquaredNorm".into(), elements.clone(), vec![1], Box::new(SquaredNorm)))
        }
        KernelSpec::Sgd { elements, rule } => {
            let [reads, writes] = rule.operands(elements, T::PRECISION);
            let operation = Box::new(SgdStep { rule: *rule, workers: workers.clone() });
            Ok(CpuKernel::new("Sgd".into(), reads, writes, operation))
        }
    }
}

/// Creates the operation of a layer's pass. Returns `None` if there is no such pass.
fn operation<T: Real>(
    layer: &Layer,
    pass: Pass,
    shard: Shard,
    precision: Precision,
    workers: &Workers,
) -> Option<Box<dyn Operation<T>>> {
    let samples = shard.samples;
    let backward = pass == Pass::Backward;
    let workers_of = || workers.clone();
    // A row of a concatenation is a position of a sequence, or a sample of another shape.
    let rows = layer.output_shape().as_sequence().map_or(1, |(positions, _)| positions);
    let parts = || layer.input_shapes().iter().map(|shape| shape.elements() / rows).collect();
    Some(match layer.kind() {
        LayerKind::Conv2d(conv) => {
            Box::new(Convolution::new(Geometry::new(layer, conv)?, samples, ConvPass::of(pass), workers))
        }
        LayerKind::ConvTranspose2d(conv) => {
            let geometry = Geometry::transposed(layer, conv)?;
            Box::new(Convolution::new(geometry, samples, ConvPass::of(pass), workers))
        }
        LayerKind::Linear(linear) => {
            let pass = match pass {
                Pass::Backward => LinearPass::Backward,
                Pass::BackwardParameters => LinearPass::BackwardParameters,
                _ => LinearPass::Forward,
            };
            let input = layer.input_shapes().first()?;
            let (inputs, outputs) = (input.innermost(), linear.out_features);
            // Each position of a sequence is multiplied like a sample.
            let samples = samples * input.elements() / inputs;
            Box::new(LinearLayer::new([inputs, outputs], samples, pass, workers))
        }
        LayerKind::BatchNorm(rule) => {
            let pass = match pass {
                Pass::ForwardMoments => BatchNormPass::ForwardMoments,
                Pass::Forward => BatchNormPass::Forward,
                Pass::Recompute => BatchNormPass::Recompute,
                Pass::Infer => BatchNormPass::Infer,
                Pass::BackwardMoments => BatchNormPass::BackwardMoments,
                Pass::Backward => BatchNormPass::Backward,
                _ => return None,
            };
            Box::new(BatchNormalisation::new(layer, rule, samples, pass, workers)?)
        }
        LayerKind::Relu if backward => Box::new(ReluBackward(workers_of())),
        LayerKind::Relu => Box::new(ReluForward(workers_of())),
        LayerKind::Relu6 => activation(Relu6, backward, workers_of()),
        LayerKind::LeakyRelu(rule) => activation(LeakyRelu(rule.negative_slope), backward, workers_of()),
        LayerKind::HardSigmoid => activation(HardSigmoid, backward, workers_of()),
        LayerKind::HardSwish => activation(HardGate, backward, workers_of()),
        LayerKind::GeluTanh => activation(TanhGate, backward, workers_of()),
        LayerKind::Gelu => activation(NormalGate, backward, workers_of()),
        LayerKind::QuickGelu => activation(QuickGate, backward, workers_of()),
        LayerKind::Silu => activation(SigmoidGate, backward, workers_of()),
        LayerKind::Sigmoid => activation(Sigmoid, backward, workers_of()),
        LayerKind::Tanh => activation(Tanh, backward, workers_of()),
        LayerKind::MaxPool2d(pool) => {
            let pass = match pass {
                Pass::Backward => MaxPoolPass::Backward,
                Pass::Infer => MaxPoolPass::Infer,
                _ => MaxPoolPass::Forward,
            };
            Box::new(MaxPool::new(layer, pool, samples, pass, workers)?)
        }
        LayerKind::AvgPool2d(pool) => Box::new(AvgPool::fixed(layer, pool, backward, workers)?),
        LayerKind::AdaptiveAvgPool2d(_) => Box::new(AvgPool::adaptive(layer, backward, workers)?),
        LayerKind::Pad(pad) => Box::new(Padding::new(layer, pad, backward, workers)?),
        LayerKind::Flatten | LayerKind::Reshape(_) => Box::new(CopyToAll(workers_of())),
        LayerKind::Concat if backward => Box::new(Split { parts: parts(), workers: workers_of() }),
        LayerKind::Concat => Box::new(Concatenate { parts: parts(), workers: workers_of() }),
        LayerKind::Add if backward => Box::new(CopyToAll(workers_of())),
        LayerKind::Add => Box::new(Sum(workers_of())),
        LayerKind::Multiply => {
            let [values, factors] = layer.input_shapes() else { return None };
            let row = values.elements() / factors.elements();
            if backward {
                Box::new(MultiplyBackward { row, workers: workers_of() })
            } else {
                Box::new(MultiplyForward { row, workers: workers_of() })
            }
        }
        LayerKind::Dropout(_) if pass == Pass::Infer => Box::new(CopyToAll(workers_of())),
        LayerKind::Dropout(dropout) => Box::new(Dropout {
            layer: layer.name().into(),
            rule: dropout.clone(),
            shard,
            runs: layer.random_box().runs(),
            workers: workers_of(),
        }),
        LayerKind::ElementwiseLoss(loss) => {
            Box::new(ElementwiseLosses::new(layer, *loss, samples, backward, workers))
        }
        LayerKind::SoftmaxCrossEntropy(rule) => {
            let in_place =
                if precision == Precision::Bf16 { InPlace::Errors } else { InPlace::Probabilities };
            let pass = match pass {
                Pass::ForwardInPlace => LossPass::ForwardInPlace(in_place),
                Pass::Infer => LossPass::Infer,
                Pass::Backward => LossPass::Backward,
                Pass::BackwardInPlace => LossPass::BackwardInPlace(in_place),
                _ => LossPass::Forward,
            };
            Box::new(CrossEntropy::new(layer, rule, samples, pass, workers))
        }
        _ => return sequence_operation(layer, pass, shard, workers),
    })
}

/// Creates the operation of a pass of an activation.
fn activation<T: Real>(function: impl Function, backward: bool, workers: Workers) -> Box<dyn Operation<T>> {
    if backward {
        Box::new(ActivationBackward(function, workers))
    } else {
        Box::new(ActivationForward(function, workers))
    }
}

/// Creates the operation of a pass of a layer that works on sequences or rearranges samples.
/// Returns `None` if there is no such pass.
fn sequence_operation<T: Real>(
    layer: &Layer,
    pass: Pass,
    shard: Shard,
    workers: &Workers,
) -> Option<Box<dyn Operation<T>>> {
    let samples = shard.samples;
    let backward = pass == Pass::Backward;
    let workers_of = || workers.clone();
    let input = layer.input_shapes().first()?;
    let (elements, features) = (input.elements(), input.innermost());
    let learned = || match pass {
        Pass::Backward => LearnedPass::Backward,
        Pass::BackwardParameters => LearnedPass::BackwardParameters,
        _ => LearnedPass::Forward,
    };
    Some(match layer.kind() {
        LayerKind::LayerNorm(norm) => {
            let rule = LayerNormRule { epsilon: norm.epsilon };
            Box::new(RowNormalisation::new(rule, features, samples * elements / features, pass, workers))
        }
        LayerKind::RmsNorm(norm) => {
            let rule = RmsNormRule::new(norm);
            Box::new(RowNormalisation::new(rule, features, samples * elements / features, pass, workers))
        }
        LayerKind::GroupNorm(norm) => {
            let pixels = elements / input.dims()[0];
            Box::new(GroupNormalisation::new(norm, [input.dims()[0], pixels], pass, workers))
        }
        LayerKind::LocalResponseNorm(norm) => {
            let (channels, height, width) = input.as_image()?;
            let sizes = (channels, height * width);
            Box::new(ResponseNormalisation::new(norm, sizes, samples, backward, workers))
        }
        LayerKind::Softmax if backward => {
            Box::new(SoftmaxBackward { classes: features, workers: workers_of() })
        }
        LayerKind::Softmax => Box::new(SoftmaxForward { classes: features, workers: workers_of() }),
        LayerKind::Embedding(embedding) => Box::new(EmbeddingLookup {
            layer: layer.name().into(),
            vocabulary: embedding.vocabulary,
            features: embedding.features,
            padding: embedding.padding,
            pass: match pass {
                Pass::Backward => EmbeddingPass::Backward,
                Pass::BackwardParameters => EmbeddingPass::BackwardParameters,
                _ => EmbeddingPass::Forward,
            },
            workers: workers_of(),
        }),
        LayerKind::PositionEmbedding(embedding) => Box::new(AddPositions {
            first: embedding.first * features,
            elements: embedding.used(elements / features) * features,
            pass: learned(),
            workers: workers_of(),
        }),
        LayerKind::Scale(rule) => Box::new(Scaling::new(rule, input, learned(), workers)),
        LayerKind::RotaryEmbedding(rule) => Box::new(Rotation::new(input, rule, backward, workers)),
        LayerKind::ClassToken => {
            Box::new(PrependToken { elements, features, pass: learned(), workers: workers_of() })
        }
        LayerKind::MultiHeadAttention(attention) => {
            Box::new(Attention::new(layer, attention, shard, pass, workers)?)
        }
        LayerKind::AdditiveAttention(rule) => {
            Box::new(AdditiveLayer::new(layer, rule, samples, pass, workers)?)
        }
        LayerKind::Recurrence(rule) => Box::new(RecurrentLayer::new(layer, rule, samples, pass, workers)?),
        LayerKind::MixtureOfExperts(rule) => Box::new(Experts::new(layer, rule, samples, pass, workers)?),
        LayerKind::Permute(permute) if backward => {
            let inverse = Permutation::inverse(&permute.order);
            Box::new(Permutation::new(layer.output_shape().dims(), &inverse, workers)?)
        }
        LayerKind::Permute(permute) => Box::new(Permutation::new(input.dims(), &permute.order, workers)?),
        &LayerKind::Select(Select { index: position }) | &LayerKind::Slice(Slice { start: position, .. }) => {
            let start = position * (elements / input.dims()[0]);
            Box::new(Selection { whole: elements, part: layer.output_shape().elements(), start, backward })
        }
        _ => return None,
    })
}
