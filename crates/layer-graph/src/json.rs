//! The `graph` file format: `{"schema": "deeppool/graph/v1", "name", "input": [3, 224, 224], "layers":
//! [{"name", "op", "inputs": ["..."]}]}`, where `op` is a [`LayerKind`] and the layers stand in topological order.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{GraphError, LayerGraph, LayerId, LayerKind, Shape};

const SCHEMA: &str = "deeppool/graph/v1";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GraphDocument {
    schema: String,
    name: String,
    input: Shape,
    layers: Vec<LayerDocument>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LayerDocument {
    name: String,
    op: LayerKind,
    inputs: Vec<String>,
}

impl LayerGraph {
    /// This network as a JSON document of the format `deeppool/graph/v1`.
    #[must_use]
    pub fn to_json(&self) -> String {
        let name_of = |id: LayerId| self.layer(id).name().to_owned();
        let layers = self.layers().skip(1).map(|(id, layer)| LayerDocument {
            name: layer.name().to_owned(),
            op: layer.kind().clone(),
            inputs: self.producers(id).into_iter().map(name_of).collect(),
        });
        let document = GraphDocument {
            schema: SCHEMA.into(),
            name: self.name().into(),
            input: self.layer(self.input()).output_shape().clone(),
            layers: layers.collect(),
        };
        // Strings, integers and finite floats always serialise; inference has refused the others.
        serde_json::to_string_pretty(&document).unwrap_or_default()
    }

    /// Reads a JSON document of the format `deeppool/graph/v1`.
    ///
    /// # Errors
    /// [`GraphError::Json`] with the path inside the document, or what is wrong with the network it describes.
    pub fn from_json(text: &str) -> Result<Self, GraphError> {
        let deserializer = &mut serde_json::Deserializer::from_str(text);
        let document: GraphDocument = serde_path_to_error::deserialize(deserializer).map_err(|error| {
            GraphError::Json { path: error.path().to_string(), problem: error.inner().to_string() }
        })?;
        if document.schema != SCHEMA {
            let problem = format!("expected `{SCHEMA}`, found `{}`", document.schema);
            return Err(GraphError::Json { path: "schema".into(), problem });
        }
        let mut network = Self::new(document.name, document.input)?;
        for layer in document.layers {
            let inputs: Result<Vec<LayerId>, GraphError> = layer
                .inputs
                .iter()
                .map(|input| {
                    let unknown =
                        || GraphError::UnknownInput { layer: layer.name.clone(), input: input.clone() };
                    network.find(input).ok_or_else(unknown)
                })
                .collect();
            network.add(layer.name.as_str(), layer.op, inputs?)?;
        }
        Ok(network)
    }

    /// Writes [`to_json`](Self::to_json) to a file.
    ///
    /// # Errors
    /// [`GraphError::File`] when the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), GraphError> {
        let path = path.as_ref();
        std::fs::write(path, self.to_json())
            .map_err(|error| GraphError::File { path: path.into(), problem: error.to_string() })
    }

    /// Reads a file that [`save`](Self::save) wrote.
    ///
    /// # Errors
    /// [`GraphError::File`] that names the file and what is wrong in it.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, GraphError> {
        let path = path.as_ref();
        let in_file = |problem: String| GraphError::File { path: path.into(), problem };
        let text = std::fs::read_to_string(path).map_err(|error| in_file(error.to_string()))?;
        Self::from_json(&text).map_err(|error| in_file(error.to_string()))
    }
}
