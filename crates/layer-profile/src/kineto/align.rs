//! Alignment of the operators of a forward pass with the layers of a network. Both are in the order
//! of execution.

use layer_graph::LayerKind;

/// Score of an operator that computes a layer with parameters.
const PRODUCT: f32 = 4.0;

/// Score of an operator that computes another layer.
const OTHER: f32 = 2.0;

/// Score of a module without operators of a known kind, which may compute any layer.
const ANY: f32 = 0.5;

/// Score of an operator of a submodule that computes an opaque layer, an attention or a mixture of
/// experts, which have operators of any kind.
const COMPOSITE: f32 = 0.25;

/// Score of a layer that is computed by at least one operator.
const COVERED: f32 = 1.0;

/// Operators of a forward pass that belong to one layer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Unit {
    /// Names of the operators, as [`operator_name`] returns them.
    pub(super) names: Vec<String>,
    /// Whether they may compute a layer of any kind, because they are all operators of one module.
    pub(super) is_module: bool,
    /// Whether they are operators of a submodule.
    pub(super) is_inner: bool,
}

/// Layer of a network to align.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Target<'a> {
    /// Name of the layer.
    pub(super) name: &'a str,
    /// Kind of the layer.
    pub(super) kind: &'a LayerKind,
}

/// Returns the name of an operator without its namespace and the mark of operators in place:
/// `relu` of `aten::relu_`.
pub(super) fn operator_name(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name).trim_matches('_')
}

/// Returns whether an operator computes a layer that has parameters and no other form in PyTorch.
pub(super) fn is_product(operator: &str) -> bool {
    matches!(
        operator,
        "conv2d"
            | "convolution"
            | "linear"
            | "addmm"
            | "batch_norm"
            | "layer_norm"
            | "group_norm"
            | "embedding"
    )
}

/// Returns whether a layer is computed by an operator of [`is_product`].
pub(super) fn is_of_product(kind: &LayerKind) -> bool {
    use LayerKind as K;
    matches!(kind, K::Conv2d(_) | K::ConvTranspose2d(_) | K::Linear(_) | K::Embedding(_))
        || matches!(kind, K::BatchNorm(_) | K::LayerNorm(_) | K::GroupNorm(_))
}

/// Assigns units to layers, so that the layers of successive units do not decrease and the sum of
/// the scores is maximal. Returns the layer of each unit, `None` for one that computes none of
/// them. `is_certain` says whether a module may compute a layer with parameters without an operator
/// of its kind, since its name belongs to the layer.
///
/// Takes O(units x layers) time and bytes.
pub(super) fn align(units: &[Unit], layers: &[Target<'_>], is_certain: bool) -> Vec<Option<usize>> {
    /// The layer of this unit was visited by the unit.
    const TAKEN: u8 = 1;
    /// The layer was visited by an earlier unit, too.
    const AGAIN: u8 = 2;
    /// The layer is visited in the best assignment of the first units to the first layers.
    const VISITED: u8 = 4;

    let width = layers.len() + 1;
    let mut choices = vec![0u8; (units.len() + 1) * width];
    // Best scores of the first units: with the first layers, and with the last of them visited.
    let mut best = vec![0.0f32; width];
    let mut visited = vec![f32::NEG_INFINITY; width];
    for (i, unit) in units.iter().enumerate() {
        // That of the first units without this one, and one layer less.
        let mut diagonal = best[0];
        for (j, layer) in layers.iter().enumerate().map(|(j, layer)| (j + 1, layer)) {
            let score = score(unit, layer, is_certain);
            let choice = &mut choices[(i + 1) * width + j];
            if score > 0.0 {
                let (first, again) = (diagonal + COVERED + score, visited[j] + score);
                if first.max(again) > visited[j] {
                    *choice |= TAKEN | if again >= first { AGAIN } else { 0 };
                    visited[j] = first.max(again);
                }
            }
            diagonal = best[j];
            best[j] = best[j - 1];
            if visited[j] > best[j] {
                *choice |= VISITED;
                best[j] = visited[j];
            }
        }
    }
    let mut assigned = vec![None; units.len()];
    let (mut i, mut j, mut is_visited) = (units.len(), layers.len(), false);
    while i > 0 && j > 0 {
        let choice = choices[i * width + j];
        if !is_visited {
            match choice & VISITED {
                0 => j -= 1,
                _ => is_visited = true,
            }
            continue;
        }
        if choice & TAKEN != 0 {
            assigned[i - 1] = Some(j - 1);
            if choice & AGAIN == 0 {
                (j, is_visited) = (j - 1, false);
            }
        }
        i -= 1;
    }
    assigned
}

/// Returns the score of a unit that computes a layer; 0 if it does not.
fn score(unit: &Unit, layer: &Target<'_>, is_certain: bool) -> f32 {
    let by_operator = unit.names.iter().map(|name| match computes(name, layer) {
        true if is_product(name) => PRODUCT,
        true => OTHER,
        false => 0.0,
    });
    let by_operator = by_operator.fold(0.0, f32::max);
    let is_any = matches!(layer.kind, LayerKind::Opaque(_) | LayerKind::MixtureOfExperts(_));
    let is_composite =
        is_any || matches!(layer.kind, LayerKind::MultiHeadAttention(_) | LayerKind::AdditiveAttention(_));
    let has_product = unit.names.iter().any(|name| is_product(name));
    let may_be = is_any || !has_product && !is_of_product(layer.kind);
    if by_operator > 0.0 {
        by_operator
    } else if unit.is_module && (is_certain || may_be) {
        ANY
    } else if unit.is_inner && is_composite && may_be {
        COMPOSITE
    } else {
        0.0
    }
}

/// Returns whether an operator computes a kind of layer, or gave the layer its name.
fn computes(operator: &str, layer: &Target<'_>) -> bool {
    let kinds: &[&str] = match operator {
        "convolution" => &["conv2d", "conv_transpose2d"],
        "addmm" | "mm" => &["linear"],
        "embedding" => &["embedding", "position_embedding"],
        "gelu" => &["gelu", "gelu_tanh"],
        "hardtanh" => &["relu6"],
        "hardsigmoid" => &["hard_sigmoid"],
        "hardswish" => &["hard_swish"],
        "mul" => &["multiply"],
        "add" => &["add", "position_embedding"],
        "cat" => &["concat", "class_token"],
        "scaled_dot_product_attention" => &["multi_head_attention"],
        "mean" => &["adaptive_avg_pool2d"],
        "view" | "reshape" | "unflatten" | "flatten" => &["flatten", "reshape"],
        "transpose" | "permute" => &["permute"],
        "feature_dropout" | "native_dropout" => &["dropout"],
        "cross_entropy_loss" | "nll_loss" | "nll_loss_nd" => &["softmax_cross_entropy"],
        _ => &[],
    };
    let kind = layer.kind.label();
    let mut parts = layer.name.rsplit('.');
    let last = parts.next().unwrap_or_default();
    // The second layer of a name ends in `.2`.
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit());
    let last = if is_number { parts.next().unwrap_or(last) } else { last };
    kinds.contains(&kind) || kind == operator || last == operator
}

