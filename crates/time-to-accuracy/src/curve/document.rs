//! The `epoch-curve` file format, `deeppool/epoch-curve/v1`.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Epochs;
use super::check::invalid;
use crate::AccuracyError;

/// An epoch curve as its file has it, not yet checked. Fields that are not listed here are refused.
///
/// ```json
/// {"schema": "deeppool/epoch-curve/v1", "network": "gnmt", "dataset": "WMT16 English-German", "target": "BLEU 24.0",
///  "origin": "published", "source": "MLPerf training v0.6, NVIDIA", "samples_per_epoch": 3975116,
///  "points": [{"batch": 2048, "epochs": 4.1, "epochs_min": 4, "epochs_max": 5, "runs": 10}]}
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EpochCurveDocument {
    /// The format.
    pub schema: CurveSchema,
    /// The network that is trained.
    pub network: String,
    /// What it is trained on.
    pub dataset: String,
    /// The accuracy at which training is done, with its measure, such as `BLEU 24.0`.
    pub target: String,
    /// What kind of figures these are.
    pub origin: Origin,
    /// Where the points come from, so that a reader can look them up or measure them again. Never empty.
    pub source: String,
    /// The licence of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub licence: Option<String>,
    /// What else a reader should know, such as the optimizer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Samples of an epoch, at least 1.
    pub samples_per_epoch: u64,
    /// At least one point, by ascending batch.
    pub points: Vec<EpochPoint>,
}

/// What is known of one global batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EpochPoint {
    /// The global batch, in samples.
    pub batch: usize,
    /// Epochs to the target, the mean over runs.
    pub epochs: f64,
    /// The fewest epochs of a run; beside `epochs_max`, or not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epochs_min: Option<f64>,
    /// The most epochs of a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epochs_max: Option<f64>,
    /// How many runs reached the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<u32>,
    /// How many runs did not reach it; 0 where it is left out. They are not in the mean, which is too low then.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missed: u32,
}

/// What kind of figures a curve has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Others have measured and published them.
    Published,
    /// They were measured here.
    Measured,
    /// A formula gives them.
    Modelled,
    /// They are an assumption, made to see what would follow.
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

/// The name and version of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum CurveSchema {
    /// Version 1.
    #[default]
    #[serde(rename = "deeppool/epoch-curve/v1")]
    V1,
}

impl EpochPoint {
    pub(super) fn epochs(&self) -> Epochs {
        Epochs { mean: self.epochs, range: self.epochs_min.zip(self.epochs_max), missed: self.missed }
    }
}

impl EpochCurveDocument {
    pub(super) fn from_json(text: &str) -> Result<Self, AccuracyError> {
        let deserializer = &mut serde_json::Deserializer::from_str(text);
        let document = serde_path_to_error::deserialize(&mut *deserializer)
            .map_err(|error| invalid(error.path().to_string(), error.inner().to_string()))?;
        deserializer.end().map_err(|error| invalid(".", error.to_string()))?;
        Ok(document)
    }

    pub(super) fn to_json(&self) -> String {
        // Figures were checked to be finite, and strings and integers can always be written.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls it with")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}
