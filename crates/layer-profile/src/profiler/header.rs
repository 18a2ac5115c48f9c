//! First line of a journal, the file in which the profiler records finished measurements.

use std::collections::BTreeMap;

use layer_graph::{Layer, LayerGraph};
use serde::{Deserialize, Serialize};

use crate::{LayerProfile, structure};

const SCHEMA: &str = "deeppool/profile-journal/v1";

/// First line of a journal: the conditions that must be unchanged for a profile to be resumed.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JournalHeader {
    schema: String,
    model: String,
    device: String,
    profiler: String,
    libraries: BTreeMap<String, String>,
    precision: String,
    repeats: usize,
    batches: Vec<usize>,
    layers: Vec<LayerHeader>,
    /// Parts of split layers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    parts: Vec<LayerHeader>,
}

#[derive(PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LayerHeader {
    name: String,
    structure: String,
}

impl JournalHeader {
    /// Creates the header of a run over `network` and parts of its layers on the device of this
    /// name, at the given batch sizes. The input layer is left out.
    pub(super) fn new(
        (network, parts): (&LayerGraph, &[Layer]),
        device: &str,
        measurement: &crate::MeasurementConditions,
        batches: &[usize],
    ) -> Self {
        let layers = network.computing_layers();
        let layers = layers.map(|(id, layer)| LayerHeader {
            name: layer.name().into(),
            structure: structure::of(network, id),
        });
        Self {
            schema: SCHEMA.into(),
            model: network.name().into(),
            device: device.into(),
            profiler: measurement.profiler.clone(),
            libraries: measurement.libraries.clone(),
            precision: measurement.precision.clone(),
            repeats: measurement.repeats,
            batches: batches.into(),
            layers: layers.collect(),
            parts: parts
                .iter()
                .map(|part| LayerHeader { name: part.name().into(), structure: structure::of_layer(part) })
                .collect(),
        }
    }

    /// Checks that a profile begun under the conditions `theirs` may be resumed under `self`: that
    /// all conditions are equal.
    ///
    /// # Errors
    /// Description of the first condition that differs: a clause whose subject is the unfinished
    /// profile, such as ``is of the network `a`, not `b` ``.
    pub(super) fn check(&self, theirs: &Self) -> Result<(), String> {
        let pairs = [
            ("is in the format", &theirs.schema, &self.schema),
            ("is of the network", &theirs.model, &self.model),
            ("was begun on the device", &theirs.device, &self.device),
            ("was begun by layer-profile", &theirs.profiler, &self.profiler),
            ("was begun in the precision", &theirs.precision, &self.precision),
        ];
        for (description, theirs, ours) in pairs {
            if theirs != ours {
                return Err(format!("{description} `{theirs}`, not `{ours}`"));
            }
        }
        let libraries = theirs.libraries.keys().chain(self.libraries.keys());
        let version =
            |of: &Self, library: &String| of.libraries.get(library).cloned().unwrap_or("none".into());
        for library in libraries {
            let (theirs, ours) = (version(theirs, library), version(self, library));
            if theirs != ours {
                return Err(format!("was begun with {library} `{theirs}`, not `{ours}`"));
            }
        }
        if theirs.repeats != self.repeats {
            return Err(format!("was begun with {} repeats, not {}", theirs.repeats, self.repeats));
        }
        if theirs.batches != self.batches {
            return Err(format!("was begun for the batches {:?}, not {:?}", theirs.batches, self.batches));
        }
        self.check_layers(theirs)
    }

    fn check_layers(&self, theirs: &Self) -> Result<(), String> {
        let model = &self.model;
        for (theirs, ours) in theirs.layers.iter().zip(&self.layers) {
            if theirs.name != ours.name {
                return Err(format!(
                    "is of another `{model}`: where it has a layer `{}`, the network has `{}`",
                    theirs.name, ours.name
                ));
            }
            if theirs.structure != ours.structure {
                return Err(format!(
                    "is of another `{model}`: its layer `{}` is {}, but in the network it is {}",
                    theirs.name, theirs.structure, ours.structure
                ));
            }
        }
        let (count, ours) = (theirs.layers.len(), self.layers.len());
        if count != ours {
            return Err(format!(
                "is of another `{model}`: it has {count} layers, but the network has {ours}"
            ));
        }
        if theirs.parts != self.parts {
            return Err("was begun for other parts of split layers".into());
        }
        Ok(())
    }

    /// Checks that a row has the name and the structure of one of the parts of layers.
    ///
    /// # Errors
    /// Description of the problem, a sentence, if there is no such part.
    pub(super) fn check_part(&self, row: &LayerProfile) -> Result<(), String> {
        let is_of =
            |part: &LayerHeader| part.name == row.name && row.structure.as_ref() == Some(&part.structure);
        if self.parts.iter().any(is_of) {
            return Ok(());
        }
        Err(format!("there is no such part of layer `{}` in the first line", row.name))
    }

    /// Checks that a row has the name and the structure of one of the layers.
    ///
    /// # Errors
    /// Description of the problem, a sentence, if no layer has this name or it has another
    /// structure.
    pub(super) fn check_row(&self, row: &LayerProfile) -> Result<(), String> {
        let layer = self.layers.iter().find(|layer| layer.name == row.name);
        match (layer, &row.structure) {
            (Some(layer), Some(structure)) if layer.structure == *structure => Ok(()),
            (Some(_), _) => Err(format!("layer `{}` has another structure than in the first line", row.name)),
            (None, _) => Err(format!("there is no layer `{}` in the first line", row.name)),
        }
    }

    /// Returns whether the run measures this batch size, in samples.
    pub(super) fn has_batch(&self, batch: usize) -> bool {
        self.batches.contains(&batch)
    }
}
