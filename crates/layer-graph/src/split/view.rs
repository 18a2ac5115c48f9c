//! Views of tensors, of which the units or the positions are divided.

use std::ops::Range;

use super::Values;
use crate::TensorBox;

/// View of one sample of a tensor as a row-major array of `outer` x `units` x `inner` elements, of
/// which the units, or the positions, are divided over the parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TensorView {
    /// Number of positions of a sequence, a divisor of `outer`; 1 for other tensors.
    pub positions: usize,
    /// Size of the outermost dimension.
    pub outer: usize,
    /// Number of units, the maximum number of ranges of them. A unit is a feature, a channel or a
    /// head.
    pub units: usize,
    /// Number of consecutive elements of a unit.
    pub inner: usize,
}

impl TensorView {
    /// Returns the dimension of a tensor with the dimensions `dims` that is divided if the units
    /// are: the part with some of the units has the same dimensions but for this one. `None` if
    /// there is no such dimension.
    #[must_use]
    pub fn divided_dim(&self, dims: &[usize]) -> Option<usize> {
        let mut before = 1;
        for (index, &dim) in dims.iter().enumerate() {
            if self.outer % before == 0 && dim % (self.outer / before * self.units) == 0 {
                return Some(index);
            }
            before *= dim;
        }
        None
    }

    /// Returns the view of a tensor of the given number of elements that cannot be divided: it has
    /// one unit.
    #[must_use]
    pub fn undivided(elements: usize) -> Self {
        Self { positions: 1, outer: 1, units: 1, inner: elements }
    }

    /// Returns the units of a part. The units are divided as evenly as possible; the first parts
    /// have one more if the number of parts does not divide them. `parts` is at least 1 and `index`
    /// less than it.
    #[must_use]
    pub fn part(self, parts: usize, index: usize) -> Range<usize> {
        even_range(self.units, parts, index)
    }

    /// Returns the positions of a part, as [`part`](Self::part) does for units.
    #[must_use]
    pub fn position_part(self, parts: usize, index: usize) -> Range<usize> {
        even_range(self.positions, parts, index)
    }

    /// Returns the number of elements of a part of a tensor with these values.
    #[must_use]
    pub fn part_elements(self, values: Values, parts: usize, index: usize) -> usize {
        match values {
            Values::Copies | Values::Addends => self.elements(),
            Values::Ranges => self.elements() / self.units * self.part(parts, index).len(),
            Values::Positions => self.elements() / self.positions * self.position_part(parts, index).len(),
        }
    }

    /// Returns the box of the elements of the given units.
    #[must_use]
    pub fn range(self, units: Range<usize>) -> TensorBox {
        TensorBox {
            dims: vec![self.outer, self.units, self.inner],
            ranges: vec![0..self.outer, units, 0..self.inner],
        }
    }

    /// Returns the box of the elements of the given positions.
    #[must_use]
    pub fn position_range(self, positions: Range<usize>) -> TensorBox {
        let of_position = self.elements() / self.positions;
        TensorBox { dims: vec![self.positions, of_position], ranges: vec![positions, 0..of_position] }
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn elements(self) -> usize {
        self.outer * self.units * self.inner
    }
}

/// Returns a part of `count` things that are divided as evenly as possible. The first parts have
/// one more if the number of parts does not divide them.
pub(super) fn even_range(count: usize, parts: usize, index: usize) -> Range<usize> {
    let (size, longer) = (count / parts, count % parts);
    let start = |index: usize| index * size + index.min(longer);
    start(index)..start(index + 1)
}
