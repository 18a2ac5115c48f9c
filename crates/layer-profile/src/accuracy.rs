use serde::{Deserialize, Serialize};

/// How far a [`DeviceModel`](crate::DeviceModel) is from measurements. Its text says so in half a line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelAccuracy {
    /// Where the model comes from, such as `fitted to the published times of three networks`.
    pub basis: String,
    /// The errors of predictions that were compared with measurements; `None` where none were compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<SeenErrors>,
}

/// Relative errors of predicted times: 0.1 is 10%.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeenErrors {
    /// The median over the layers of the networks that the model was fitted to.
    pub layers_median: f64,
    /// The largest over whole networks that the model was fitted to, at any batch size.
    pub networks_worst: f64,
    /// The largest over whole networks that were left out, each in turn, of the measurements that a model was fitted to;
    /// with one network alone, where its layers were left out, a fifth of their shapes at a time. `None` where there was too
    /// little to leave any out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_out_worst: Option<f64>,
}

impl std::fmt::Display for ModelAccuracy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Rounded up, but for what does not show in a tenth of a per cent.
        let percent = |error: f64| ((1e3 * error).round() / 10.0).ceil();
        match self.seen {
            Some(seen) => {
                let held_out = seen.held_out_worst.map_or_else(
                    || "not cross-validated: too few layers".into(),
                    |worst| format!("{}% when left out of the fit", percent(worst)),
                );
                write!(
                    f,
                    "{}: on these, whole networks within {}% ({held_out}), layers {}% median",
                    self.basis,
                    percent(seen.networks_worst),
                    percent(seen.layers_median),
                )
            }
            None => write!(f, "{}, not checked against measurements", self.basis),
        }
    }
}
