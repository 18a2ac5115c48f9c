//! Shape of one sample of a layer's input or output.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Shape of one sample: the dimensions of a tensor without its batch dimension.
///
/// Images are `channels x height x width`, sequences are `positions x features`, and feature
/// vectors have one dimension.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Shape(Vec<usize>);

impl Shape {
    /// Creates a shape with the given dimensions, outermost first.
    #[must_use]
    pub fn new(dims: impl Into<Vec<usize>>) -> Self {
        Self(dims.into())
    }

    /// Creates the shape of an image, `channels x height x width`.
    #[must_use]
    pub fn image(channels: usize, height: usize, width: usize) -> Self {
        Self(vec![channels, height, width])
    }

    /// Creates the shape of a sequence, `positions x features`.
    #[must_use]
    pub fn sequence(positions: usize, features: usize) -> Self {
        Self(vec![positions, features])
    }

    /// Creates the shape of a vector of `count` features.
    #[must_use]
    pub fn features(count: usize) -> Self {
        Self(vec![count])
    }

    /// Returns the dimensions, outermost first, without the batch.
    #[must_use]
    pub fn dims(&self) -> &[usize] {
        &self.0
    }

    /// Returns the number of elements of one sample: the product of the dimensions, or `usize::MAX`
    /// if it is larger.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.0.iter().copied().fold(1, usize::saturating_mul)
    }

    /// Returns `(channels, height, width)` if the shape has three dimensions, and `None` otherwise.
    #[must_use]
    pub fn as_image(&self) -> Option<(usize, usize, usize)> {
        match self.0[..] {
            [channels, height, width] => Some((channels, height, width)),
            _ => None,
        }
    }

    /// Returns `(positions, features)` if the shape has two dimensions, and `None` otherwise.
    #[must_use]
    pub fn as_sequence(&self) -> Option<(usize, usize)> {
        match self.0[..] {
            [positions, features] => Some((positions, features)),
            _ => None,
        }
    }

    /// Returns the size of the innermost dimension: the features of a vector, or of each position
    /// of a sequence. 0 if the shape has no dimensions.
    #[must_use]
    pub fn innermost(&self) -> usize {
        self.0.last().copied().unwrap_or_default()
    }

    /// Returns whether the shape has at least one dimension, every dimension is positive and their
    /// product fits into a `usize`.
    pub(crate) fn is_valid(&self) -> bool {
        !self.0.is_empty()
            && self.0.iter().try_fold(1usize, |all, &dim| all.checked_mul(dim)).is_some_and(|n| n > 0)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, dim) in self.0.iter().enumerate() {
            write!(f, "{}{dim}", if i == 0 { "" } else { "x" })?;
        }
        Ok(())
    }
}
