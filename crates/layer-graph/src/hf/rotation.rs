//! Options of rotary embeddings in configurations.

use serde::Deserialize;

use super::invalid;
use crate::{GraphError, RotaryEmbedding, RotaryScaling};

/// Group of options of rotary embeddings: `rope_parameters`, or `rope_scaling` in older files.
#[derive(Deserialize)]
pub(super) struct Rotation {
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<usize>,
    /// Base of the angles.
    pub(super) rope_theta: Option<f64>,
    /// Part of the features of a head that are rotated.
    pub(super) partial_rotary_factor: Option<f64>,
    rope_type: Option<String>,
    /// Older name of `rope_type`. Files may have both.
    #[serde(rename = "type")]
    older_type: Option<String>,
}

impl Rotation {
    /// Sets the change of the angles of a rotary embedding by the first group that has one. Returns
    /// a description of the change if it has no layer.
    pub(super) fn scale(
        groups: [&Option<Self>; 2],
        max_positions: Option<usize>,
        rotary: &mut RotaryEmbedding,
    ) -> Result<Option<String>, GraphError> {
        let mut groups = groups.into_iter().flatten();
        let Some((group, name)) = groups.find_map(|group| Some((group, group.change()?))) else {
            return Ok(None);
        };
        let number = |field: &str, number: Option<f64>| {
            number.ok_or_else(|| invalid(format!("rotary angles of type {name} need a number `{field}`")))
        };
        rotary.scaling = Some(match name {
            "linear" => RotaryScaling::Linear { factor: number("factor", group.factor)? },
            "llama3" => RotaryScaling::Llama3 {
                factor: number("factor", group.factor)?,
                low_frequency_factor: number("low_freq_factor", group.low_freq_factor)?,
                high_frequency_factor: number("high_freq_factor", group.high_freq_factor)?,
                original_positions: group.original_max_position_embeddings.or(max_positions).unwrap_or(2048),
            },
            _ => return Ok(Some(format!("scaled rotary angles ({name})"))),
        });
        Ok(None)
    }

    /// Returns the name of the change of the angles, if it is one.
    fn change(&self) -> Option<&str> {
        let name = self.rope_type.as_ref().or(self.older_type.as_ref());
        name.map(String::as_str).filter(|&name| name != "default")
    }
}
