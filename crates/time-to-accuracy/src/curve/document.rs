//! File format `deeppool/epoch-curve/v1`. A *point* of the curve is the number of epochs to the
//! target at one global batch, over one or more training *runs*.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use super::Epochs;
use crate::AccuracyError;

/// Epoch curve as stored in a file. [`EpochCurve::new`](super::EpochCurve::new) validates it.
/// Unknown fields are rejected.
///
/// ```json
/// {"schema": "deeppool/epoch-curve/v1", "network": "gnmt", "dataset": "WMT16 English-German",
///  "target": "BLEU 24.0", "origin": "published", "source": "MLPerf training v0.6, NVIDIA",
///  "samples_per_epoch": 3975116,
///  "points": [{"batch": 2048, "epochs": 4.1, "epochs_min": 4, "epochs_max": 5, "runs": 10}]}
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EpochCurveDocument {
    /// Name and version of the format.
    pub schema: CurveSchema,
    /// Name of the network. Not empty.
    pub network: String,
    /// Name of the data set. Not empty.
    pub dataset: String,
    /// Target accuracy with its measure, such as `BLEU 24.0`. Not empty.
    pub target: String,
    /// Origin of the figures.
    pub origin: Origin,
    /// Publication, or command that measured the points. Not empty.
    pub source: String,
    /// Licence of the source. `None` if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub licence: Option<String>,
    /// Other information, such as the optimizer. `None` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Number of samples of an epoch, at least 1.
    pub samples_per_epoch: u64,
    /// Points of the curve, at least one, by ascending batch.
    pub points: Vec<EpochPoint>,
}

/// Point of a curve: the number of epochs to the target at one global batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EpochPoint {
    /// Global batch, in samples.
    pub batch: usize,
    /// Mean number of epochs to the target, over the runs that reached it.
    pub epochs: f64,
    /// Minimum number of epochs of a run that reached the target. `None` if unknown; given together
    /// with `epochs_max`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "not_null")]
    pub epochs_min: Option<f64>,
    /// Maximum number of epochs of a run that reached the target. `None` if unknown; given together
    /// with `epochs_min`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "not_null")]
    pub epochs_max: Option<f64>,
    /// Number of runs that reached the target, at least 1. `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<u32>,
    /// Number of runs that missed the target, 0 by default. They are not part of the mean, which is
    /// then too low.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missed: u32,
}

/// Origin of the figures of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Published measurements.
    Published,
    /// Measured by the authors of the file.
    Measured,
    /// Computed by a formula.
    Modelled,
    /// Assumed, without a measurement or formula.
    Assumed,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Published => "published",
            Self::Measured => "measured",
            Self::Modelled => "modelled",
            Self::Assumed => "assumed",
        })
    }
}

/// Name and version of the file format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum CurveSchema {
    /// Version 1.
    #[default]
    #[serde(rename = "deeppool/epoch-curve/v1")]
    V1,
}

impl EpochPoint {
    /// Returns the epochs to the target at this point. Their range is `None` unless both ends are
    /// given.
    pub(super) fn epochs(&self) -> Epochs {
        Epochs { mean: self.epochs, range: self.epochs_min.zip(self.epochs_max), missed: self.missed }
    }
}

impl EpochCurveDocument {
    /// Parses a document, without validating its values.
    ///
    /// # Errors
    /// [`AccuracyError::Invalid`] with the path of the field that could not be parsed.
    pub(super) fn from_json(text: &str) -> Result<Self, AccuracyError> {
        // A byte order mark, with which some editors begin a file, is no part of the JSON text.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let deserializer = &mut serde_json::Deserializer::from_str(text);
        let document = serde_path_to_error::deserialize(&mut *deserializer)
            .map_err(|error| AccuracyError::invalid(error.path().to_string(), error.inner().to_string()))?;
        deserializer.end().map_err(|error| AccuracyError::invalid(".", error.to_string()))?;
        Ok(document)
    }

    /// Returns the document as indented JSON with a line break at the end.
    pub(super) fn to_json(&self) -> String {
        // Serialization fails only for figures that are not finite, which validation rejects.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

/// Reads an optional number. `null`, as which some programs write a number that is not finite, is
/// an error and not an omitted field.
fn not_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    f64::deserialize(deserializer).map(Some)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "signature required by serde")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}
