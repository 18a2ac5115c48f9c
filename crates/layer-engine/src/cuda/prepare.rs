//! Preparation of kernels: finds the launches of a kernel from its description.

use cuda::Numerics;
use layer_graph::{Layer, LayerKind, Select, Shape, Slice};

use super::chain::{ChainNorm, ElementwiseChain, ElementwiseOperands, Rectifier};
use super::device::Device;
use super::kernel::{Argument, CudaKernel};
use super::kernel_builder::KernelBuilder;
use super::operand::Operand;
use super::{
    NAME, activation, additive_attention, attention, convolution, experts, linear, loss, norm, optimizer,
    pooling, rearrange, recurrence, sequence,
};
use crate::{EngineError, ImageLayout, KernelSpec, Pass, Precision, Role, Shard, Signature, Storage};

/// Prepares the kernel of a description in a precision, with its workspace.
///
/// # Errors
/// [`EngineError::Precision`] for double precision; [`EngineError::Unsupported`] or
/// [`EngineError::Opaque`] if there is no such kernel; [`EngineError::Operand`] for a sum without
/// terms; [`EngineError::OutOfMemory`] if the device has no memory for the workspace;
/// [`EngineError::Library`] if an operand is too large; [`EngineError::Cuda`] if CUDA fails.
pub(super) fn kernel(
    device: &Device,
    spec: &KernelSpec<'_>,
    precision: Precision,
) -> Result<CudaKernel, EngineError> {
    let (numerics, storage) = match precision {
        Precision::F32 => (Numerics::F32, Storage::Scalar),
        Precision::Tf32 => (Numerics::Tf32, Storage::Scalar),
        Precision::Bf16 => (Numerics::Bf16, Storage::Bf16),
        Precision::F64 => return Err(EngineError::Precision { engine: NAME, precision }),
    };
    let plain = |name: &str, reads: Vec<Operand>, writes: Vec<Operand>| {
        let signature = Signature { reads: Vec::new(), writes: Vec::new() };
        KernelBuilder::new(device, name.into(), signature, reads, writes)
    };
    // Gradients of layer outputs have 16 bits in `Bf16`; those of parameters never have.
    let stored = |elements| Operand { elements, storage };
    let all_single =
        |elements: &[usize]| elements.iter().map(|&elements| Operand::single(elements)).collect();
    let builder = match spec {
        KernelSpec::Layer { layer, pass, shard } => {
            let unsupported = || EngineError::unsupported(NAME, layer, *pass);
            let signature = Signature::of(layer, *pass).ok_or_else(unsupported)?;
            let operand = |role: &Role| Operand {
                elements: role.elements(layer, shard.samples),
                storage: role.storage(layer, precision),
            };
            let operands = |roles: &[Role]| roles.iter().map(operand).collect();
            let (reads, writes) = (operands(&signature.reads), operands(&signature.writes));
            let name = format!("{} {pass:?}", layer.name());
            let mut builder =
                KernelBuilder::new(device, name, signature, reads, writes)?.with_numerics(numerics);
            // The moments of a batch normalisation may include samples of other ranks: a shard
            // without samples needs its result too.
            let needs_no_samples = matches!(layer.kind(), LayerKind::BatchNorm(_))
                && matches!(pass, Pass::Forward | Pass::Recompute);
            if matches!(layer.kind(), LayerKind::Opaque(_)) {
                return Err(unsupported());
            }
            check_layout(device.image_layout, layer)?;
            if shard.samples == 0 && !needs_no_samples {
                // Running statistics do not change.
                builder.write_zeros(Role::Statistics)?;
            } else {
                self::layer(&mut builder, layer, *pass, *shard)?.ok_or_else(unsupported)?;
            }
            return Ok(builder.finish());
        }
        &KernelSpec::Sum { terms, elements } => {
            if terms == 0 {
                let (kernel, operand) = ("Sum".into(), "reads".into());
                return Err(EngineError::Operand { kernel, operand, expected: 1, got: 0 });
            }
            let mut builder = plain("Sum", vec![stored(elements); terms], vec![stored(elements)])?;
            rearrange::sum(&mut builder, terms, elements, |term| Argument::Read(term, 0))?;
            builder
        }
        &KernelSpec::SumParts { terms, elements } => {
            if terms == 0 {
                let (kernel, operand) = ("SumParts".into(), "reads".into());
                return Err(EngineError::Operand { kernel, operand, expected: 1, got: 0 });
            }
            let mut builder = plain("SumParts", vec![stored(terms * elements)], vec![stored(elements)])?;
            rearrange::sum(&mut builder, terms, elements, |term| Argument::Read(0, term * elements))?;
            builder
        }
        &KernelSpec::Add { elements } => {
            let mut builder = plain("Add", all_single(&[elements]), all_single(&[elements]))?;
            rearrange::add_in_place(&mut builder, elements)?;
            builder
        }
        KernelSpec::Scale { sample_elements, factors } => {
            let samples: usize = factors.iter().map(|(samples, _)| samples).sum();
            let mut builder = plain("Scale", Vec::new(), vec![stored(samples * sample_elements)])?;
            rearrange::scale(&mut builder, *sample_elements, factors)?;
            builder
        }
        KernelSpec::SquaredNorm { elements } => {
            let mut builder = plain("SquaredNorm", all_single(elements), all_single(&[1]))?;
            optimizer::squared_norm(&mut builder, elements)?;
            builder
        }
        KernelSpec::Sgd { elements, rule } => {
            let [reads, _] = rule.operands(elements, precision);
            let written = |&elements: &usize| {
                let masters = (storage == Storage::Bf16).then_some(Operand::single(elements));
                [stored(elements)].into_iter().chain(masters).chain([Operand::single(elements)])
            };
            let writes = elements.iter().flat_map(written).collect();
            let mut builder = plain("Sgd", all_single(&reads), writes)?;
            optimizer::sgd_step(&mut builder, elements, rule, storage)?;
            builder
        }
    };
    Ok(builder.finish())
}

