use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;
use std::time::Duration;

use layer_graph::{Layer, LayerGraph, LayerKind};

use super::Direction;
use super::demand::Demand;
use crate::{MeasurementConditions, Origin, ProfileError, ProfileTable};

/// Measured times of work on one device, to fit a [`DeviceModel`](crate::DeviceModel) to or to compare one with.
#[derive(Debug, Clone)]
pub struct Observations {
    source: String,
    rows: Vec<Observation>,
    /// What the tables among them were measured on.
    conditions: Option<String>,
    /// Measured times of whole networks in microseconds; the others' are the sums of their rows.
    whole_us: BTreeMap<(String, usize), f64>,
}

#[derive(Debug, Clone)]
pub(super) struct Observation {
    pub(super) network: String,
    pub(super) batch: usize,
    pub(super) row: String,
    /// The same for work of the same kind and shape.
    pub(super) shape: String,
    pub(super) demand: Demand,
    pub(super) time_us: f64,
}

impl Observations {
    /// An empty set. `source` describes them in the models that are fitted to them, such as `times measured on an H200`.
    #[must_use]
    pub fn new(source: impl Into<String>) -> Self {
        Self { source: source.into(), rows: Vec::new(), conditions: None, whole_us: BTreeMap::new() }
    }

    /// Adds the time of a row of some profile at a batch size: the passes of one layer, or of several that were measured
    /// together. What is observed of the same network, row and batch in several calls, such as forward and backward, counts
    /// as one row when errors are stated.
    pub fn add(
        &mut self,
        network: &str,
        row: &str,
        batch: usize,
        work: &[(&Layer, Direction)],
        time: Duration,
    ) {
        let mut demand = Demand::default();
        let mut shape = String::new();
        for &(layer, pass) in work {
            demand.extend(&Demand::of(layer, pass, batch));
            // Writing to a string cannot fail.
            let _ = write!(shape, "{:?} {:?};", layer.kind(), layer.input_shapes());
        }
        self.push(network, row, batch, shape, demand, time);
    }

    /// Adds all times of a table: forward, backward and update of each layer. Its times of the whole network are what errors
    /// of whole networks are stated against.
    ///
    /// # Errors
    /// As [`ProfileTable::for_model`], when the table is of another network; [`ProfileError::NotMeasured`] when its times are
    /// a model's, or some of them are; [`ProfileError::OtherConditions`] when an earlier table is of another device, other
    /// libraries or another precision; [`ProfileError::ObservedTwice`] when the network was observed at one of its batch
    /// sizes before.
    pub fn add_table(&mut self, network: &LayerGraph, table: &ProfileTable) -> Result<(), ProfileError> {
        if table.origin() == Origin::Modelled || table.accuracy().is_some() {
            return Err(ProfileError::NotMeasured { model: table.model().into() });
        }
        let table = table.clone().for_model(network)?;
        let conditions = conditions(&table);
        if let Some(first) = self.conditions.as_ref().filter(|first| **first != conditions) {
            let (model, first) = (network.name().into(), first.clone());
            return Err(ProfileError::OtherConditions { model, found: conditions, first });
        }
        let seen: HashSet<usize> =
            self.rows.iter().filter(|row| row.network == network.name()).map(|row| row.batch).collect();
        let mut batches = table.layers().iter().flat_map(|layer| &layer.times).map(|time| time.batch);
        if let Some(batch) = batches.find(|batch| seen.contains(batch)) {
            return Err(ProfileError::ObservedTwice { model: network.name().into(), batch });
        }
        self.conditions = Some(conditions);
        for (_, layer) in network.layers().filter(|(_, layer)| *layer.kind() != LayerKind::Input) {
            let rows = table.layers().iter().filter(|row| row.name == layer.name());
            for (row, time) in rows.flat_map(|row| row.times.iter().map(move |time| (row, time))) {
                self.add(network.name(), &row.name, time.batch, &[(layer, Direction::Forward)], time.forward);
                self.add(
                    network.name(),
                    &row.name,
                    time.batch,
                    &[(layer, Direction::Backward)],
                    time.backward,
                );
                if let Some(update) = row.update {
                    let demand = Demand::of_update(layer.parameter_bytes());
                    let shape = format!("update {}", layer.parameter_count());
                    self.push(network.name(), &row.name, time.batch, shape, demand, update);
                }
            }
        }
        for row in table.network() {
            let key = (network.name().to_owned(), row.batch);
            self.whole_us.insert(key, row.time.total().as_secs_f64() * 1e6);
        }
        Ok(())
    }

    fn push(
        &mut self,
        network: &str,
        row: &str,
        batch: usize,
        shape: String,
        demand: Demand,
        time: Duration,
    ) {
        self.rows.push(Observation {
            network: network.into(),
            batch,
            row: row.into(),
            shape,
            demand,
            time_us: time.as_secs_f64() * 1e6,
        });
    }

    pub(super) fn source(&self) -> &str {
        &self.source
    }

    pub(super) fn rows(&self) -> &[Observation] {
        &self.rows
    }

    /// The whole networks that were timed as such, in microseconds.
    pub(super) fn whole_us(&self, network: &str, batch: usize) -> Option<f64> {
        self.whole_us.get(&(network.to_owned(), batch)).copied()
    }

    /// The networks, in the order in which they were added.
    pub(super) fn networks(&self) -> Vec<&str> {
        distinct(self.rows.iter().map(|row| row.network.as_str()))
    }

    /// The shapes of work, in the order in which they were added.
    pub(super) fn shapes(&self) -> Vec<&str> {
        distinct(self.rows.iter().map(|row| row.shape.as_str()))
    }
}

/// What a table was measured on, to the precision and the versions of the libraries.
fn conditions(table: &ProfileTable) -> String {
    let engine = table.measurement().map_or("engine not recorded".into(), MeasurementConditions::engine);
    format!("`{}` ({engine})", table.device())
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = HashSet::new();
    names.filter(|&name| seen.insert(name)).collect()
}
