use std::collections::HashMap;
use std::time::Duration;

use layer_graph::{LayerGraph, LayerKind};

use crate::interpolate::Position;
use crate::{
    LayerProfile, LayerTime, MeasurementConditions, ModelAccuracy, NetworkTime, Origin, ProfileError,
};

/// How unlike the layers one by one and the network as a whole may be, of a machine that does nothing else.
const DISTURBED: f64 = 1.6;

/// How long each layer of a network takes on one device, at several batch sizes.
///
/// Between two batch sizes a time is interpolated on a straight line; outside them it is an error, never a guess. The
/// input layer does no work and has no row.
#[derive(Debug, Clone, PartialEq)]
pub struct ProfileTable {
    model: String,
    device: String,
    origin: Origin,
    pub(crate) accuracy: Option<ModelAccuracy>,
    pub(crate) measurement: Option<MeasurementConditions>,
    layers: Vec<LayerProfile>,
    network: Vec<NetworkTime>,
    by_name: HashMap<String, usize>,
}

impl ProfileTable {
    /// A table from its rows. `network` holds the times of the whole network; it is empty where they are not known.
    ///
    /// # Errors
    /// [`ProfileError::Invalid`] when there is no layer, a layer is there twice or has no times, or batch sizes are zero,
    /// repeated or not ascending.
    pub fn new(
        model: impl Into<String>,
        device: impl Into<String>,
        origin: Origin,
        layers: Vec<LayerProfile>,
        network: Vec<NetworkTime>,
    ) -> Result<Self, ProfileError> {
        if layers.is_empty() {
            return Err(invalid("layers", "expected at least one layer, found none"));
        }
        let mut by_name = HashMap::with_capacity(layers.len());
        for (i, layer) in layers.iter().enumerate() {
            if by_name.insert(layer.name.clone(), i).is_some() {
                let problem = format!("layer `{}` has a row already: expected one a layer", layer.name);
                return Err(invalid(format!("layers[{i}].name"), problem));
            }
            if layer.times.is_empty() {
                let problem = format!("layer `{}` has no times: expected at least one", layer.name);
                return Err(invalid(format!("layers[{i}].times"), problem));
            }
            check_ascending(&format!("layers[{i}].times"), layer.times.iter().map(|row| row.batch))?;
        }
        check_ascending("network", network.iter().map(|row| row.batch))?;
        Ok(Self {
            model: model.into(),
            device: device.into(),
            origin,
            accuracy: None,
            measurement: None,
            layers,
            network,
            by_name,
        })
    }

    /// This table, with how far the model that made it is from measurements.
    #[must_use]
    pub fn with_accuracy(self, accuracy: ModelAccuracy) -> Self {
        Self { accuracy: Some(accuracy), ..self }
    }

    /// The name of the network that was profiled.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The device that the times are of.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Where the times come from.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// How far the model that made the table, or what an imported file lacks of it, is from measurements; `None` for a table
    /// without modelled times.
    #[must_use]
    pub fn accuracy(&self) -> Option<&ModelAccuracy> {
        self.accuracy.as_ref()
    }

    /// How the times were measured. `None` when they were modelled or imported, or by a version that did not record it.
    #[must_use]
    pub fn measurement(&self) -> Option<&MeasurementConditions> {
        self.measurement.as_ref()
    }

    /// Records how the times were measured.
    #[must_use]
    pub fn with_measurement(mut self, measurement: MeasurementConditions) -> Self {
        self.measurement = Some(measurement);
        self
    }

