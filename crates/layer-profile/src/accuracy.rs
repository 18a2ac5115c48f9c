//! Accuracy of a device model, as recorded with it and with the tables that it predicts.

use layer_graph::{LayerGraph, LayerKind};
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
    /// Errors on whole iterations that the model was not fitted to, by family of networks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_out: Vec<HeldOutErrors>,
}

/// Family of networks whose times are predicted about equally well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkFamily {
    /// Networks with convolutions and without attention.
    Convolutional,
    /// Networks with attention.
    Transformer,
    /// Other networks, such as recurrent ones.
    Other,
}

impl NetworkFamily {
    /// Returns the family of a network.
    #[must_use]
    pub fn of(network: &LayerGraph) -> Self {
        let has = |is: fn(&LayerKind) -> bool| network.layers().any(|(_, layer)| is(layer.kind()));
        if has(|kind| matches!(kind, LayerKind::MultiHeadAttention(_))) {
            Self::Transformer
        } else if has(LayerKind::is_convolution) {
            Self::Convolutional
        } else {
            Self::Other
        }
    }

    /// Returns the name of the family in text.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Convolutional => "convolutional networks",
            Self::Transformer => "transformers",
            Self::Other => "other networks",
        }
    }
}

/// Relative errors of predicted iterations that a model was not fitted to: the factor by which a
/// time is too long or too short, minus 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldOutErrors {
    /// Family of the networks.
    pub family: NetworkFamily,
    /// Number of iterations, on any number of GPUs.
    pub iterations: usize,
    /// Minimum and maximum number of samples on a GPU.
    pub samples: [usize; 2],
    /// Median error.
    #[serde(deserialize_with = "relative_error")]
    pub median: f64,
    /// Error that nine tenths of the iterations do not exceed.
    #[serde(deserialize_with = "relative_error")]
    pub nine_tenths: f64,
}

/// Range of a predicted time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PredictionRange {
    /// Relative error that nine tenths of the checked iterations do not exceed: the time lies
    /// between the prediction divided by `1 + error` and multiplied by it.
    pub error: f64,
    /// Whether iterations of the family, with as many samples on a GPU, were checked. Otherwise the
    /// error is that of other iterations.
    pub is_checked: bool,
}

impl ModelAccuracy {
    /// Returns the range of a predicted iteration of a network with the given number of samples on
    /// a GPU. `None` if the model was never compared with measurements.
    #[must_use]
    pub fn range(&self, network: &LayerGraph, samples: usize) -> Option<PredictionRange> {
        let family = NetworkFamily::of(network);
        let is_like = |errors: &&HeldOutErrors| {
            let [min, max] = errors.samples;
            errors.family == family && (min..=max).contains(&samples)
        };
        if let Some(checked) = self.held_out.iter().find(is_like) {
            return Some(PredictionRange { error: checked.nine_tenths, is_checked: true });
        }
        let error = self.held_out.iter().map(|errors| errors.nine_tenths).reduce(f64::max);
        let error = error.or_else(|| {
            self.errors.map(|errors| errors.held_out_max.unwrap_or(0.0).max(errors.networks_max))
        })?;
        Some(PredictionRange { error, is_checked: false })
    }
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
        f.write_str(&self.basis)?;
        let held_out = self.held_out.iter().map(|errors| {
            let HeldOutErrors { family, iterations, samples: [min, max], median, nine_tenths } = errors;
            format!(
                "{} within {}% (median {}%; {iterations} iterations of {min} to {max} samples a GPU)",
                family.label(),
                percent(*nine_tenths),
                percent(*median),
            )
        });
        let held_out: Vec<String> = held_out.collect();
        if !held_out.is_empty() {
            return write!(f, "; nine tenths of what it was not fitted to: {}", held_out.join(", "));
        }
        match self.errors {
            Some(errors) => {
                let left_out = errors.held_out_max.map_or_else(
                    || "not cross-validated: too few layers".into(),
                    |error| format!("{}% when left out of the fit", percent(error)),
                );
                write!(
                    f,
                    ": on these, whole networks within {}% ({left_out}), layers {}% median",
                    percent(errors.networks_max),
                    percent(errors.layers_median),
                )
            }
            None => f.write_str(", not checked against measurements"),
        }
    }
}
