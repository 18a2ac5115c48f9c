//! Reader and writer of the `profile` file format, `deeppool/profile/v1`. Times are in
//! microseconds.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::rows::{LayerDocument, NetworkDocument, SumDocument};
use crate::table::invalid;
use crate::{
    ContendedTimes, MeasurementConditions, ModelAccuracy, NetworkTime, Origin, ProfileError, ProfileTable,
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    measurement: Option<MeasurementConditions>,
    layers: Vec<LayerDocument>,
    network: Vec<NetworkDocument>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    contended: Option<ContendedDocument>,
    /// Times of parts of split layers, each with the layer's name and the part's structure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    parts: Vec<LayerDocument>,
}

/// JSON form of [`ContendedTimes`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ContendedDocument {
    ranks: usize,
    jitter: f64,
    layers: Vec<LayerDocument>,
}

impl ContendedDocument {
    fn into_times(self) -> Result<ContendedTimes, ProfileError> {
        let rows = self.layers.into_iter().enumerate();
        let layers = rows.map(|(i, layer)| layer.into_row(&format!("contended.layers[{i}]")));
        ContendedTimes::new(self.ranks, self.jitter, layers.collect::<Result<_, _>>()?)
    }
}

impl ProfileTable {
    /// Serialises the table as a JSON document of format `deeppool/profile/v1`.
    #[must_use]
    pub fn to_json(&self) -> String {
        let network = self.network().iter().map(|row| {
            let mut document = NetworkDocument::new(row);
            if self.measurement.is_some() {
                document.sum_of_layers = self.sum_of_layers(row.batch).ok().map(SumDocument::new);
            }
            document
        });
        let document = ProfileDocument {
            schema: SCHEMA.into(),
            model: self.model().into(),
            device: self.device().into(),
            origin: self.origin(),
            accuracy: self.accuracy().cloned(),
            measurement: self.measurement.clone(),
            layers: self.layers().iter().map(LayerDocument::new).collect(),
            network: network.collect(),
            contended: self.contended().map(|contended| ContendedDocument {
                ranks: contended.ranks(),
                jitter: contended.jitter(),
                layers: contended.layers().iter().map(LayerDocument::new).collect(),
            }),
            parts: self.parts().map(LayerDocument::new).collect(),
        };
        // Serialisation of strings, integers and finite floats cannot fail.
        serde_json::to_string_pretty(&document).unwrap_or_default()
    }

    /// Parses a JSON document of format `deeppool/profile/v1`.
    ///
    /// # Errors
    /// [`ProfileError::Invalid`] with the path inside the document and a description of the
    /// expected content.
    pub fn from_json(text: &str) -> Result<Self, ProfileError> {
        let document: ProfileDocument = parse(text, invalid)?;
        if document.schema != SCHEMA {
            let problem = format!("expected `{SCHEMA}`, found `{}`", document.schema);
            return Err(invalid("schema", problem));
        }
        let rows = |of: &str, documents: Vec<LayerDocument>| {
            let rows = documents.into_iter().enumerate();
            rows.map(|(i, row)| row.into_row(&format!("{of}[{i}]"))).collect::<Result<Vec<_>, _>>()
        };
        let layers = rows("layers", document.layers)?;
        let (mut network, mut sums) = (Vec::new(), Vec::new());
        for (i, mut row) in document.network.into_iter().enumerate() {
            let path = format!("network[{i}]");
            sums.extend(row.sum_of_layers.take().map(|sum| (format!("{path}.sum_of_layers"), i, sum)));
            network.push(row.into_row(&path)?);
        }
        let mut table = Self::new(document.model, document.device, document.origin, layers, network)?;
        table.accuracy = document.accuracy;
        table.measurement = document.measurement;
        if let Some(contended) = document.contended {
            table = table.with_contended(contended.into_times()?)?;
        }
        table = table.with_parts(rows("parts", document.parts)?)?;
        for (path, row, sum) in sums {
            let NetworkTime { batch, .. } = table.network()[row];
            let expected = table.sum_of_layers(batch);
            sum.check(&path, expected.map_err(|error| invalid(&path, error.to_string()))?)?;
        }
        Ok(table)
    }
}

/// Parses a document. `invalid` makes an error from the path of an invalid field and the problem.
///
/// # Errors
/// That of `invalid`, if the text is not JSON or lacks the fields of the document.
pub(crate) fn parse<T: DeserializeOwned>(
    text: &str,
    invalid: impl FnOnce(String, String) -> ProfileError,
) -> Result<T, ProfileError> {
    // A byte order mark, with which some editors begin a file, is no part of the JSON text.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let deserializer = &mut serde_json::Deserializer::from_str(text);
    let parsed = serde_path_to_error::deserialize(&mut *deserializer)
        .map_err(|error| (error.path().to_string(), error.inner().to_string()))
        .and_then(|value| match deserializer.end() {
            Ok(()) => Ok(value),
            Err(error) => Err((".".into(), error.to_string())),
        });
    parsed.map_err(|(path, problem)| invalid(path, problem))
}
