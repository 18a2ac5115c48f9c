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
}

impl ParametersFile {
    /// Creates the contents of a file for the device with this name.
    #[must_use]
    pub fn new(device: String, parameters: DeviceParameters) -> Self {
        Self { schema: SCHEMA.to_owned(), device, parameters }
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
        Ok(file)
    }

    /// Returns the JSON document that [`from_json`](Self::from_json) reads.
    #[must_use]
    pub fn to_json(&self) -> String {
        json::to_text(self)
    }
}
