//! Scaled dot-product attention. The function adds the launches of a pass to a `KernelBuilder`, a
//! kernel under preparation. It fails as the functions of `KernelBuilder` do.

use cuda::{AttentionPass, AttentionShape, Numerics};
use layer_graph::{AttentionSizes, Layer, MultiHeadAttention, RelativePositions};

use super::activation::draws;
use super::kernel::Argument;
use super::kernel_builder::{Candidate, KernelBuilder, MAX_ELEMENTS, size, tiles};
use super::module::Family;
use super::{NAME, vendor};
use crate::{EngineError, Pass, Role, Shard};

const FAMILY: Family = Family::Attention;

/// Adds the launches of a pass of an attention layer over the samples of a shard. Returns `None`
/// if its inputs do not fit.
pub(super) fn add_launches(
    builder: &mut KernelBuilder<'_>,
    layer: &Layer,
    rule: &MultiHeadAttention,
    shard: Shard,
    pass: Pass,
) -> Result<Option<()>, EngineError> {
    let Some(sizes) = rule.sizes(layer.input_shapes()) else { return Ok(None) };
    let linear = rule.alibi.map(|biases| {
        let biases = biases.of_distances(&sizes);
        builder.table(&biases.into_iter().map(|bias| (bias as f32).to_bits()).collect::<Vec<_>>())
    });
    let linear = linear.transpose()?.unwrap_or(Argument::NONE);
    let biases =
        rule.relative.map(|relative| Biases::new(builder, relative, &sizes, rule.causal)).transpose()?;
    let window = rule.causal_window(&sizes).unwrap_or(0);
    let AttentionSizes { positions, key_positions, heads, key_heads, width } = sizes;
    let samples = shard.samples;
    let drops = layer.kind().draws_by_element() && pass != Pass::Infer;
    let is_fused = rule.is_fused(layer.input_shapes().len());
    // The last input, and its gradient, which is zero.
    let [padding, padding_gradient] = [Role::Input, Role::InputGradient].map(|role| {
        let slot = rule.padding.then(|| layer.input_shapes().len() - 1);
        slot.map_or(Argument::NONE, |slot| builder.operand(role(slot)))
    });
    // The library has the default scale only, other random numbers, no biases, windows and padding.
    let is_plain = rule.scale.is_none()
        && rule.relative.is_none()
        && rule.alibi.is_none()
        && rule.window.is_none()
        && !rule.padding;
    let shape = (is_fused && is_plain && !drops).then(|| AttentionShape {
        samples,
        positions,
        heads,
        width,
        causal: rule.causal,
        pass: if pass == Pass::Backward { AttentionPass::Backward } else { AttentionPass::Forward },
    });
    let (features, key_features) = (heads * width, key_heads * width);
    // Queries, keys and values, or their gradients.
    let parts = |builder: &KernelBuilder<'_>, role: fn(usize) -> Role| {
        [0, 1, 2].map(|part| {
            if is_fused {
                builder.operand(role(0)).offset(part * features)
            } else {
                builder.operand(role(part))
            }
        })
    };
    let strides = if is_fused { [3 * features; 2] } else { [features, key_features] };
    let [y, saved] = [Role::Output, Role::Saved].map(|role| builder.operand(role));
    let rows = samples * heads * positions;
    let [stride, key_stride] = strides;
    // Fields of `Sizes` in `kernels/attention.cu`.
    let sizes = [positions, key_positions, heads, heads / key_heads, width, window, stride, key_stride];
    let scale = Argument::F32(rule.scale_for(width) as f32);
    let inputs = parts(builder, Role::Input);
    let mask = if drops { add_mask(builder, layer, rule, shard, pass)? } else { NO_MASK };
    let sizes = Argument::fields(sizes);
    let added = biases.as_ref().map_or(linear, |biases| biases.values);
    let common = [&[sizes, scale], &inputs[..], &mask, &[added, padding]].concat();
    // One block for each tile of each head of each sample.
    let grid = [samples * heads * tiles(positions, width), 1];
    let x = inputs[0];
    if !pass.is_backward() {
        let vendor = |builder: &mut KernelBuilder<'_>, shape: &AttentionShape| {
            // The library stores the statistics in evaluation, too.
            let is_saved = matches!(saved, Argument::Write(..));
            let saved = if is_saved { saved } else { builder.workspace(rows * size_of::<f32>())? };
            vendor::attentions(builder, shape, &[x, y, saved])
        };
        let arguments = [&common[..], &[y, saved]].concat();
        let own =
            |builder: &mut KernelBuilder<'_>| builder.launch((FAMILY, "attention_forward"), grid, arguments);
        return choose(builder, "attention", shape, vendor, own).map(Some);
    }
    let dy = builder.operand(Role::OutputGradient);
    let [query_gradient, key_gradient, value_gradient] = parts(builder, Role::InputGradient);
    let vendor = |builder: &mut KernelBuilder<'_>, shape: &AttentionShape| {
        vendor::attentions(builder, shape, &[x, y, saved, dy, query_gradient])
    };
    let own = |builder: &mut KernelBuilder<'_>| {
        let means = builder.workspace(rows * size_of::<f32>())?;
        let arguments = [&[rows, positions, heads, width].map(size)[..], &[y, dy, means]].concat();
        builder.for_each_row((FAMILY, "attention_means"), rows, arguments)?;
        let common = [&common[..], &[saved, means, dy]].concat();
        if let Some(biases) = &biases {
            // One block for each diagonal of tiles.
            let blocks = heads * (tiles(positions, 1) + tiles(key_positions, 1) - 1);
            let sums = builder.workspace(blocks * DIAGONALS * size_of::<f32>())?;
            let arguments = [&common[..], &[size(samples), sums]].concat();
            builder.launch((FAMILY, "attention_bias_sums"), [blocks, 1], arguments)?;
            let gradient = builder.operand(Role::ParameterGradient);
            let arguments = vec![size(biases.parameters), sizes, biases.buckets, sums, gradient];
            builder.for_each_row((FAMILY, "attention_bias_gradient"), biases.parameters, arguments)?;
        }
        if pass == Pass::BackwardParameters {
            return Ok(());
        }
        if rule.padding {
            let count = samples * key_positions;
            builder.for_each((Family::Elementwise, "fill_zeros"), count, [size(count), padding_gradient])?;
        }
        let arguments = [&common[..], &[query_gradient]].concat();
        builder.launch((FAMILY, "attention_query_gradient"), grid, arguments)?;
        let grid = [samples * key_heads * tiles(key_positions, width), 1];
        let arguments = [&common[..], &[key_gradient, value_gradient]].concat();
        builder.launch((FAMILY, "attention_key_value_gradient"), grid, arguments)
    };
    choose(builder, "gradient of attention", shape, vendor, own).map(Some)
}

