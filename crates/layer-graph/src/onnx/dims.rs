//! Dimensions of rearranged tensors. The operators are those of ONNX; dimensions are given
//! outermost first. Negative axes count from the end. Functions return `None` if the rearrangement
//! does not fit the tensor.

use super::numbers::{axis, size};

/// Size of an open batch where dimensions are numbers: a prime, so that no other dimension is taken
/// for it.
pub(super) const BATCH: usize = 65_537;

/// Stands for the size of the batch in a list of integers that is computed from a shape. Slices
/// have the lowest integer as an end.
pub(super) const BATCH_SIZE: i64 = i64::MIN + 0x5eed;

/// Returns the dimensions of a tensor of dimensions `from` after ONNX's `Reshape` to `requested`: 0
/// keeps the dimension at that position, and one -1 is inferred.
pub(super) fn reshape(requested: &[i64], from: &[usize]) -> Option<Vec<usize>> {
    let elements: usize = from.iter().product();
    let mut open = None;
    let mut dims = Vec::with_capacity(requested.len());
    for (i, &dim) in requested.iter().enumerate() {
        dims.push(match dim {
            0 => *from.get(i)?,
            -1 if open.is_none() => {
                open = Some(i);
                1
            }
            _ => size(dim)?,
        });
    }
    let known = dims.iter().try_fold(1usize, |all, &dim| all.checked_mul(dim))?;
    if let Some(i) = open {
        dims[i] = elements.checked_div(known)?;
    }
    (dims.iter().try_fold(1usize, |all, &dim| all.checked_mul(dim))? == elements).then_some(dims)
}

/// Returns the dimensions after ONNX's `Unsqueeze`: with ones inserted at the given axes of the
/// result.
pub(super) fn unsqueeze(axes: &[i64], dims: &[usize]) -> Option<Vec<usize>> {
    let rank = dims.len() + axes.len();
    let mut places = axes.iter().map(|&value| axis(value, rank)).collect::<Option<Vec<_>>>()?;
    places.sort_unstable();
    let mut result = dims.to_vec();
    for (i, &place) in places.iter().enumerate() {
        if i > 0 && places[i - 1] == place {
            return None;
        }
        result.insert(place, 1);
    }
    Some(result)
}

/// Returns the dimensions after ONNX's `Squeeze`: without those at the given axes, which must be 1,
/// or without all ones if `axes` is `None`.
pub(super) fn squeeze(axes: Option<&[i64]>, dims: &[usize]) -> Option<Vec<usize>> {
    let Some(axes) = axes else { return Some(dims.iter().copied().filter(|&dim| dim != 1).collect()) };
    let places = axes.iter().map(|&value| axis(value, dims.len())).collect::<Option<Vec<_>>>()?;
    if places.iter().any(|&place| dims[place] != 1) {
        return None;
    }
    Some((0..dims.len()).filter(|place| !places.contains(place)).map(|place| dims[place]).collect())
}

/// Returns the dimensions after ONNX's `Transpose`: those at the axes in `order`, or all in reverse
/// if `order` is `None`.
pub(super) fn permute(order: Option<&[i64]>, dims: &[usize]) -> Option<Vec<usize>> {
    let Some(order) = order else { return Some(dims.iter().rev().copied().collect()) };
    let places = order.iter().map(|&place| axis(place, dims.len())).collect::<Option<Vec<_>>>()?;
    let mut sorted = places.clone();
    sorted.sort_unstable();
    sorted.iter().copied().eq(0..dims.len()).then(|| places.iter().map(|&place| dims[place]).collect())
}
