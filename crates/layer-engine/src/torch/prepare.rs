//! Preparation of kernels: creates the operation for a kernel's description.

use layer_graph::{Dropout, Layer, LayerKind};
use tch::Tensor;

use super::Failure;
use super::NAME;
use super::activation::{add_in_place, backward_of_output, copies, forward, multiply, scale, sum, sum_parts};
use super::batch_norm::BatchNormKernel;
use super::conv::ConvKernel;
use super::dropout::Mask;
use super::dtypes::DTypes;
use super::kernel::TorchKernel;
use super::launch::{LaunchFunction, LayerOperands, sizes};
use super::loss::{CrossEntropyKernel, ElementwiseKernel, IndexConversion};
use super::pool::PoolWindows;
use super::{
    activation, additive_attention, attention, autograd, dropout, experts, group_norm, layer_norm, linear,
    optimizer, pool, rearrange, recurrence, response_norm, rms_norm, sequence,
};
use crate::{EngineError, KernelSpec, Pass, Precision, Role, Shard, Signature};

/// Prepares the kernel of a description. `dtypes` are the data types of its tensors, and their
/// device.
///
/// # Errors
/// The failure holds [`EngineError::Unsupported`] or [`EngineError::Opaque`] if there is no such
/// kernel, [`EngineError::Operand`] for a sum without terms, and [`EngineError::Library`] if
/// libtorch cannot create a constant of the computation.
pub(super) fn kernel(spec: &KernelSpec<'_>, dtypes: DTypes) -> Result<TorchKernel, Failure> {
    match spec {
        KernelSpec::Layer { layer, pass, shard } => {
            let unsupported = || Failure(EngineError::unsupported(NAME, layer, *pass));
            let signature = Signature::of(layer, *pass).ok_or_else(unsupported)?;
            let lengths =
                |roles: &[Role]| roles.iter().map(|role| role.elements(layer, shard.samples)).collect();
            let (reads, writes) = (lengths(&signature.reads), lengths(&signature.writes));
            let operands = LayerOperands::new(layer, signature, *shard);
            // The moments of a batch normalisation may include samples of other ranks: a shard
            // without samples needs its result too.
            let needs_no_samples = matches!(layer.kind(), LayerKind::BatchNorm(_))
                && matches!(pass, Pass::Forward | Pass::Recompute);
            let operation = if shard.samples == 0 && !needs_no_samples {
                write_zeros(operands)
            } else {
                operation(layer, *pass, *shard, operands, dtypes)?.ok_or_else(unsupported)?
            };
            Ok(TorchKernel::new(format!("{} {pass:?}", layer.name()), reads, writes, operation))
        }
        &KernelSpec::Sum { terms, elements } => {
            if terms == 0 {
                let (kernel, operand) = ("Sum".into(), "reads".into());
                return Err(Failure(EngineError::Operand { kernel, operand, expected: 1, got: 0 }));
            }
            Ok(TorchKernel::new("Sum".into(), vec![elements; terms], vec![elements], sum()))
        }
        &KernelSpec::SumParts { terms, elements } => {
            if terms == 0 {
                let (kernel, operand) = ("SumParts".into(), "reads".into());
                return Err(Failure(EngineError::Operand { kernel, operand, expected: 1, got: 0 }));
            }
            let reads = vec![terms * elements];
            Ok(TorchKernel::new("SumParts".into(), reads, vec![elements], sum_parts(terms)))
        }
        &KernelSpec::Add { elements } => {
            Ok(TorchKernel::new("Add".into(), vec![elements], vec![elements], add_in_place()))
        }
        KernelSpec::Scale { sample_elements, factors } => {
            let factors: Vec<(usize, f64)> =
                factors.iter().map(|(samples, factor)| (samples * sample_elements, *factor)).collect();
            let elements = factors.iter().map(|(elements, _)| elements).sum();
            Ok(TorchKernel::new("Scale".into(), Vec::new(), vec![elements], scale(factors)))
        }
        KernelSpec::SquaredNorm { elements } => {
            let operation = optimizer::squared_norm(dtypes.kind);
            Ok(TorchKernel::new("SquaredNorm".into(), elements.clone(), vec![1], operation))
        }
        KernelSpec::Sgd { elements, rule } => {
            let [reads, writes] = rule.operands(elements, Precision::F32);
            Ok(TorchKernel::new("Sgd".into(), reads, writes, optimizer::sgd_step(*rule)))
        }
    }
}

