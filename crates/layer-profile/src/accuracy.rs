//! Accuracy of a device model, as recorded with it and with the tables that it predicts.

use serde::{Deserialize, Serialize};

/// Accuracy of a [`DeviceModel`](crate::DeviceModel) compared with measurements. `Display` gives a
/// one-line summary.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelAccuracy {
    /// Origin of the model as free text, such as `fitted to the published times of three networks`.
    pub basis: String,
    /// Errors of predictions that were compared with measurements; `None` if none were compared.
    #[serde(rename = "seen", default, skip_serializing_if = "Option::is_none")]
    pub errors: Option<ErrorSummary>,
}

/// Relative errors of predicted times, absolute values. 0.1 is 10%.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorSummary {
    /// Median over the layers and batch sizes of the networks that the model was fitted to. Layers
    /// that were measured together count as one.
    pub layers_median: f64,
    /// Maximum over the whole networks that the model was fitted to, at any measured batch size.
    pub networks_worst: f64,
    /// Maximum over whole networks in cross-validation, where each network in turn is left out of
    /// the fit. With a single network, a fifth of its layer shapes is left out at a time. `None` if
    /// there was too little data to leave any out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_out_worst: Option<f64>,
}

impl std::fmt::Display for ModelAccuracy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Rounded up, except for differences below a tenth of a percent.
        let percent = |error: f64| ((1e3 * error).round() / 10.0).ceil();
        match self.errors {
            Some(errors) => {
                let held_out = errors.held_out_worst.map_or_else(
                    || "not cross-validated: too few layers".into(),
                    |worst| format!("{}% when left out of the fit", percent(worst)),
                );
                write!(
                    f,
                    "{}: on these, whole networks within {}% ({held_out}), layers {}% median",
                    self.basis,
                    percent(errors.networks_worst),
                    percent(errors.layers_median),
                )
            }
            None => write!(f, "{}, not checked against measurements", self.basis),
        }
    }
}
