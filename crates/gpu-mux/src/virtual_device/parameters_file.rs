//! The file format of device parameters.

use serde::{Deserialize, Serialize};

use super::DeviceParameters;
use crate::{Error, json};

const SCHEMA: &str = "deeppool/device-parameters/v1";

/// Contents of a file with the parameters of a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParametersFile {
    schema: String,
    /// Name of the device, and the source of the values.
    pub device: String,
    /// Parameters of the device.
    pub parameters: DeviceParameters,
    /// Duration of kernels on the device divided by their duration in workloads, from 0.001 to
    /// 1000. See [`Workload::with_kernel_times`](crate::Workload::with_kernel_times). 1 if the
    /// field is missing.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub kernel_time: f64,
}

fn one() -> f64 {
    1.0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_one(factor: &f64) -> bool {
    factor.to_bits() == 1.0_f64.to_bits()
}

impl ParametersFile {
    /// Creates the contents of a file for the device with this name, with kernels that take the
    /// times of the workload.
    #[must_use]
    pub fn new(device: String, parameters: DeviceParameters) -> Self {
        Self { schema: SCHEMA.to_owned(), device, parameters, kernel_time: one() }
    }

    /// Reads a JSON document of the format `deeppool/device-parameters/v1`.
    ///
    /// # Errors
    /// [`Error::BadDocument`] with the position in the document, also if a parameter is outside its
    /// range.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let file: Self = json::parse(text, SCHEMA)?;
        let in_range = file.parameters.hardware(true);
        in_range.map_err(|error| Error::BadDocument { reason: format!("parameters: {error}") })?;
        if !(1e-3..=1e3).contains(&file.kernel_time) {
            let reason = format!("kernel_time is {}, expected from 0.001 to 1000", file.kernel_time);
            return Err(Error::BadDocument { reason });
        }
        Ok(file)
    }

    /// Returns the JSON document that [`from_json`](Self::from_json) reads.
    #[must_use]
    pub fn to_json(&self) -> String {
        json::to_text(self)
    }
}
