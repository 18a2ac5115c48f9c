//! Accuracy of a device model, as recorded with it and with the tables that it predicts.

use serde::{Deserialize, Deserializer, Serialize, de};

/// Maximum relative error in a document. Times from nanoseconds to days differ by less.
const MAX_ERROR: f64 = 1e15;

/// Accuracy of a [`DeviceModel`](crate::DeviceModel) compared with measurements. `Display` gives a
/// one-line summary.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelAccuracy {
    /// Origin of the model as free text, such as `fitted to the published times of three networks`.
    pub basis: String,
    /// Errors of the predictions on measurements, `seen` in JSON. `None` if the model was never
    /// compared with measurements.
    #[serde(rename = "seen", default, skip_serializing_if = "Option::is_none")]
    pub errors: Option<ErrorSummary>,
}

/// Relative errors of predicted times, as absolute values. 0.1 is an error of 10%, too long or too
/// short.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorSummary {
    /// Median error of the time of a layer, over all layers and measured batch sizes of the
    /// networks that the model was fitted to. Layers that were measured together count as one.
    #[serde(deserialize_with = "relative_error")]
    pub layers_median: f64,
    /// Maximum error of the time of a whole network, over the networks that the model was fitted to
    /// and their measured batch sizes.
    #[serde(rename = "networks_worst", deserialize_with = "relative_error")]
    pub networks_max: f64,
    /// Maximum error of the time of a whole network in cross-validation. Each network is predicted
    /// by a model fitted to the other networks. A single network has its layer shapes divided into
    /// five parts, and each part is predicted by a model fitted to the other four. `None` if there
    /// was no cross-validation, because there is a single shape or the errors are not recorded.
    #[serde(rename = "held_out_worst", default, deserialize_with = "optional_error")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_out_max: Option<f64>,
}

fn relative_error<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    checked(f64::deserialize(from)?)
}

fn optional_error<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    Option::<f64>::deserialize(from)?.map(checked).transpose()
}

fn checked<E: de::Error>(error: f64) -> Result<f64, E> {
    if (0.0..=MAX_ERROR).contains(&error) {
        return Ok(error);
    }
    Err(E::custom(format!("expected a relative error such as 0.1, from 0 to 1e15, found {error:e}")))
}

impl std::fmt::Display for ModelAccuracy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Rounded up, except for differences below a tenth of a percent.
        let percent = |error: f64| ((1e3 * error).round() / 10.0).ceil();
        match self.errors {
            Some(errors) => {
                let held_out = errors.held_out_max.map_or_else(
                    || "not cross-validated: too few layers".into(),
                    |error| format!("{}% when left out of the fit", percent(error)),
                );
                write!(
                    f,
                    "{}: on these, whole networks within {}% ({held_out}), layers {}% median",
                    self.basis,
                    percent(errors.networks_max),
                    percent(errors.layers_median),
                )
            }
            None => write!(f, "{}, not checked against measurements", self.basis),
        }
    }
}
