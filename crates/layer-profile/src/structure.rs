//! Text that describes a layer by everything its times depend on.

use std::collections::BTreeMap;
use std::time::Duration;

use layer_graph::{Layer, LayerGraph, LayerId, LayerKind};
use serde_json::Value;

use crate::{BatchTime, LayerProfile, ProfileError, ProfileTable};

/// Describes a layer by everything its times depend on: its kind with the hyper-parameters, its
/// shapes and the owner of its parameters. Layers with equal text do the same work.
pub(crate) fn of(network: &LayerGraph, id: LayerId) -> String {
    let owner = network.parameter_owner(id);
    let tied =
        if owner == id { String::new() } else { format!(", parameters of {}", network.layer(owner).name()) };
    of_layer(network.layer(id)) + &tied
}

/// Describes the kind and the shapes of a layer, or of a part of a split layer.
pub(crate) fn of_layer(layer: &Layer) -> String {
    let inputs: Vec<String> = layer.input_shapes().iter().map(ToString::to_string).collect();
    format!("{}, {} -> {}", kind(layer.kind()), inputs.join(" + "), layer.output_shape())
}

/// Formats a kind as in JSON but without quotes: `dropout(probability=0.5)`.
fn kind(kind: &LayerKind) -> String {
    let Ok(Value::Object(variant)) = serde_json::to_value(kind) else { return kind.label().into() };
    let fields = variant.values().filter_map(Value::as_object).flatten();
    // Sorted by name, since the order in a JSON object depends on features of `serde_json`.
    let fields: BTreeMap<&String, &Value> = fields.collect();
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
    format!("{}({})", kind.label(), fields.join(", "))
}

impl ProfileTable {
    /// Returns the times of a part of a split layer: a layer with the name of the whole one, such
    /// as [`LayerPart::layer`](layer_graph::LayerPart::layer). `None` if this part was not
    /// profiled.
    #[must_use]
    pub fn part(&self, part: &Layer) -> Option<&LayerProfile> {
        if self.parts.is_empty() {
            return None;
        }
        self.parts.get(&(part.name().to_owned(), of_layer(part)))
    }

    /// Checks that each layer of the network has the structure that was profiled, if the table
    /// recorded it.
    ///
    /// # Errors
    /// [`ProfileError::StructureMismatch`] for a layer with another structure, and
    /// [`ProfileError::ExtraLayer`] if the table recorded the structure of a layer that is not in
    /// the network.
    pub(crate) fn check_structure(&self, network: &LayerGraph) -> Result<(), ProfileError> {
        for (id, layer) in network.computing_layers() {
            let Some(profiled) = self.layer(layer.name()).and_then(|row| row.structure.as_ref()) else {
                continue;
            };
            let structure = of(network, id);
            if *profiled != structure {
                return Err(ProfileError::StructureMismatch {
                    model: network.name().into(),
                    layer: layer.name().into(),
                    profile: profiled.clone(),
                    network: structure,
                });
            }
        }
        // Tables without recorded structures may have additional layers.
        let recorded = self.layers().iter().filter(|row| row.structure.is_some());
        match recorded.map(|row| &row.name).find(|&name| network.find(name).is_none()) {
            Some(extra) => {
                Err(ProfileError::ExtraLayer { model: network.name().into(), layer: extra.clone() })
            }
            None => Ok(()),
        }
    }
}

impl LayerProfile {
    /// Creates the row of a layer of a network, with its structure. `update` is the time of its
    /// optimiser step; the spread of that time is unknown. `times` are those of its passes by
    /// ascending batch size.
    #[must_use]
    pub fn new(
        network: &LayerGraph,
        layer: LayerId,
        update: Option<Duration>,
        times: Vec<BatchTime>,
    ) -> Self {
        let structure = Some(of(network, layer));
        Self { structure, ..Self::of_part(network.layer(layer), update, times) }
    }

    /// Creates the row of a part of a split layer, with its structure. `update` and `times` are
    /// those of [`new`](Self::new), of the part.
    #[must_use]
    pub fn of_part(part: &Layer, update: Option<Duration>, times: Vec<BatchTime>) -> Self {
        Self {
            name: part.name().into(),
            kind: part.kind().label().into(),
            structure: Some(of_layer(part)),
            update,
            update_spread: None,
            times,
        }
    }
}

#[cfg(test)]
mod tests {
    use layer_graph::zoo;

    #[test]
    fn description_holds_everything_that_times_depend_on() {
        let network = zoo::model("digits-cnn").expect("in the zoo");
        let describe = |name| super::of(&network, network.find(name).expect("a layer"));
        assert_eq!(
            describe("conv2_3x3"),
            "conv2d(bias=true, groups=1, kernel=[3,3], out_channels=24, padding=[1,1], stride=[1,1]), \
             16x8x8 -> 24x8x8"
        );
        assert_eq!(describe("gelu1"), "gelu_tanh, 16x8x8 -> 16x8x8");
        assert_eq!(describe("concat"), "concat, 24x8x8 + 8x8x8 -> 32x8x8");
        assert_eq!(describe("dropout"), "dropout(probability=0.2), 64 -> 64");

        let network = zoo::model("gpt2").expect("in the zoo");
        let head =
            network.layers().find(|(id, _)| network.parameter_owner(*id) != *id).expect("a tied layer").0;
        assert!(super::of(&network, head).ends_with(", parameters of tokens"));
    }
}