/// Number of diagonals of a tile, as in `kernels/attention.cu`.
const DIAGONALS: usize = 127;

/// Learned numbers of relative positions.
struct Biases {
    /// Number of parameters.
    parameters: usize,
    /// The bucket of each distance between a key and a query.
    buckets: Argument,
    /// The number of each distance, head after head.
    values: Argument,
}

impl Biases {
    /// Adds the launch that copies the numbers from the parameters.
    fn new(
        builder: &mut KernelBuilder<'_>,
        relative: RelativePositions,
        sizes: &AttentionSizes,
        causal: bool,
    ) -> Result<Self, EngineError> {
        let buckets = relative.buckets_of_distances(sizes, causal);
        let (distances, heads) = (buckets.len(), sizes.heads);
        let buckets = builder.table(&buckets.into_iter().map(|bucket| bucket as u32).collect::<Vec<_>>())?;
        let values = builder.workspace(distances * heads * size_of::<f32>())?;
        let arguments = [size(distances), size(heads), buckets, builder.operand(Role::Parameters), values];
        builder.for_each((FAMILY, "attention_biases"), distances * heads, arguments)?;
        Ok(Self { parameters: relative.buckets * heads, buckets, values })
    }
}

/// Arguments of an attention's kernels for its weights' mask: those without dropout.
const NO_MASK: [Argument; 4] = [Argument::NONE, Argument::U32(0), Argument::U32(0), Argument::F32(1.0)];

/// Adds the launch that draws the mask of an attention's weights, and returns the arguments of the
/// kernels that read it. It is an error if the mask has too many bytes for indices of 32 bits.
fn add_mask(
    builder: &mut KernelBuilder<'_>,
    layer: &Layer,
    rule: &MultiHeadAttention,
    shard: Shard,
    pass: Pass,
) -> Result<[Argument; 4], EngineError> {
    let runs = layer.random_box().runs();
    // A part has consecutive heads, whose weights are consecutive.
    let (first, end) = runs.first().zip(runs.last()).map_or((0, 0), |(first, last)| (first.start, last.end));
    let (first_block, blocks) = (first / 8, end.div_ceil(8) - first / 8);
    if shard.samples.saturating_mul(blocks) > MAX_ELEMENTS {
        return Err(EngineError::unsupported(NAME, layer, pass));
    }
    let mask = builder.workspace(shard.samples * blocks)?;
    let place = [size(shard.samples), size(blocks), Argument::U64(first_block as u64)];
    let draws = draws(layer, shard, rule.dropout);
    let arguments = [&place[..], &draws, &[Argument::Context, mask]].concat();
    builder.for_each((Family::Dropout, "attention_mask"), shard.samples * blocks, arguments)?;
    let kept = Argument::F32((1.0 / (1.0 - rule.dropout)) as f32);
    Ok([mask, size(blocks), size(first % 8), kept])
}

/// Adds the launches of one of several candidates with operands in 16 bits, or those of `own`: in
/// single precision, and without a shape, which the library does not compute.
fn choose(
    builder: &mut KernelBuilder<'_>,
    part: &'static str,
    shape: Option<AttentionShape>,
    vendor: impl FnOnce(&mut KernelBuilder<'_>, &AttentionShape) -> Result<Vec<Candidate>, EngineError>,
    own: impl FnOnce(&mut KernelBuilder<'_>) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    match (builder.numerics(), shape) {
        (Numerics::Bf16, Some(shape)) => builder.choose(part, &shape, |builder| vendor(builder, &shape), own),
        _ => own(builder),
    }
}
