//! Rearrangements of a layer's output that are not layers yet: reshapes, permutations, slices and
//! repetitions, as dimensions with strides.

#![expect(clippy::float_cmp, reason = "a scale that is not applied is exactly 1")]

use std::cmp::Reverse;

use crate::{LayerId, Shape};

use super::dims::{self, BATCH, BATCH_SIZE};

/// Stride of the batch: between samples.
const SAMPLE: usize = usize::MAX;

/// Part of a dimension: `size` elements that are `stride` elements of the sample apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Factor {
    /// Number of elements.
    pub(super) size: usize,
    /// Distance of two elements in the sample of the layer; 0 if one element is repeated.
    pub(super) stride: usize,
}

impl Factor {
    /// Returns whether the elements are those of different samples.
    pub(super) fn is_batch(self) -> bool {
        self.stride == SAMPLE
    }
}

/// Rearranged output of a layer, multiplied by a number.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct View {
    /// Layer whose output is rearranged.
    pub(super) base: LayerId,
    /// Factors of each dimension, outermost first, with the batch. Those of 1 are left out, and so
    /// a dimension of 1 has none.
    pub(super) axes: Vec<Vec<Factor>>,
    /// Position of the first element in the sample.
    pub(super) offset: usize,
    /// Number by which the elements are multiplied.
    pub(super) scale: f64,
}

impl View {
    /// Creates the view of a whole output of the given shape, for a batch of `batch` samples.
    pub(super) fn new(base: LayerId, shape: &Shape, batch: usize) -> Self {
        let mut axes = vec![vec![Factor { size: batch, stride: SAMPLE }]];
        let mut stride = shape.elements();
        for &size in shape.dims() {
            stride /= size;
            axes.push(if size == 1 { Vec::new() } else { vec![Factor { size, stride }] });
        }
        Self { base, axes, offset: 0, scale: 1.0 }
    }

    /// Returns the dimensions, with the batch.
    pub(super) fn dims(&self) -> Vec<usize> {
        self.axes.iter().map(|axis| axis.iter().map(|factor| factor.size).product()).collect()
    }

    /// Returns the dimensions of a sample, if the batch is the first dimension.
    pub(super) fn sample(&self) -> Option<Vec<usize>> {
        let keeps_batch =
            matches!(&self.axes[..], [batch, ..] if matches!(batch[..], [only] if only.is_batch()));
        keeps_batch.then(|| self.dims()[1..].to_vec())
    }

    /// Returns whether the elements of each sample are those of the layer in their order, which is
    /// of the given shape.
    pub(super) fn is_whole(&self, shape: &Shape) -> bool {
        self.sample().is_some_and(|dims| dims == shape.dims())
            && self.scale == 1.0
            && is_contiguous(self.axes[1..].iter().flatten(), self.offset, shape.elements())
    }

    /// Returns whether the view has each element of the layer, which is of the given shape, once,
    /// in any order.
    pub(super) fn is_permutation(&self, shape: &Shape) -> bool {
        let all = self.axes.iter().flatten();
        let mut inside: Vec<&Factor> = all.clone().filter(|factor| !factor.is_batch()).collect();
        inside.sort_by_key(|factor| Reverse(factor.stride));
        self.scale == 1.0
            && all.filter(|factor| factor.is_batch()).count() == 1
            && is_contiguous(inside.into_iter(), self.offset, shape.elements())
    }

    /// Returns the view with the factors of all dimensions distributed over other dimensions.
    /// `requested` is as in ONNX's `Reshape`, where [`BATCH_SIZE`] is the size of the batch.
    pub(super) fn reshape(&self, requested: &[i64], batch: usize) -> Option<Self> {
        let from = self.dims();
        let mut wanted: Vec<i64> = requested.to_vec();
        for dim in &mut wanted {
            if *dim == BATCH_SIZE {
                *dim = i64::try_from(batch).ok()?;
            }
        }
        // Exporters write the batch size of the traced run, which is 1 if the batch is open.
        if batch == BATCH && wanted.first() == Some(&1) && self.sample().is_some() {
            wanted[0] = i64::try_from(batch).ok()?;
        }
        let target = dims::reshape(&wanted, &from)?;
        let mut open: Vec<Factor> = self.axes.iter().flatten().rev().copied().collect();
        let mut axes = Vec::with_capacity(target.len());
        for size in target {
            let mut axis = Vec::new();
            let mut reached = 1;
            // A batch of 1 is a part of the dimension that begins with it.
            while reached < size
                || axis.is_empty() && open.last().is_some_and(|f| f.is_batch() && f.size == 1)
            {
                let factor = open.pop()?;
                let rest = size / reached;
                if rest % factor.size == 0 {
                    push(&mut axis, factor);
                    reached *= factor.size;
                } else if factor.size % rest == 0 && !factor.is_batch() {
                    let inner = factor.size / rest;
                    push(&mut axis, Factor { size: rest, stride: factor.stride * inner });
                    open.push(Factor { size: inner, ..factor });
                    reached = size;
                } else {
                    return None;
                }
            }
            axes.push(axis);
        }
        open.is_empty().then(|| Self { axes, ..self.clone() })
    }

