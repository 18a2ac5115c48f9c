//! The file format of device parameters.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::DeviceParameters;
use crate::{Error, json};

const SCHEMA: &str = "deeppool/device-parameters/v1";

/// A file with the parameters of a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParametersFile {
    schema: String,
    /// The device, and the source of the values.
    pub device: String,
    /// The parameters.
    pub parameters: DeviceParameters,
}

impl ParametersFile {
    /// Creates a file for this device.
    #[must_use]
    pub fn new(device: String, parameters: DeviceParameters) -> Self {
        Self { schema: SCHEMA.to_owned(), device, parameters }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`Error::BadFile`] if it does not exist or has the wrong content; it names the file and the
    /// position.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        json::parse(&path.display().to_string(), &json::read(path)?, SCHEMA)
    }

    /// Returns the file's content.
    #[must_use]
    pub fn to_json(&self) -> String {
        json::shown(self)
    }
}