/// Checks that there are kernels for a layer in an order of the elements of images.
///
/// # Errors
/// [`EngineError::ChannelsLast`] if there are none.
fn check_layout(layout: ImageLayout, layer: &Layer) -> Result<(), EngineError> {
    use LayerKind as K;
    let mut shapes = layer.input_shapes().iter().chain([layer.output_shape()]);
    let has_images = shapes.any(|shape| shape.as_image().is_some());
    let kind = layer.kind();
    if layout == ImageLayout::ChannelsFirst
        || !has_images
        || matches!(kind, K::Conv2d(_) | K::BatchNorm(_) | K::LocalResponseNorm(_) | K::Dropout(_))
        || matches!(kind, K::GroupNorm(_) | K::ConvTranspose2d(_))
        || matches!(kind, K::Add | K::Multiply | K::Scale(_) | K::Concat)
        || kind.is_activation()
        || matches!(kind, K::MaxPool2d(_) | K::AvgPool2d(_) | K::AdaptiveAvgPool2d(_))
        || matches!(kind, K::Flatten | K::Reshape(_) | K::Permute(_) | K::Pad(_))
    {
        return Ok(());
    }
    Err(EngineError::channels_last(NAME, layer, "there is no kernel for images of this kind of layer"))
}

/// Prepares the kernel of a chain of elementwise operations, which is one launch.
///
/// # Errors
/// [`EngineError::Library`] or [`EngineError::Unsupported`] if there is no such kernel;
/// [`EngineError::OutOfMemory`] if the device has no memory for the workspace;
/// [`EngineError::Cuda`] if CUDA fails.
pub(super) fn chain(device: &Device, chain: &ElementwiseChain<'_>) -> Result<CudaKernel, EngineError> {
    let signature = chain.signature()?;
    let operands = ElementwiseOperands::of_chain(chain, &signature);
    let terms = chain.terms + usize::from(chain.rectifier == Some(Rectifier::Backward));
    let precision = match chain.storage {
        Storage::Scalar => Precision::F32,
        Storage::Bf16 => Precision::Bf16,
    };
    let own = Operand { elements: chain.elements, storage: chain.storage };
    let all = |roles: &[Role], count: usize| -> Vec<Operand> {
        let of_norm = chain.norm.iter().flat_map(|norm| {
            roles.iter().map(|role| Operand {
                elements: role.elements(norm.layer, norm.samples),
                storage: role.storage(norm.layer, precision),
            })
        });
        of_norm.chain(std::iter::repeat_n(own, count)).collect()
    };
    let (reads, writes) = (all(&signature.reads, terms), all(&signature.writes, chain.copies));
    let name = chain.norm.map_or_else(|| "Chain".into(), |norm| format!("{} chain", norm.layer.name()));
    let mut builder = KernelBuilder::new(device, name, signature, reads, writes)?;
    match chain.norm.map(|norm| (norm, norm.layer.kind(), norm.layer.input_shapes())) {
        Some((ChainNorm { layer, pass, samples }, LayerKind::BatchNorm(rule), [input])) => {
            norm::batch_norm(&mut builder, input, rule, (samples, pass), Some(operands))?
                .ok_or_else(|| EngineError::unsupported(NAME, layer, pass))?;
        }
        _ => rearrange::elementwise(&mut builder, chain.elements, &operands)?,
    }
    Ok(builder.finish())
}

