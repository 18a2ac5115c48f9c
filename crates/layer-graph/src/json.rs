//! Reader and writer of the `graph` format.
//!
//! `{"schema": "deeppool/graph/v1", "name", "input": [3, 224, 224], "further_inputs": [{"name",
//! "shape"}], "layers": [{"name", "op", "inputs": ["..."], "parameters_of": "...", "loss_weight":
//! 0.4}]}`
//!
//! `input` is the shape of the first input, which layers call `input`. `further_inputs` is omitted
//! if there are none. `op` is a [`LayerKind`]. Layers are in topological order. `parameters_of`
//! names the earlier layer that owns the parameters; it is omitted for layers with parameters of
//! their own. `loss_weight` is the factor of a loss in the sum of losses; it is omitted if it is 1.

use serde::{Deserialize, Serialize};

use crate::{GraphError, LayerGraph, LayerId, LayerKind, Shape};

const SCHEMA: &str = "deeppool/graph/v1";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GraphDocument {
    schema: String,
    name: String,
    input: Shape,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    further_inputs: Vec<InputDocument>,
    layers: Vec<LayerDocument>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct InputDocument {
    name: String,
    shape: Shape,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LayerDocument {
    name: String,
    op: LayerKind,
    inputs: Vec<String>,
    /// Owner of the parameters, if it is another layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parameters_of: Option<String>,
    /// Factor of a loss in the sum of losses, if it is not 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    loss_weight: Option<f64>,
}

impl LayerGraph {
    /// Serialises this network as a JSON document of format `deeppool/graph/v1`.
    #[must_use]
    pub fn to_json(&self) -> String {
        let name_of = |id: LayerId| self.layer(id).name().to_owned();
        let layers = self.computing_layers().map(|(id, layer)| LayerDocument {
            name: layer.name().to_owned(),
            op: layer.kind().clone(),
            inputs: self.producers(id).into_iter().map(name_of).collect(),
            parameters_of: Some(self.parameter_owner(id)).filter(|&owner| owner != id).map(name_of),
            loss_weight: Some(layer.loss_weight()).filter(|&weight| weight.to_bits() != 1f64.to_bits()),
        });
        let document = GraphDocument {
            schema: SCHEMA.into(),
            name: self.name().into(),
            input: self.layer(self.input()).output_shape().clone(),
            further_inputs: self
                .inputs()
                .skip(1)
                .map(|id| InputDocument { name: name_of(id), shape: self.layer(id).output_shape().clone() })
                .collect(),
            layers: layers.collect(),
        };
        // Serialisation cannot fail: shape inference rejects non-finite numbers.
        serde_json::to_string_pretty(&document).unwrap_or_default()
    }

    /// Parses a JSON document of format `deeppool/graph/v1`.
    ///
    /// # Errors
    /// [`GraphError::Json`] with the path inside the document if it is not of this format, or the
    /// error of [`new`](Self::new), [`add_input`](Self::add_input), [`add`](Self::add),
    /// [`add_tied`](Self::add_tied) or [`set_loss_weight`](Self::set_loss_weight) for the first
    /// layer that cannot be added.
    pub fn from_json(text: &str) -> Result<Self, GraphError> {
        // A byte order mark, with which some editors begin a file, is no part of the JSON text.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let deserializer = &mut serde_json::Deserializer::from_str(text);
        let invalid = |path: String, problem: String| GraphError::Json { path, problem };
        let document: GraphDocument = serde_path_to_error::deserialize(&mut *deserializer)
            .map_err(|error| invalid(error.path().to_string(), error.inner().to_string()))?;
        deserializer.end().map_err(|error| invalid(".".into(), error.to_string()))?;
        if document.schema != SCHEMA {
            let problem = format!("expected `{SCHEMA}`, found `{}`", document.schema);
            return Err(invalid("schema".into(), problem));
        }
        let mut network = Self::new(document.name, document.input)?;
        for input in document.further_inputs {
            network.add_input(input.name, input.shape)?;
        }
        for layer in document.layers {
            let find = |earlier: &String| {
                let unknown =
                    || GraphError::UnknownInput { layer: layer.name.clone(), input: earlier.clone() };
                network.find(earlier).ok_or_else(unknown)
            };
            let inputs = layer.inputs.iter().map(find).collect::<Result<Vec<LayerId>, _>>()?;
            let id = match layer.parameters_of.as_ref().map(find).transpose()? {
                Some(owner) => network.add_tied(layer.name.as_str(), layer.op, inputs, owner)?,
                None => network.add(layer.name.as_str(), layer.op, inputs)?,
            };
            if let Some(weight) = layer.loss_weight {
                network.set_loss_weight(id, weight)?;
            }
        }
        Ok(network)
    }
}