/// Function of a pass over no samples: writes zeros, except to running statistics.
fn write_zeros(operands: LayerOperands) -> LaunchFunction {
    Box::new(move |launch| {
        for (role, target) in operands.signature.writes.iter().zip(launch.writes.iter_mut()) {
            if *role != Role::Statistics && !target.is_empty() {
                let _ = target.flat()?.f_zero_()?;
            }
        }
        Ok(())
    })
}

/// Creates the operation of a pass of a convolution. Returns `None` if the layer is none.
fn convolution(
    layer: &Layer,
    operands: LayerOperands,
    dtypes: DTypes,
    backward: bool,
) -> Option<LaunchFunction> {
    let geometry = match layer.kind() {
        LayerKind::Conv2d(conv) => ConvKernel::geometry(conv),
        LayerKind::ConvTranspose2d(conv) => ConvKernel::transposed_geometry(conv),
        _ => return None,
    };
    let weight = sizes(&layer.parameters().first()?.dims).collect();
    let convolution = ConvKernel { operands, geometry, weight, dtypes };
    Some(if backward { convolution.backward() } else { convolution.forward() })
}

/// Creates the operation of a layer's pass. Returns `None` if there is no such pass.
fn operation(
    layer: &Layer,
    pass: Pass,
    shard: Shard,
    operands: LayerOperands,
    dtypes: DTypes,
) -> Result<Option<LaunchFunction>, Failure> {
    let backward = pass.is_backward();
    let features = layer.output_shape().innermost() as i64;
    let indices = |limit, invalid| {
        let invalid = (!dtypes.device.is_cuda()).then_some(invalid);
        IndexConversion { layer: layer.name().into(), limit, invalid }
    };
    Ok(Some(match layer.kind() {
        LayerKind::Conv2d(_) | LayerKind::ConvTranspose2d(_) => {
            return Ok(convolution(layer, operands, dtypes, backward));
        }
        LayerKind::Linear(_) if backward => linear::backward(operands, dtypes),
        LayerKind::Linear(_) => linear::forward(operands, dtypes),
        LayerKind::BatchNorm(rule) => {
            return Ok(BatchNormKernel::new(operands, rule, dtypes)?.operation(pass));
        }
        LayerKind::LayerNorm(_) if backward => layer_norm::backward(operands, features, dtypes)?,
        LayerKind::LayerNorm(norm) => layer_norm::forward(operands, norm, features),
        LayerKind::RmsNorm(norm) if backward => rms_norm::backward(operands, norm, features),
        LayerKind::RmsNorm(norm) => rms_norm::forward(operands, norm),
        LayerKind::GroupNorm(norm) if backward => group_norm::backward(operands, norm),
        LayerKind::GroupNorm(norm) => group_norm::forward(operands, norm),
        LayerKind::LocalResponseNorm(norm) if backward => response_norm::backward(operands, norm.clone()),
        LayerKind::LocalResponseNorm(norm) => response_norm::forward(operands, norm.clone()),
        kind if kind.is_activation() => return Ok(activation::elementwise(kind, operands, backward)),
        LayerKind::Softmax if backward => {
            let kind = dtypes.kind;
            backward_of_output(operands, move |dy, y| {
                Tensor::f_internal_softmax_backward_data(dy, y, -1, kind)
            })
        }
        LayerKind::Softmax => forward(operands, |x| x.f_softmax(-1, None)),
        LayerKind::Embedding(embedding) => {
            let invalid = |layer, token, vocabulary| Failure(EngineError::Token { layer, token, vocabulary });
            let tokens = indices(embedding.vocabulary, invalid);
            if backward {
                sequence::embedding_backward(operands, tokens, embedding.padding)
            } else {
                sequence::embedding(operands, tokens)
            }
        }
        LayerKind::PositionEmbedding(rule) if backward => sequence::positions_backward(operands, rule),
        LayerKind::PositionEmbedding(rule) => sequence::positions(operands, rule),
        LayerKind::RotaryEmbedding(rule) => sequence::rotary_embedding(operands, rule, dtypes, backward)?,
        LayerKind::ClassToken if backward => sequence::class_token_backward(operands),
        LayerKind::ClassToken => sequence::class_token(operands, dtypes),
        LayerKind::MultiHeadAttention(rule) if backward => {
            attention::backward(operands, rule.padding, dtypes)
        }
        LayerKind::MultiHeadAttention(rule) => {
            let drops = layer.kind().draws_by_element() && pass != Pass::Infer;
            let mask = drops.then(|| Mask::new(layer, Dropout::new(rule.dropout), shard));
            return attention::forward(operands, layer, rule, mask, dtypes);
        }
        LayerKind::AdditiveAttention(_) | LayerKind::Recurrence(_) | LayerKind::MixtureOfExperts(_)
            if backward =>
        {
            autograd::backward(operands)
        }
        LayerKind::AdditiveAttention(_) => additive_attention::forward(operands, dtypes),
        LayerKind::Recurrence(rule) => recurrence::forward(operands, rule, dtypes),
        LayerKind::MixtureOfExperts(rule) => experts::forward(operands, rule, dtypes),
        LayerKind::MaxPool2d(pool) => {
            let windows = PoolWindows::new(operands, pool, dtypes);
            if backward { windows.max_backward()? } else { windows.max() }
        }
        LayerKind::AvgPool2d(pool) => {
            let windows = PoolWindows::new(operands, pool, dtypes);
            if backward { windows.mean_backward()? } else { windows.mean()? }
        }
        LayerKind::AdaptiveAvgPool2d(_) if backward => pool::adaptive_backward(operands, dtypes)?,
        LayerKind::AdaptiveAvgPool2d(_) => pool::adaptive(operands),
        LayerKind::Flatten | LayerKind::Reshape(_) => copies(),
        LayerKind::Pad(pad) => rearrange::pad(operands, pad, backward),
        LayerKind::Permute(permute) => rearrange::permute(operands, &permute.order, backward),
        LayerKind::Select(select) => rearrange::select(operands, [select.index, 1], dtypes, backward),
        LayerKind::Slice(slice) => rearrange::select(operands, [slice.start, slice.length], dtypes, backward),
        LayerKind::Concat if backward => rearrange::split(operands),
        LayerKind::Concat => rearrange::concatenate(operands),
        LayerKind::Add if backward => copies(),
        LayerKind::Add => sum(),
        LayerKind::Multiply => multiply(operands, backward),
        LayerKind::Scale(rule) => activation::scaled(operands, rule, backward),
        LayerKind::Dropout(_) if pass == Pass::Infer => copies(),
        LayerKind::Dropout(rule) => {
            let mask = Mask::new(layer, rule.clone(), shard);
            dropout::multiply(operands, backward, mask, dtypes)
        }
        LayerKind::ElementwiseLoss(loss) => ElementwiseKernel::pass(operands, *loss, shard.samples, backward),
        LayerKind::SoftmaxCrossEntropy(rule) => {
            let invalid = |layer, label, classes| Failure(EngineError::Label { layer, label, classes });
            let labels =
                indices(layer.input_shapes().first().map_or(0, layer_graph::Shape::innermost), invalid);
            let loss = CrossEntropyKernel::new(operands, labels, rule, shard.samples, layer.mean_positions());
            if backward || pass == Pass::BackwardInPlace { loss.backward() } else { loss.forward() }
        }
        _ => return Ok(None),
    }))
}
