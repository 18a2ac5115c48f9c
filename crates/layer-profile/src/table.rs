//! Table of the times of a network's layers, and its checks. Batch sizes are numbers of samples on
//! the one device; *update* is the optimiser step.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use layer_graph::LayerGraph;

use crate::interpolate::Position;
use crate::{
    BatchTime, ContendedTimes, Gpu, LayerProfile, LayerTime, MeasurementConditions, ModelAccuracy,
    NetworkTime, NumberFormat, Origin, ProfileError,
};

/// Maximum ratio between the sum of the layers and the whole network, in either direction, of an
/// undisturbed measurement.
const MAX_DISCREPANCY: f64 = 1.6;

/// Times of each layer of a network on one device at several batch sizes.
///
/// Between two batch sizes, times are interpolated linearly; outside their range a request is an
/// error. The input layer does no work and has no row.
#[derive(Debug, Clone, PartialEq)]
pub struct ProfileTable {
    model: String,
    device: String,
    origin: Origin,
    /// Accuracy of the device model that predicted some or all times. `None` if no time is modelled
    /// or the accuracy is not recorded.
    pub(crate) accuracy: Option<ModelAccuracy>,
    /// Conditions of the measurement. `None` if they are not recorded.
    pub(crate) measurement: Option<MeasurementConditions>,
    layers: Vec<LayerProfile>,
    network: Vec<NetworkTime>,
    /// Times while several ranks compute at once. `None` if they are not known.
    contended: Option<Box<ContendedTimes>>,
    /// Times of parts of split layers, by layer name and structure.
    pub(crate) parts: BTreeMap<(String, String), LayerProfile>,
    by_name: HashMap<String, usize>,
}

/// Maximum time of a layer or network (11 days), so that sums of times do not overflow.
pub(crate) const MAX_TIME: Duration = Duration::from_secs(1_000_000);

/// Maximum factor by which times are scaled.
const MAX_FACTOR: f64 = 1e9;