#[cfg(test)]
mod tests {
    use layer_graph::{Conv2d, Linear, MultiHeadAttention};

    use super::*;

    fn unit(name: &str) -> Unit {
        Unit { names: vec![operator_name(name).into()], is_module: false, is_inner: false }
    }

    fn module(names: &[&str]) -> Unit {
        Unit {
            names: names.iter().map(|&name| operator_name(name).into()).collect(),
            is_module: true,
            is_inner: true,
        }
    }

    #[test]
    fn equal_operators_are_assigned_in_order() {
        let (conv, relu, linear) =
            (Conv2d::new(8, 3).into(), LayerKind::Relu, LayerKind::from(Linear::new(8)));
        let target = |name, kind| Target { name, kind };
        let layers = [
            target("conv1", &conv),
            target("relu", &relu),
            target("conv2", &conv),
            target("relu.2", &relu),
            target("fc", &linear),
        ];
        let units = [
            "aten::to",
            "aten::conv2d",
            "aten::relu_",
            "aten::conv2d",
            "aten::relu",
            "aten::view",
            "aten::linear",
        ];
        let assigned = align(&units.map(unit), &layers, false);
        assert_eq!(assigned, [None, Some(0), Some(1), Some(2), Some(3), None, Some(4)]);

        // A second operator of a layer does not take the layer of the next one.
        let units = ["aten::conv2d", "aten::conv2d", "aten::linear"].map(unit);
        assert_eq!(align(&units, &layers, false), [Some(0), Some(2), Some(4)]);
    }

    #[test]
    fn module_of_unknown_operators_is_the_layer_between_its_neighbours() {
        let (linear, gelu) = (LayerKind::from(Linear::new(8)), LayerKind::GeluTanh);
        let target = |name, kind| Target { name, kind };
        let layers = [
            target("c_fc", &linear),
            target("act", &gelu),
            target("c_proj", &linear),
            target("add", &LayerKind::Add),
        ];
        let units = [
            module(&["aten::addmm"]),
            module(&["aten::pow", "aten::add", "aten::mul", "aten::tanh"]),
            module(&["aten::addmm"]),
            unit("aten::add"),
        ];
        assert_eq!(align(&units, &layers, false), [Some(0), Some(1), Some(2), Some(3)]);
        // Modules of unknown operators compute no layer with parameters, unless they have its name.
        let unknown = [module(&["custom::product"])];
        assert_eq!(align(&unknown, &layers[..1], false), [None]);
        assert_eq!(align(&unknown, &layers[..1], true), [Some(0)]);
        assert_eq!(align(&[module(&["aten::conv2d"])], &layers[1..2], false), [None]);
    }

    #[test]
    fn products_of_activations_belong_to_the_attention() {
        let linear = LayerKind::from(Linear::new(8));
        let attention = LayerKind::MultiHeadAttention(MultiHeadAttention::new(2, true));
        let target = |name, kind| Target { name, kind };
        let layers = [target("qkv", &linear), target("attn", &attention), target("proj", &linear)];
        let inner = |name| Unit { is_inner: true, ..unit(name) };
        let units = [
            module(&["aten::linear"]),
            inner("aten::transpose"),
            inner("aten::matmul"),
            inner("aten::softmax"),
            inner("aten::matmul"),
            module(&["aten::linear"]),
        ];
        let assigned = align(&units, &layers, false);
        assert_eq!(assigned, [Some(0), Some(1), Some(1), Some(1), Some(1), Some(2)]);
    }

    #[test]
    fn no_units_or_layers_have_no_assignment() {
        assert!(align(&[], &[], false).is_empty());
        assert_eq!(align(&[unit("aten::add")], &[], false), [None]);
    }
}