/// Adds the launches of a layer's pass. Returns `None` if there is no such pass.
fn layer(
    builder: &mut KernelBuilder<'_>,
    layer: &Layer,
    pass: Pass,
    shard: Shard,
) -> Result<Option<()>, EngineError> {
    let samples = shard.samples;
    let backward = pass == Pass::Backward;
    let Some(input) = layer.input_shapes().first() else { return Ok(None) };
    let elements = samples * layer.output_shape().elements();
    let parts: Vec<usize> = layer.input_shapes().iter().map(Shape::elements).collect();
    match layer.kind() {
        LayerKind::Conv2d(_) | LayerKind::ConvTranspose2d(_) => {
            return convolution::add_launches(builder, layer, pass, samples);
        }
        LayerKind::Linear(linear) => {
            // Each position of a sequence is multiplied like a sample.
            let rows = samples * input.elements() / input.innermost();
            linear::add_launches(builder, [rows, linear.out_features, input.innermost()], linear.bias, pass)?;
        }
        LayerKind::BatchNorm(rule) => return norm::batch_norm(builder, input, rule, (samples, pass), None),
        LayerKind::LayerNorm(rule) => norm::layer_norm(builder, input, rule.epsilon, samples, pass)?,
        LayerKind::RmsNorm(rule) => norm::rms_norm(builder, input, rule, samples, pass)?,
        LayerKind::GroupNorm(rule) => norm::group_norm(builder, input, rule, samples, pass)?,
        LayerKind::LocalResponseNorm(rule) => {
            return norm::response_norm(builder, input, rule, samples, backward);
        }
        kind if kind.is_activation() => activation::elementwise(builder, kind, elements, backward)?,
        LayerKind::Softmax => activation::softmax(builder, input.innermost(), elements, backward)?,
        LayerKind::Dropout(_) if pass == Pass::Infer => rearrange::copies(builder, 1, elements)?,
        LayerKind::Dropout(rule) => {
            activation::dropout(builder, layer, rule, shard, backward)?;
        }
        LayerKind::MaxPool2d(pool) => return pooling::max_pool(builder, layer, pool, samples, pass),
        LayerKind::AvgPool2d(pool) => {
            return pooling::avg_pool(builder, layer, Some(pool), samples, backward);
        }
        LayerKind::AdaptiveAvgPool2d(_) => return pooling::avg_pool(builder, layer, None, samples, backward),
        LayerKind::Flatten | LayerKind::Reshape(_) => {
            let order: Vec<u32> = (0..input.elements() as u32).collect();
            rearrange::reorder(builder, layer, &order, samples, backward)?;
        }
        LayerKind::Pad(pad) => return rearrange::pad(builder, layer, pad, samples, backward),
        LayerKind::Add if backward => rearrange::copies(builder, parts.len(), elements)?,
        LayerKind::Add => {
            rearrange::sum(builder, parts.len(), elements, |term| Argument::Read(term, 0))?;
        }
        LayerKind::Multiply => activation::multiply(builder, layer, samples, backward)?,
        LayerKind::Scale(rule) => activation::scale(builder, layer, rule, samples, pass)?,
        LayerKind::Concat => rearrange::concat_layer(builder, layer, samples, backward)?,
        LayerKind::Permute(permute) => {
            return rearrange::permute(builder, layer, &permute.order, samples, backward);
        }
        &LayerKind::Select(Select { index: position }) | &LayerKind::Slice(Slice { start: position, .. }) => {
            let start = position * (input.elements() / input.dims()[0]);
            let part = layer.output_shape().elements();
            rearrange::select(builder, [input.elements(), part, start], samples, backward)?;
        }
        LayerKind::Embedding(rule) => {
            sequence::embedding(builder, samples * input.elements(), rule, pass)?;
        }
        LayerKind::PositionEmbedding(rule) => sequence::positions(builder, input, rule, samples, pass)?,
        LayerKind::RotaryEmbedding(rule) => {
            sequence::rotary_embedding(builder, input, rule, samples, backward)?;
        }
        LayerKind::ClassToken => {
            sequence::class_token(builder, [samples, input.elements(), input.innermost()], pass)?;
        }
        LayerKind::MultiHeadAttention(rule) => {
            return attention::add_launches(builder, layer, rule, shard, pass);
        }
        LayerKind::AdditiveAttention(rule) => {
            return additive_attention::add_launches(builder, layer, rule, samples, pass);
        }
        LayerKind::Recurrence(rule) => {
            return recurrence::add_launches(builder, input, rule, samples, pass);
        }
        LayerKind::MixtureOfExperts(rule) => {
            return experts::add_launches(builder, layer, rule, samples, pass);
        }
        LayerKind::SoftmaxCrossEntropy(rule) => {
            loss::add_launches(builder, layer, rule, samples, pass)?;
        }
        LayerKind::ElementwiseLoss(rule) => {
            loss::add_elementwise(builder, layer, *rule, samples, pass)?;
        }
        _ => return Ok(None),
    }
    Ok(Some(()))
}
