//! Hyper-parameters of rotary position embeddings.

use std::f64::consts::TAU;

use serde::{Deserialize, Serialize};

/// Hyper-parameters of a rotary position embedding (Su et al., "`RoFormer`", 2021), which rotates
/// the queries or the keys of each head of an attention by angles that grow with their position.
///
/// Feature *i* of the first half of a head and feature *i* of the second half are rotated by
/// `position * base^(-2 i / width)`, as in Llama. Options rotate a part of a head, pair
/// neighbouring features, or change the angles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RotaryEmbedding {
    /// Number of features of a head: even, and a divisor of the input's features.
    pub width: usize,
    /// Base of the angles, positive: 10,000 in most networks.
    pub base: f64,
    /// Position of the first vector: 0, but for a part of a layer that is split by positions.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub first: usize,
    /// Number of features of a head that are rotated, the first ones, as if they were the whole
    /// head: even, at least 2. By default all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotated: Option<usize>,
    /// Whether features `2 i` and `2 i + 1` are rotated together, as in GPT-J.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interleaved: bool,
    /// Change of the angles for longer sequences than those of the first training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling: Option<RotaryScaling>,
}

/// Change of the angles of a rotary embedding. The angle of a pair of features at position 1 is its
/// *frequency*.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RotaryScaling {
    /// Divides all frequencies (Chen et al., "Extending Context Window of Large Language Models via
    /// Positional Interpolation", 2023).
    Linear {
        /// Divisor, positive.
        factor: f64,
    },
    /// Divides low frequencies, as in Llama 3.1: those with less than `low_frequency_factor` turns
    /// in `original_positions` positions. Frequencies with more than `high_frequency_factor` turns
    /// do not change, and those between are interpolated.
    Llama3 {
        /// Divisor of low frequencies, positive.
        factor: f64,
        /// Number of turns below which frequencies are low, positive.
        low_frequency_factor: f64,
        /// Number of turns above which frequencies are high: more than `low_frequency_factor`.
        high_frequency_factor: f64,
        /// Number of positions of the first training, at least 1.
        original_positions: usize,
    },
}

impl RotaryScaling {
    /// Returns the changed frequency.
    fn apply(&self, frequency: f64) -> f64 {
        match *self {
            Self::Linear { factor } => frequency / factor,
            Self::Llama3 {
                factor,
                low_frequency_factor: low,
                high_frequency_factor: high,
                original_positions,
            } => {
                let turns = original_positions as f64 * frequency / TAU;
                let smooth = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                (1.0 - smooth) * frequency / factor + smooth * frequency
            }
        }
    }

    /// Returns whether the numbers are in their ranges.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let is_positive = |number: f64| number > 0.0 && number.is_normal();
        match *self {
            Self::Linear { factor } => is_positive(factor),
            Self::Llama3 { factor, low_frequency_factor, high_frequency_factor, original_positions } => {
                is_positive(factor)
                    && is_positive(low_frequency_factor)
                    && is_positive(high_frequency_factor)
                    && high_frequency_factor > low_frequency_factor
                    && original_positions > 0
            }
        }
    }
}

impl RotaryEmbedding {
    /// Creates an embedding for heads of `width` features.
    #[must_use]
    pub fn new(width: usize, base: f64) -> Self {
        Self { width, base, first: 0, rotated: None, interleaved: false, scaling: None }
    }

    /// Returns the number of features of a head that are rotated.
    #[must_use]
    pub fn rotated_features(&self) -> usize {
        self.rotated.unwrap_or(self.width)
    }

    /// Returns the angle in radians by which the pair of features with index `pair` is rotated at
    /// position 1.
    #[must_use]
    pub fn frequency(&self, pair: usize) -> f64 {
        let frequency = self.base.powf(-2.0 * pair as f64 / self.rotated_features() as f64);
        self.scaling.map_or(frequency, |scaling| scaling.apply(frequency))
    }

    /// Returns the angle in radians by which the pair of features with index `pair` is rotated at a
    /// row of the input.
    #[must_use]
    pub fn angle(&self, row: usize, pair: usize) -> f64 {
        (self.first as f64 + row as f64) * self.frequency(pair)
    }
}