    /// Returns the view with its dimensions, with the batch, in the given order.
    pub(super) fn permute(&self, order: &[usize]) -> Option<Self> {
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        let fits = sorted.iter().copied().eq(0..self.axes.len());
        fits.then(|| Self {
            axes: order.iter().map(|&axis| self.axes[axis].clone()).collect(),
            ..self.clone()
        })
    }

    /// Returns the positions `start..start + length` of a dimension.
    pub(super) fn slice(&self, axis: usize, start: usize, length: usize) -> Option<Self> {
        let whole: usize = self.axes.get(axis)?.iter().map(|factor| factor.size).product();
        if start == 0 && length == whole {
            return Some(self.clone());
        }
        let mut view = self.clone();
        let (outer, inner) = view.axes[axis].split_first_mut()?;
        let inner: usize = inner.iter().map(|factor| factor.size).product();
        if outer.is_batch() || start % inner != 0 || length % inner != 0 || length == 0 {
            return None;
        }
        view.offset += start / inner * outer.stride;
        outer.size = length / inner;
        if outer.size == 1 {
            view.axes[axis].remove(0);
        }
        Some(view)
    }

    /// Returns the view without a dimension of 1.
    pub(super) fn squeeze(&self, axis: usize) -> Option<Self> {
        let mut view = self.clone();
        view.axes.get(axis)?.is_empty().then(|| _ = view.axes.remove(axis))?;
        Some(view)
    }

    /// Returns the view with a dimension of 1 inserted at a position of the result.
    pub(super) fn unsqueeze(&self, axis: usize) -> Option<Self> {
        let mut view = self.clone();
        (axis <= view.axes.len()).then(|| view.axes.insert(axis, Vec::new()))?;
        Some(view)
    }

    /// Returns the view with dimensions of 1 repeated, as ONNX's `Expand` does.
    pub(super) fn expand(&self, requested: &[i64], batch: usize) -> Option<Self> {
        let missing = requested.len().checked_sub(self.axes.len())?;
        let mut view = self.clone();
        view.axes.splice(..0, vec![Vec::new(); missing]);
        let own = view.dims();
        for (i, &size) in requested.iter().enumerate() {
            let size = match size {
                BATCH_SIZE => batch,
                size => usize::try_from(size).ok()?,
            };
            match (own[i], size) {
                (_, 1) => {}
                (own, size) if own == size => {}
                (1, size) => view.axes[i].push(Factor { size, stride: 0 }),
                _ => return None,
            }
        }
        Some(view)
    }

    /// Returns the view of another layer that has the same rows, of `features` instead of the
    /// innermost dimension, which the last axis has. `None` if it has other rows.
    pub(super) fn of_rows(&self, base: LayerId, shape: &Shape, features: usize) -> Option<Self> {
        let (last, rows) = self.axes.split_last()?;
        let width = shape.innermost();
        let inside = rows.iter().flatten().filter(|factor| !factor.is_batch());
        let is_whole = is_contiguous(inside.chain(last), self.offset, shape.elements());
        let row: usize = last.iter().map(|factor| factor.size).product();
        if !is_whole || self.scale != 1.0 || row != width {
            return None;
        }
        let mut view = Self { base, ..self.clone() };
        for factor in view.axes.iter_mut().flatten().filter(|factor| !factor.is_batch()) {
            factor.stride = factor.stride / width * features;
        }
        *view.axes.last_mut()? =
            if features == 1 { Vec::new() } else { vec![Factor { size: features, stride: 1 }] };
        Some(view)
    }
}

/// Appends a factor to those of a dimension, as a part of the last one if it continues it.
fn push(axis: &mut Vec<Factor>, factor: Factor) {
    match axis.last_mut() {
        _ if factor.size == 1 && !factor.is_batch() => {}
        Some(last)
            if !last.is_batch() && !factor.is_batch() && last.stride == factor.stride * factor.size =>
        {
            *last = Factor { size: last.size * factor.size, stride: factor.stride };
        }
        _ => axis.push(factor),
    }
}

/// Returns whether factors run through all elements of a sample in their order.
fn is_contiguous<'f>(
    factors: impl DoubleEndedIterator<Item = &'f Factor>,
    offset: usize,
    elements: usize,
) -> bool {
    let mut stride = 1;
    for factor in factors.rev() {
        if factor.stride != stride {
            return false;
        }
        stride *= factor.size;
    }
    offset == 0 && stride == elements
}
