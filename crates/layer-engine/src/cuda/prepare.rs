//! Preparation of kernels: plans the launches for a kernel's description.

use layer_graph::{Layer, LayerKind, Shape};

use super::device::Device;
use super::kernel::CudaKernel;
use super::plan::Plan;
use super::{
    NAME, activation, attention, convolution, linear, loss, norm, optimizer, pooling, rearrange, sequence,
};
use crate::{EngineError, KernelSpec, Pass, Role, Shard, Signature};

/// Prepares the kernel of a description, with its workspace.
///
/// # Errors
/// [`EngineError::Unsupported`] or [`EngineError::Opaque`] if there is no such kernel;
/// [`EngineError::Library`] if an operand is too large or CUDA fails.
pub(super) fn kernel(device: &Device, spec: &KernelSpec<'_>) -> Result<CudaKernel, EngineError> {
    let plain = |name: &str, reads, writes| {
        let signature = Signature { reads: Vec::new(), writes: Vec::new() };
        Plan::new(device, name.into(), signature, reads, writes)
    };
    let plan = match spec {
        KernelSpec::Layer { layer, pass, shard } => {
            let unsupported = || EngineError::unsupported(NAME, layer, *pass);
            let signature = Signature::of(layer, *pass).ok_or_else(unsupported)?;
            let lengths =
                |roles: &[Role]| roles.iter().map(|role| role.elements(layer, shard.samples)).collect();
            let (reads, writes) = (lengths(&signature.reads), lengths(&signature.writes));
            let name = format!("{} {pass:?}", layer.name());
            let mut plan = Plan::new(device, name, signature, reads, writes)?;
            // The moments of a batch normalisation may include samples of other ranks: a shard
            // without samples needs its result too.
            let needs_no_samples = matches!(layer.kind(), LayerKind::BatchNorm(_))
                && matches!(pass, Pass::Forward | Pass::Recompute);
            if matches!(layer.kind(), LayerKind::Opaque(_)) {
                return Err(unsupported());
            }
            if shard.samples == 0 && !needs_no_samples {
                // Running statistics do not change.
                plan.write_zeros(Role::Statistics)?;
            } else {
                self::layer(&mut plan, layer, *pass, *shard)?.ok_or_else(unsupported)?;
            }
            return Ok(plan.finish());
        }
        &KernelSpec::Sum { terms, elements } => {
            if terms == 0 {
                let (kernel, operand) = ("Sum".into(), "reads".into());
                return Err(EngineError::Operand { kernel, operand, expected: 1, got: 0 });
            }
            let mut plan = plain("Sum", vec![elements; terms], vec![elements])?;
            rearrange::sum(&mut plan, terms, elements)?;
            plan
        }
        KernelSpec::Scale { sample_elements, factors } => {
            let samples: usize = factors.iter().map(|(samples, _)| samples).sum();
            let mut plan = plain("Scale", Vec::new(), vec![samples * sample_elements])?;
            rearrange::scale(&mut plan, *sample_elements, factors)?;
            plan
        }
        // A pack is a concatenation of tensors with one sample.
        KernelSpec::Pack { elements } => {
            let mut plan = plain("Pack", elements.clone(), vec![elements.iter().sum()])?;
            rearrange::concatenate(&mut plan, 1, elements)?;
            plan
        }
        KernelSpec::Unpack { elements } => {
            let mut plan = plain("Unpack", vec![elements.iter().sum()], elements.clone())?;
            rearrange::split(&mut plan, 1, elements)?;
            plan
        }
        KernelSpec::SquaredNorm { elements } => {
            let mut plan = plain("SquaredNorm", elements.clone(), vec![1])?;
            optimizer::squared_norm(&mut plan, elements)?;
            plan
        }
        KernelSpec::Sgd { elements, rule } => {
            let reads = std::iter::once(*elements).chain(rule.clip_norm.map(|_| 1)).collect();
            let mut plan = plain("Sgd", reads, vec![*elements; 2])?;
            optimizer::step(&mut plan, *elements, rule)?;
            plan
        }
    };
    Ok(plan.finish())
}