impl ProfileTable {
    /// Creates a table from its rows. `model` is the name of the network, `device` that of the
    /// device, and `origin` the origin of the times. `network` holds the times of the whole network
    /// by ascending batch size; it is empty if they are unknown.
    ///
    /// # Errors
    /// [`ProfileError::Invalid`] if there is no layer, a layer occurs twice or has no times, batch
    /// sizes are zero, repeated or not ascending, or a time is above 1e12 us (11 days).
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
            layer.check(&format!("layers[{i}]"))?;
        }
        check_ascending("network", network.iter().map(|row| row.batch))?;
        for (i, row) in network.iter().enumerate() {
            let LayerTime { forward, backward, update } = row.time;
            check_times([forward, backward, update], || format!("network[{i}]"))?;
        }
        Ok(Self {
            model: model.into(),
            device: device.into(),
            origin,
            accuracy: None,
            measurement: None,
            layers,
            network,
            contended: None,
            parts: BTreeMap::new(),
            by_name,
        })
    }

    /// Returns the table with the accuracy of the device model that predicted its times.
    #[must_use]
    pub fn with_accuracy(self, accuracy: ModelAccuracy) -> Self {
        Self { accuracy: Some(accuracy), ..self }
    }

    /// Returns the name of the profiled network.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Returns the name of the device, as reported by the engine or given by the device model.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Returns the origin of the times.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Returns the accuracy of the device model that predicted the times, or that supplied the
    /// missing times of an imported table. `None` if no time is modelled.
    #[must_use]
    pub fn accuracy(&self) -> Option<&ModelAccuracy> {
        self.accuracy.as_ref()
    }

    /// Returns the conditions of the measurement. `None` if the times are modelled or imported, or
    /// if the conditions were not recorded.
    #[must_use]
    pub fn measurement(&self) -> Option<&MeasurementConditions> {
        self.measurement.as_ref()
    }

    /// Returns the number format of the matrix products: that of the measurement, or else that of
    /// the [`Gpu`] whose device model predicted the times. `None` if neither is known.
    #[must_use]
    pub fn number_format(&self) -> Option<NumberFormat> {
        match &self.measurement {
            Some(measurement) => NumberFormat::of_precision(&measurement.precision),
            None => Gpu::named(&self.device).ok().map(|gpu| gpu.format),
        }
    }

    /// Returns the table with the conditions of its measurement.
    #[must_use]
    pub fn with_measurement(mut self, measurement: MeasurementConditions) -> Self {
        self.measurement = Some(measurement);
        self
    }

    /// Returns the times while several ranks of the machine compute at once. `None` if they were
    /// not measured, or if each rank has a device of its own.
    #[must_use]
    pub fn contended(&self) -> Option<&ContendedTimes> {
        self.contended.as_deref()
    }

    /// Returns the table with the times while several ranks of the machine compute at once.
    ///
    /// # Errors
    /// [`ProfileError::Invalid`] if the layers are not those of this table in the same order, if
    /// the batch sizes of a layer differ, or if only one of the tables has an update time.
    pub fn with_contended(mut self, contended: ContendedTimes) -> Result<Self, ProfileError> {
        contended.check(&self.layers)?;
        self.contended = Some(Box::new(contended));
        Ok(self)
    }

    /// Returns the times of the parts of split layers that were profiled, in the order of their
    /// layers' names.
    #[must_use]
    pub fn parts(&self) -> impl ExactSizeIterator<Item = &LayerProfile> {
        self.parts.values()
    }

    /// Returns the table with the times of parts of split layers, instead of those that it has.
    /// Each row is [of a part](LayerProfile::of_part) of one of the table's layers.
    ///
    /// # Errors
    /// [`ProfileError::Invalid`] if a row has no structure, has the name of no layer, occurs twice,
    /// or has no times, batch sizes that are not ascending, or a time above 1e12 us (11 days).
    pub fn with_parts(mut self, rows: Vec<LayerProfile>) -> Result<Self, ProfileError> {
        self.parts.clear();
        for (i, row) in rows.into_iter().enumerate() {
            let path = format!("parts[{i}]");
            row.check(&path)?;
            let Some(structure) = row.structure.clone() else {
                return Err(invalid(format!("{path}.structure"), "expected that of the part, found none"));
            };
            if self.layer(&row.name).is_none() {
                let problem = format!("expected the name of a layer, found `{}`", row.name);
                return Err(invalid(format!("{path}.name"), problem));
            }
            let problem = format!("layer `{}` has a row for the part {structure} already", row.name);
            if self.parts.insert((row.name.clone(), structure), row).is_some() {
                return Err(invalid(path, problem));
            }
        }
        Ok(self)
    }

    /// Returns the table with all times multiplied by `factor`. Spreads are unchanged.
    ///
    /// # Errors
    /// [`ProfileError::Invalid`] if a time becomes larger than 1e12 us (11 days), or the factor is
    /// not positive and finite.
    pub fn scaled(&self, factor: f64) -> Result<Self, ProfileError> {
        if !(factor > 0.0 && factor <= MAX_FACTOR) {
            let problem = format!("expected a factor above 0 and at most {MAX_FACTOR}, found {factor}");
            return Err(invalid("factor", problem));
        }
        let Self { model, device, origin, accuracy, measurement, .. } = self;
        let (mut layers, mut network) = (self.layers.clone(), self.network.clone());
        for layer in &mut layers {
            layer.scale(factor);
        }
        for NetworkTime { time: LayerTime { forward, backward, update }, .. } in &mut network {
            for time in [forward, backward, update] {
                *time = time.mul_f64(factor);
            }
        }
        let (mut contended, mut parts) = (self.contended.clone(), self.parts.clone());
        if let Some(contended) = &mut contended {
            contended.scale(factor);
        }
        for (i, part) in parts.values_mut().enumerate() {
            part.scale(factor);
            part.check(&format!("parts[{i}]"))?;
        }
        let (accuracy, measurement) = (accuracy.clone(), measurement.clone());
        let table = Self::new(model, device, *origin, layers, network)?;
        Ok(Self { accuracy, measurement, contended, parts, ..table })
    }

    /// Checks that the table was not measured by an incompatible version of this crate. Tables
    /// without recorded conditions pass.
    ///
    /// # Errors
    /// [`ProfileError::IncompatibleVersion`] if it was.
    pub(crate) fn check_version(&self) -> Result<(), ProfileError> {
        match &self.measurement {
            Some(measurement) if !measurement.is_compatible() => Err(ProfileError::IncompatibleVersion {
                model: self.model().into(),
                profiler: measurement.profiler.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// Returns the times of all layers except the input, in the order of the table.
    #[must_use]
    pub fn layers(&self) -> &[LayerProfile] {
        &self.layers
    }

    /// Returns the times of the layer with this name, or `None` if the table has no row for it.
    #[must_use]
    pub fn layer(&self, name: &str) -> Option<&LayerProfile> {
        self.by_name.get(name).map(|&row| &self.layers[row])
    }

    /// Returns the times of the whole network by ascending batch size; empty if they are unknown.
    /// Measured ones were timed as a whole and are not the sum of the layers' times.
    #[must_use]
    pub fn network(&self) -> &[NetworkTime] {
        &self.network
    }

    /// Returns the times of the layer with this name for the given number of samples.
    ///
    /// For 0 samples the forward and the backward pass take no time. The optimiser step does not
    /// depend on the samples.
    ///
    /// # Errors
    /// [`ProfileError::MissingLayer`] if there is no such layer; [`ProfileError::OutsideRange`] if
    /// `samples` is outside the layer's batch sizes.
    pub fn time(&self, layer: &str, samples: usize) -> Result<LayerTime, ProfileError> {
        let missing = || ProfileError::MissingLayer { layer: layer.into(), model: self.model.clone() };
        self.layer(layer).ok_or_else(missing)?.time(samples)
    }

    /// Returns the sum of all layers' times, each timed alone, for the given number of samples.
    ///
    /// The time of the [whole network](Self::network_time) differs from it: caches are warmer or
    /// colder, launches overlap, and gradients are summed where branches join.
    ///
    /// # Errors
    /// [`ProfileError::OutsideRange`] if `samples` is outside a layer's batch sizes.
    pub fn sum_of_layers(&self, samples: usize) -> Result<LayerTime, ProfileError> {
        self.layers.iter().map(|layer| self.time(&layer.name, samples)).sum()
    }

    /// Returns the time of the whole network on one device for the given number of samples,
    /// interpolated linearly between batch sizes.
    ///
    /// # Errors
    /// [`ProfileError::MissingNetwork`] if the table has no such times;
    /// [`ProfileError::OutsideRange`] if `samples` is outside their batch sizes.
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

    /// Checks that measured times were not disturbed by other work on the machine: that the sum of
    /// the layers and the time of the whole network differ by at most a factor of 1.6 at each batch
    /// size. Modelled and imported tables pass.
    ///
    /// # Errors
    /// [`ProfileError::Disturbed`] if they differ by more.
    pub fn check_undisturbed(&self) -> Result<(), ProfileError> {
        if self.origin != Origin::Measured {
            return Ok(());
        }
        for row in &self.network {
            let Ok(layers) = self.sum_of_layers(row.batch) else { continue };
            let (layers, network) = (layers.total(), row.time.total());
            if layers.max(network).as_secs_f64() > MAX_DISCREPANCY * layers.min(network).as_secs_f64() {
                return Err(ProfileError::Disturbed { batch: row.batch, layers, network });
            }
        }
        Ok(())
    }

    /// Checks that the table can be used to plan for a network, by [`for_model`](Self::for_model)
    /// and [`check_undisturbed`](Self::check_undisturbed), and returns it as `for_model` does.
    ///
    /// # Errors
    /// Those of both.
    pub fn validated_for(self, network: &LayerGraph) -> Result<Self, ProfileError> {
        let table = self.for_model(network)?;
        table.check_undisturbed()?;
        Ok(table)
    }

    /// Checks that the table is of the given network: by its name, and a row of the right kind for
    /// each layer except the input. If the table recorded them, the hyper-parameters and shapes of
    /// each layer and the version of the profiler are checked too.
    ///
    /// Returns the table with an update time for each layer that owns parameters. A table may give
    /// update times for the whole network only; each layer without one then gets a share in
    /// proportion to its number of parameters.
    ///
    /// # Errors
    /// - [`ProfileError::NetworkMismatch`], [`ProfileError::MissingLayer`],
    ///   [`ProfileError::KindMismatch`], [`ProfileError::StructureMismatch`] or
    ///   [`ProfileError::ExtraLayer`] if it is of another network.
    /// - [`ProfileError::IncompatibleVersion`] if an incompatible version of this crate measured
    ///   it.
    /// - [`ProfileError::MissingUpdate`] if a layer has no update time and the whole network has
    ///   none to share.
    pub fn for_model(mut self, network: &LayerGraph) -> Result<Self, ProfileError> {
        if self.model != network.name() {
            return Err(ProfileError::NetworkMismatch {
                profile: self.model,
                network: network.name().into(),
            });
        }
        self.check_version()?;
        let update = self.network.first().map(|row| row.time.update);
        let all_parameters = network.parameter_count() as f64;
        for (id, layer) in network.computing_layers() {
            let name = layer.name();
            let Some(&row) = self.by_name.get(name) else {
                return Err(ProfileError::MissingLayer { layer: name.into(), model: self.model });
            };
            let row = &mut self.layers[row];
            if row.kind != layer.kind().label() {
                return Err(ProfileError::KindMismatch {
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

impl LayerProfile {
    /// Multiplies all times by `factor`.
    pub(crate) fn scale(&mut self, factor: f64) {
        self.update = self.update.map(|time| time.mul_f64(factor));
        for BatchTime { forward, backward, .. } in &mut self.times {
            (*forward, *backward) = (forward.mul_f64(factor), backward.mul_f64(factor));
        }
    }

    /// Checks that there are times of ascending batch sizes, and that none is too long. `path` is
    /// that of the row in a JSON document.
    ///
    /// # Errors
    /// [`ProfileError::Invalid`] if not.
    fn check(&self, path: &str) -> Result<(), ProfileError> {
        if self.times.is_empty() {
            let problem = format!("layer `{}` has no times: expected at least one", self.name);
            return Err(invalid(format!("{path}.times"), problem));
        }
        check_ascending(&format!("{path}.times"), self.times.iter().map(|row| row.batch))?;
        let times = self.times.iter().flat_map(|row| [row.forward, row.backward]);
        check_times(times.chain(self.update), || format!("{path} (`{}`)", self.name))
    }

    /// Returns the times of the layer for the given number of samples, as [`ProfileTable::time`].
    ///
    /// # Errors
    /// [`ProfileError::OutsideRange`] if `samples` is outside the layer's batch sizes.
    pub fn time(&self, samples: usize) -> Result<LayerTime, ProfileError> {
        let update = self.update.unwrap_or_default();
        if samples == 0 {
            return Ok(LayerTime { update, ..LayerTime::default() });
        }
        let position = Position::find(&self.times, |row| row.batch, samples).ok_or_else(|| {
            outside(format!("layer `{}`", self.name), samples, self.times.iter().map(|row| row.batch))
        })?;
        Ok(LayerTime {
            forward: position.interpolate(&self.times, |row| row.forward),
            backward: position.interpolate(&self.times, |row| row.backward),
            update,
        })
    }
}

/// Checks that there is at least one batch size, and that batch sizes are positive and ascending.
///
/// # Errors
/// [`ProfileError::Batches`] if they are not.
pub(crate) fn check_batches(batches: &[usize]) -> Result<(), ProfileError> {
    let ascending = batches.windows(2).all(|pair| pair[0] < pair[1]);
    match batches.first() {
        Some(&first) if first > 0 && ascending => Ok(()),
        _ => Err(ProfileError::Batches(batches.to_vec())),
    }
}

/// Returns a [`ProfileError::Invalid`] for the content at `path` in a JSON document.
pub(crate) fn invalid(path: impl Into<String>, problem: impl Into<String>) -> ProfileError {
    ProfileError::Invalid { path: path.into(), problem: problem.into() }
}

/// Checks that no time exceeds [`MAX_TIME`]. `path` names the row in the error.
fn check_times(
    times: impl IntoIterator<Item = Duration>,
    path: impl FnOnce() -> String,
) -> Result<(), ProfileError> {
    match times.into_iter().max().filter(|&time| time > MAX_TIME) {
        Some(time) => {
            let us = time.as_secs_f64() * 1e6;
            let problem =
                format!("expected times of at most 1e12 us (11 days), found {us:e} us: check the unit");
            Err(invalid(path(), problem))
        }
        None => Ok(()),
    }
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