    /// Makes sure that the table was not measured by an incompatible version of this crate.
    pub(crate) fn check_version(&self) -> Result<(), ProfileError> {
        match &self.measurement {
            Some(measurement) if !measurement.is_compatible() => Err(ProfileError::OtherVersion {
                model: self.model().into(),
                profiler: measurement.profiler.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// All layers' times, in the order of the table.
    #[must_use]
    pub fn layers(&self) -> &[LayerProfile] {
        &self.layers
    }

    /// The times of one layer; `None` when the table has no row for it.
    #[must_use]
    pub fn layer(&self, name: &str) -> Option<&LayerProfile> {
        self.by_name.get(name).map(|&row| &self.layers[row])
    }

    /// The times of the whole network by batch size, ascending; empty where they are not known. Those of a measured table
    /// were timed whole: they are not the sum of the layers'.
    #[must_use]
    pub fn network(&self) -> &[NetworkTime] {
        &self.network
    }

    /// How long a layer takes for this many samples. With no samples at all, forward and backward take no time; the
    /// update takes its time whatever the batch.
    ///
    /// # Errors
    /// [`ProfileError::MissingLayer`] when there is no such layer, [`ProfileError::OutsideRange`] when the samples lie
    /// outside the layer's batch sizes.
    pub fn time(&self, layer: &str, samples: usize) -> Result<LayerTime, ProfileError> {
        let missing = || ProfileError::MissingLayer { layer: layer.into(), model: self.model.clone() };
        let row = self.layer(layer).ok_or_else(missing)?;
        let update = row.update.unwrap_or_default();
        if samples == 0 {
            return Ok(LayerTime { update, ..LayerTime::default() });
        }
        let position = Position::find(&row.times, |row| row.batch, samples).ok_or_else(|| {
            outside(format!("layer `{layer}`"), samples, row.times.iter().map(|row| row.batch))
        })?;
        Ok(LayerTime {
            forward: position.interpolate(&row.times, |row| row.forward),
            backward: position.interpolate(&row.times, |row| row.backward),
            update,
        })
    }

    /// How long all layers take for this many samples, one after another as each was timed alone. What the
    /// [whole network](Self::network_time) takes differs from it: caches are warmer or colder, launches overlap, and
    /// gradients are summed where branches meet.
    ///
    /// # Errors
    /// [`ProfileError::OutsideRange`] when the samples lie outside a layer's batch sizes.
    pub fn sum_of_layers(&self, samples: usize) -> Result<LayerTime, ProfileError> {
        self.layers.iter().map(|layer| self.time(&layer.name, samples)).sum()
    }

    /// How long the whole network takes on one device for this many samples.
    ///
    /// # Errors
    /// [`ProfileError::MissingNetwork`] when the table does not know, [`ProfileError::OutsideRange`] when the samples lie
    /// outside its batch sizes.
    pub fn network_time(&self, samples: usize) -> Result<LayerTime, ProfileError> {
        if self.network.is_empty() {
            return Err(ProfileError::MissingNetwork { model: self.model.clone() });
        }
        let position = Position::find(&self.network, |row| row.batch, samples).ok_or_else(|| {
            outside(format!("network `{}`", self.model), samples, self.network.iter().map(|row| row.batch))
        })?;
        let time = |of: fn(&LayerTime) -> Duration| position.interpolate(&self.network, |row| of(&row.time));
        Ok(LayerTime {
            forward: time(|time| time.forward),
            backward: time(|time| time.backward),
            update: time(|time| time.update),
        })
    }

    /// Checks of measured times that what the layers take one by one is about what the network takes as a whole: that nothing else
    /// kept the machine busy while one of the two was measured.
    ///
    /// # Errors
    /// [`ProfileError::Disturbed`] when one is more than 1.6 times the other.
    pub fn check_undisturbed(&self) -> Result<(), ProfileError> {
        if self.origin != Origin::Measured {
            return Ok(());
        }
        for row in &self.network {
            let Ok(layers) = self.sum_of_layers(row.batch) else { continue };
            let (layers, network) = (layers.total(), row.time.total());
            if layers.max(network).as_secs_f64() > DISTURBED * layers.min(network).as_secs_f64() {
                return Err(ProfileError::Disturbed { batch: row.batch, layers, network });
            }
        }
        Ok(())
    }

    /// The table as decisions about this network are made by it: [`for_model`](Self::for_model), and
    /// [`check_undisturbed`](Self::check_undisturbed).
    ///
    /// # Errors
    /// Those of both.
    pub fn to_decide_by(self, network: &LayerGraph) -> Result<Self, ProfileError> {
        let table = self.for_model(network)?;
        table.check_undisturbed()?;
        Ok(table)
    }

    /// Checks that this table is of this network, by its name and a row of the right kind for each layer but the input. Where
    /// the table recorded them, the hyper-parameters and shapes of each layer and the version of the profiler have to fit
    /// too.
    ///
    /// The format requires update times of the whole network only. Where a layer with parameters of its own has no such time, it
    /// gets its share of the network's, by number of parameters.
    ///
    /// # Errors
    /// [`ProfileError::OtherModel`], [`ProfileError::MissingLayer`], [`ProfileError::OtherKind`],
    /// [`ProfileError::OtherStructure`] or [`ProfileError::ExtraLayer`] when it is of another network;
    /// [`ProfileError::OtherVersion`] when an incompatible version of this crate measured it;
    /// [`ProfileError::MissingUpdate`] when there is no update time to share either.
    pub fn for_model(mut self, network: &LayerGraph) -> Result<Self, ProfileError> {
        if self.model != network.name() {
            return Err(ProfileError::OtherModel { profile: self.model, network: network.name().into() });
        }
        self.check_version()?;
        let update = self.network.first().map(|row| row.time.update);
        let all_parameters = network.parameter_count() as f64;
        for (id, layer) in network.layers().filter(|(_, layer)| *layer.kind() != LayerKind::Input) {
            let name = layer.name();
            let Some(&row) = self.by_name.get(name) else {
                return Err(ProfileError::MissingLayer { layer: name.into(), model: self.model });
            };
            let row = &mut self.layers[row];
            if row.kind != layer.kind().label() {
                return Err(ProfileError::OtherKind {
                    layer: name.into(),
                    profile: row.kind.clone(),
                    network: layer.kind().label(),
                });
            }
            let parameters = network.own_parameter_count(id);
            if parameters > 0 && row.update.is_none() {
                let Some(update) = update else {
                    return Err(ProfileError::MissingUpdate { layer: name.into(), model: self.model });
                };
                row.update = Some(update.mul_f64(parameters as f64 / all_parameters));
            }
        }
        self.check_structure(network)?;
        Ok(self)
    }
}

/// Batch sizes to make a table at.
pub(crate) fn check_batches(batches: &[usize]) -> Result<(), ProfileError> {
    let ascending = batches.windows(2).all(|pair| pair[0] < pair[1]);
    match batches.first() {
        Some(&first) if first > 0 && ascending => Ok(()),
        _ => Err(ProfileError::Batches(batches.to_vec())),
    }
}

pub(crate) fn invalid(path: impl Into<String>, problem: impl Into<String>) -> ProfileError {
    ProfileError::Invalid { path: path.into(), problem: problem.into() }
}

fn check_ascending(path: &str, batches: impl Iterator<Item = usize>) -> Result<(), ProfileError> {
    let mut previous = 0;
    for (i, batch) in batches.enumerate() {
        if batch <= previous {
            let problem = match previous {
                0 => "expected at least one sample, found 0".to_owned(),
                _ => format!("expected batch sizes in ascending order, found {batch} after {previous}"),
            };
            return Err(invalid(format!("{path}[{i}].batch"), problem));
        }
        previous = batch;
    }
    Ok(())
}

fn outside(subject: String, samples: usize, batches: impl Iterator<Item = usize> + Clone) -> ProfileError {
    let smallest = batches.clone().min().unwrap_or_default();
    let largest = batches.max().unwrap_or_default();
    ProfileError::OutsideRange { subject, samples, smallest, largest }
}