/// Plans the launches of a layer's pass. Returns `None` if there is no such pass.
fn layer(plan: &mut Plan<'_>, layer: &Layer, pass: Pass, shard: Shard) -> Result<Option<()>, EngineError> {
    let samples = shard.samples;
    let backward = pass == Pass::Backward;
    let Some(input) = layer.input_shapes().first() else { return Ok(None) };
    let elements = samples * layer.output_shape().elements();
    let parts: Vec<usize> = layer.input_shapes().iter().map(Shape::elements).collect();
    match layer.kind() {
        LayerKind::Conv2d(conv) => return convolution::plan(plan, layer, conv, pass, samples),
        LayerKind::Linear(linear) => {
            // Each position of a sequence is multiplied like a sample.
            let rows = samples * input.elements() / input.innermost();
            linear::plan(plan, [rows, linear.out_features, input.innermost()], linear.bias, pass)?;
        }
        LayerKind::BatchNorm(rule) => return norm::batch_norm(plan, input, rule, samples, pass),
        LayerKind::LayerNorm(rule) => norm::layer_norm(plan, input, rule.epsilon, samples, pass)?,
        LayerKind::LocalResponseNorm(rule) => {
            return norm::response_norm(plan, input, rule, samples, backward);
        }
        LayerKind::Relu | LayerKind::Gelu | LayerKind::GeluTanh => {
            activation::elementwise(plan, layer.kind(), elements, backward)?;
        }
        LayerKind::Softmax => activation::softmax(plan, input.innermost(), elements, backward)?,
        LayerKind::Dropout(_) if pass == Pass::Infer => rearrange::copies(plan, 1, elements)?,
        LayerKind::Dropout(rule) => {
            activation::dropout(
                plan,
                layer.name(),
                rule.probability,
                shard,
                layer.output_shape().elements(),
                backward,
            )?;
        }
        LayerKind::MaxPool2d(pool) => return pooling::max_pool(plan, layer, pool, samples, pass),
        LayerKind::AvgPool2d(pool) => return pooling::avg_pool(plan, layer, Some(pool), samples, backward),
        LayerKind::AdaptiveAvgPool2d(_) => return pooling::avg_pool(plan, layer, None, samples, backward),
        LayerKind::Flatten | LayerKind::Reshape(_) => rearrange::copies(plan, 1, elements)?,
        LayerKind::Add if backward => rearrange::copies(plan, parts.len(), elements)?,
        LayerKind::Add => rearrange::sum(plan, parts.len(), elements)?,
        LayerKind::Concat if backward => rearrange::split(plan, samples, &parts)?,
        LayerKind::Concat => rearrange::concatenate(plan, samples, &parts)?,
        LayerKind::Permute(permute) => {
            return rearrange::permute(plan, layer, &permute.order, samples, backward);
        }
        LayerKind::Select(select) => {
            let part = layer.output_shape().elements();
            rearrange::select(plan, [input.elements(), part, select.index * part], samples, backward)?;
        }
        LayerKind::Embedding(rule) => {
            sequence::embedding(plan, samples * input.elements(), [rule.vocabulary, rule.features], pass)?;
        }
        LayerKind::PositionEmbedding(_) => {
            sequence::positions(plan, [samples, input.elements(), layer.parameter_count()], pass)?;
        }
        LayerKind::ClassToken => {
            sequence::class_token(plan, [samples, input.elements(), input.innermost()], pass)?;
        }
        LayerKind::MultiHeadAttention(rule) => return attention::plan(plan, layer, rule, samples, pass),
        LayerKind::SoftmaxCrossEntropy => {
            loss::plan(plan, [samples, layer.label_count(), input.innermost()], backward)?;
        }
        _ => return Ok(None),
    }
    Ok(Some(()))
}
