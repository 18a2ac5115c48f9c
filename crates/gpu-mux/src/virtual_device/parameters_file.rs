//! The file that holds a device's parameters.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::DeviceParameters;
use crate::{Error, json};

const SCHEMA: &str = "deeppool/device-parameters/v1";

/// The parameters of a device in a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParametersFile {
    schema: String,
    /// Which device, and where the figures are from.
    pub device: String,
    /// The figures.
    pub parameters: DeviceParameters,
}

impl ParametersFile {
    /// The parameters of this device.
    #[must_use]
    pub fn new(device: String, parameters: DeviceParameters) -> Self {
        Self { schema: SCHEMA.to_owned(), device, parameters }
    }

    /// Reads a file.
    ///
    /// [`Error::BadFile`] when there is none or it holds something else: it names the file and the place in it.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        json::parse(&path.display().to_string(), &json::read(path)?, SCHEMA)
    }

    /// The file's content.
    #[must_use]
    pub fn to_json(&self) -> String {
        json::shown(self)
    }
}
