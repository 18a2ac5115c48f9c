//! The `profile` file format, `deeppool/profile/v1`. Times are microseconds.

use std::path::Path;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::files::{load, save};
use crate::table::invalid;
use crate::time::Spread;
use crate::{
    BatchTime, LayerProfile, LayerTime, ModelAccuracy, NetworkTime, Origin, ProfileError, ProfileTable,
};

const SCHEMA: &str = "deeppool/profile/v1";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileDocument {
    schema: String,
    model: String,
    device: String,
    origin: Origin,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    accuracy: Option<ModelAccuracy>,
    layers: Vec<LayerDocument>,
    network: Vec<NetworkDocument>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LayerDocument {
    name: String,
    kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    update_us: Option<Microseconds>,
    times: Vec<BatchDocument>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchDocument {
    batch: usize,
    forward_us: Microseconds,
    backward_us: Microseconds,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    forward_mad_us: Option<Microseconds>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    backward_mad_us: Option<Microseconds>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NetworkDocument {
    batch: usize,
    forward_us: Microseconds,
    backward_us: Microseconds,
    update_us: Microseconds,
}

/// A duration that a JSON document holds as a number of microseconds, to the nanosecond.
#[derive(Clone, Copy)]
struct Microseconds(Duration);

impl Serialize for Microseconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0.as_nanos() as f64 / 1e3)
    }
}

impl<'de> Deserialize<'de> for Microseconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = f64::deserialize(deserializer)?;
        let duration = Duration::try_from_secs_f64(value / 1e6).map_err(|_| {
            D::Error::custom(format!("expected a time in microseconds, not negative, found {value}"))
        })?;
        Ok(Self(duration))
    }
}

impl BatchDocument {
    fn new(row: &BatchTime) -> Self {
        Self {
            batch: row.batch,
            forward_us: Microseconds(row.forward),
            backward_us: Microseconds(row.backward),
            forward_mad_us: row.spread.map(|spread| Microseconds(spread.forward)),
            backward_mad_us: row.spread.map(|spread| Microseconds(spread.backward)),
        }
    }

    fn into_row(self, path: &str) -> Result<BatchTime, ProfileError> {
        let spread = match (self.forward_mad_us, self.backward_mad_us) {
            (None, None) => None,
            (Some(forward), Some(backward)) => Some(Spread { forward: forward.0, backward: backward.0 }),
            _ => {
                return Err(invalid(path, "expected both or none of `forward_mad_us` and `backward_mad_us`"));
            }
        };
        Ok(BatchTime { batch: self.batch, forward: self.forward_us.0, backward: self.backward_us.0, spread })
    }
}

impl NetworkDocument {
    fn new(row: &NetworkTime) -> Self {
        Self {
            batch: row.batch,
            forward_us: Microseconds(row.time.forward),
            backward_us: Microseconds(row.time.backward),
            update_us: Microseconds(row.time.update),
        }
    }

    fn into_row(self) -> NetworkTime {
        let time =
            LayerTime { forward: self.forward_us.0, backward: self.backward_us.0, update: self.update_us.0 };
        NetworkTime { batch: self.batch, time }
    }
}

impl ProfileTable {
    /// This table as a JSON document of the format `deeppool/profile/v1`.
    #[must_use]
    pub fn to_json(&self) -> String {
        let layers = self.layers().iter().map(|layer| LayerDocument {
            name: layer.name.clone(),
            kind: layer.kind.clone(),
            update_us: layer.update.map(Microseconds),
            times: layer.times.iter().map(BatchDocument::new).collect(),
        });
        let document = ProfileDocument {
            schema: SCHEMA.into(),
            model: self.model().into(),
            device: self.device().into(),
            origin: self.origin(),
            accuracy: self.accuracy().cloned(),
            layers: layers.collect(),
            network: self.network().iter().map(NetworkDocument::new).collect(),
        };
        // Strings, integers and finite floats always serialise.
        serde_json::to_string_pretty(&document).unwrap_or_default()
    }

    /// Reads a JSON document of the format `deeppool/profile/v1`.
    ///
    /// # Errors
    /// [`ProfileError::Invalid`] with the path inside the document and what was expected there.
    pub fn from_json(text: &str) -> Result<Self, ProfileError> {
        let deserializer = &mut serde_json::Deserializer::from_str(text);
        let document: ProfileDocument = serde_path_to_error::deserialize(deserializer)
            .map_err(|error| invalid(error.path().to_string(), error.inner().to_string()))?;
        if document.schema != SCHEMA {
            let problem = format!("expected `{SCHEMA}`, found `{}`", document.schema);
            return Err(invalid("schema", problem));
        }
        let mut layers = Vec::with_capacity(document.layers.len());
        for (i, layer) in document.layers.into_iter().enumerate() {
            let rows = layer.times.into_iter().enumerate();
            let times = rows.map(|(j, row)| row.into_row(&format!("layers[{i}].times[{j}]")));
            layers.push(LayerProfile {
                name: layer.name,
                kind: layer.kind,
                update: layer.update_us.map(|update| update.0),
                times: times.collect::<Result<_, _>>()?,
            });
        }
        let network = document.network.into_iter().map(NetworkDocument::into_row).collect();
        let table = Self::new(document.model, document.device, document.origin, layers, network)?;
        Ok(match document.accuracy {
            Some(accuracy) => table.with_accuracy(accuracy),
            None => table,
        })
    }

    /// Writes [`to_json`](Self::to_json) to a file, whole or not at all: a file that is there stays as it is until the
    /// new one is complete.
    ///
    /// # Errors
    /// [`ProfileError::File`] when the folder does not exist or cannot be written to.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), ProfileError> {
        save(path.as_ref(), &self.to_json())
    }

    /// Reads a file that [`save`](Self::save) wrote.
    ///
    /// # Errors
    /// [`ProfileError::File`] that names the file and what is wrong in it.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ProfileError> {
        load(path.as_ref(), Self::from_json)
    }
}
