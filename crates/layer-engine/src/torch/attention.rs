//! Scaled dot-product attention. Functions return the computation of a pass.

use layer_graph::{AttentionSizes, Layer, MultiHeadAttention, RelativePositions};
use tch::Tensor;

use super::Failure;
use super::dropout::Mask;
use super::dtypes::DTypes;
use super::ffi::{self, AttentionOptions};
use super::launch::{Launch, LaunchFunction, LayerOperands};
use crate::Role;

/// Returns the forward pass of attention, by libtorch's fastest kernel for the device, or with a
/// mask of the weights by matrix products. In training it saves libtorch's autograd graph, by which
/// the backward pass differentiates. Returns `None` if the layer's inputs do not fit.
pub(super) fn forward(
    operands: LayerOperands,
    layer: &Layer,
    attention: &MultiHeadAttention,
    mut mask: Option<Mask>,
    dtypes: DTypes,
) -> Result<Option<LaunchFunction>, Failure> {
    let Some(sizes) = attention.sizes(layer.input_shapes()) else { return Ok(None) };
    let (heads, causal) = (attention.heads as i64, attention.causal);
    let options = AttentionOptions { heads, causal, scale: attention.scale_for(sizes.width) };
    let needs_mask = attention.window.is_some() || attention.alibi.is_some() || attention.padding;
    let mask_of_products = needs_mask.then(|| mask_of(attention, &sizes, dtypes)).transpose()?;
    let buckets = attention.relative.map(|relative| buckets(relative, &sizes, causal, dtypes)).transpose()?;
    let has_padding = attention.padding;
    Ok(Some(Box::new(move |launch| {
        let count = operands.inputs.len() - usize::from(has_padding);
        let hidden = match &mask_of_products {
            Some(numbers) if has_padding => Some(Hidden::new(launch, &operands, numbers)?),
            _ => None,
        };
        let mask_of_products = hidden.as_ref().map(|hidden| &hidden.mask).or(mask_of_products.as_ref());
        let inputs = (0..count).map(|slot| dtypes.narrow(&operands.input_at(launch, slot)?));
        let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        let factors = mask.as_mut().map(|mask| mask.factors(launch, dtypes)).transpose()?;
        let learned = if buckets.is_some() { operands.parameters(launch)? } else { Vec::new() };
        let biases = learned.first().zip(buckets.as_ref()).map(<[&Tensor; 2]>::from);
        let is_training = operands.writes(Role::Saved);
        let (mut saved, result) =
            ffi::attention(&inputs, options, (factors, biases, mask_of_products), is_training)?;
        let result = match hidden {
            // The backward pass differentiates it as well.
            Some(hidden) => tch::with_grad(|| result.f_masked_fill(&hidden.queries, 0.0))?,
            None => result,
        };
        operands.put(launch, Role::Output, &dtypes.widen(&result.f_detach()?)?)?;
        saved.push(result);
        operands.save(launch, saved)
    })))
}

/// Keys and queries of an attention with padding that take no part in it.
struct Hidden {
    /// Numbers that are added to the products: finite, so that no sum of weights is zero.
    mask: Tensor,
    /// Whether a query attends to no key, by sample and position.
    queries: Tensor,
}

/// Number that hides a key.
const HIDDEN: f64 = -1e30;

impl Hidden {
    /// Computes it from the padding, the last input, and the numbers without it.
    fn new(launch: &Launch<'_, '_>, operands: &LayerOperands, numbers: &Tensor) -> Result<Self, Failure> {
        let padding = operands.input_at(launch, operands.inputs.len() - 1)?;
        let padding = padding.f_le(0.5)?.f_unsqueeze(1)?.f_unsqueeze(1)?;
        let mask = numbers.f_clamp_min(HIDDEN)?;
        let mask = mask.f_expand([padding.size()[0], -1, -1, -1], false)?.f_masked_fill(&padding, HIDDEN)?;
        let is_hidden = mask.f_le(0.5 * HIDDEN)?.f_all_dim(3, false)?.f_all_dim(1, true)?;
        Ok(Self { mask, queries: is_hidden.f_transpose(1, 2)? })
    }
}

/// Returns the numbers that are added to the products, of dimensions 1, 1 or heads, positions and
/// key positions: minus infinity for the keys that a query does not attend to.
fn mask_of(
    attention: &MultiHeadAttention,
    sizes: &AttentionSizes,
    dtypes: DTypes,
) -> Result<Tensor, Failure> {
    let AttentionSizes { positions, key_positions, heads, .. } = *sizes;
    let window = attention.causal_window(sizes);
    let heads = if attention.alibi.is_some() { heads } else { 1 };
    let mut numbers = Vec::with_capacity(heads * positions * key_positions);
    for head in 0..heads {
        for query in 0..positions {
            let seen = sizes.keys_of_query(query, window);
            numbers.extend((0..key_positions).map(|key| match attention.alibi {
                _ if !seen.contains(&key) => f64::NEG_INFINITY,
                Some(biases) => biases.bias(head, key, query),
                None => 0.0,
            }));
        }
    }
    let mask = Tensor::f_from_slice(&numbers)?;
    let mask = mask.f_view([1, heads as i64, positions as i64, key_positions as i64])?;
    Ok(mask.f_to_kind(dtypes.kind)?.f_to_device(dtypes.device)?)
}

/// Returns the bucket of each query and key.
fn buckets(
    relative: RelativePositions,
    sizes: &AttentionSizes,
    causal: bool,
    dtypes: DTypes,
) -> Result<Tensor, Failure> {
    let bucket = |query, key| relative.bucket(key, query, causal) as i64;
    let of_query = |query| (0..sizes.key_positions).map(move |key| bucket(query, key));
    let buckets = Tensor::f_from_slice(&(0..sizes.positions).flat_map(of_query).collect::<Vec<_>>())?;
    Ok(buckets.f_to_device(dtypes.device)?)
}

/// Returns the backward pass of attention: libtorch's autograd, on the graph that the forward pass
/// saved. It computes those gradients that the pass has as operands.
pub(super) fn backward(operands: LayerOperands, has_padding: bool, dtypes: DTypes) -> LaunchFunction {
    Box::new(move |launch| {
        let inputs = operands.inputs.len() - usize::from(has_padding);
        let (result, leaves) = operands.saved_after(launch, inputs + operands.parameter_count())?;
        let output_gradient = dtypes.narrow(&operands.output_gradient(launch)?)?;
        if has_padding && operands.writes(Role::InputGradient(inputs)) {
            let padding = operands.input_at(launch, inputs)?;
            operands.put(launch, Role::InputGradient(inputs), &padding.f_zeros_like()?)?;
        }
        let gradients = ffi::gradients_of_leaves(result, leaves, &output_gradient)?;
        let (of_inputs, of_parameters) = gradients.split_at(inputs);
        for (slot, gradient) in of_inputs.iter().enumerate() {
            if operands.writes(Role::InputGradient(slot)) {
                operands.put(launch, Role::InputGradient(slot), &dtypes.widen(gradient)?)?;
            }
        }
        if of_parameters.is_empty() {
            return Ok(());
        }
        operands.put_parameter_gradients(launch, of_parameters)
    })
}
