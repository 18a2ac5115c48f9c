//! Measured times to which device models are fitted or compared. A *row* is a layer, or several
//! layers that were measured together; a *demand* is the amounts of resources that the measured
//! work uses.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;
use std::time::Duration;

use layer_graph::{Layer, LayerGraph};

use super::Direction;
use super::demand::Demand;
use crate::{Gpu, Origin, ProfileError, ProfileTable};

/// Measured times of work on one device, to fit a [`DeviceModel`](crate::DeviceModel) or to
/// evaluate one.
#[derive(Debug, Clone)]
pub struct Observations {
    source: String,
    rows: Vec<Observation>,
    /// Device and engine of the tables that were added.
    conditions: Option<String>,
    /// Measured times of whole networks in microseconds. Networks without one use the sum of their
    /// rows.
    whole_us: BTreeMap<(String, usize), f64>,
}

/// Measured time of one or more passes of a row at one batch size, with their demand.
#[derive(Debug, Clone)]
pub(super) struct Observation {
    /// Name of the network.
    pub(super) network: String,
    /// Batch size in samples.
    pub(super) batch: usize,
    /// Name of the row, such as that of a layer.
    pub(super) row: String,
    /// Key that is equal for work of the same kind and shape: a description of the layers, or of
    /// the parameters of an optimiser step.
    pub(super) shape: String,
    /// Sum of the demands of the measured passes.
    pub(super) demand: Demand,
    /// Measured time of the whole batch in microseconds.
    pub(super) time_us: f64,
    /// Whether the row is a whole iteration of the network.
    pub(super) is_whole: bool,
    /// GPU on which the time was measured, if it is not that of the model.
    pub(super) gpu: Option<Gpu>,
}

/// Whole iteration of a network on one GPU.
#[derive(Debug, Clone, Copy)]
pub struct Iteration<'a> {
    /// Network that is trained.
    pub network: &'a LayerGraph,
    /// Number of samples of a micro-batch.
    pub samples: usize,
    /// Number of micro-batches before the optimiser step.
    pub micro_batches: usize,
    /// Optimiser step.
    pub optimizer: Optimizer,
}

/// Optimiser of a measured iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Optimizer {
    /// No optimiser step.
    Omitted,
    /// Stochastic gradient descent with momentum.
    Momentum,
    /// Adam with clipping of the gradient's norm, or LAMB.
    Adam,
}

impl Optimizer {
    /// Returns the bytes moved by the optimiser step, as a multiple of those of stochastic gradient
    /// descent with momentum: it reads gradient, parameter and velocity, and writes the last two.
    /// Adam has two values in place of the velocity, and the norms of gradients or parameters are
    /// computed before.
    #[must_use]
    pub fn traffic(self) -> f64 {
        match self {
            Self::Omitted => 0.0,
            Self::Momentum => 1.0,
            Self::Adam => 9.0 / 5.0,
        }
    }
}

impl Observations {
    /// Creates an empty set. `source` describes it in the accuracy of the models fitted to it, such
    /// as `times measured on an H200`.
    #[must_use]
    pub fn new(source: impl Into<String>) -> Self {
        Self { source: source.into(), rows: Vec::new(), conditions: None, whole_us: BTreeMap::new() }
    }

    /// Adds the time of a row at one batch size (in samples). `work` lists the passes that were
    /// timed together, of one layer or of several. `row` is their name, and `time` their time for
    /// the whole batch. Observations with the same network, row and batch, such as forward and
    /// backward, count as one row in error reports.
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

    /// Adds the time of a whole iteration, from its first forward pass to its optimiser step. `row`
    /// is its name. `gpu` is the GPU on which it was measured: [`refit`](crate::DeviceModel::refit)
    /// scales the iteration to the GPU of the model.
    pub fn add_iteration(&mut self, row: &str, iteration: &Iteration<'_>, gpu: &Gpu, time: Duration) {
        let Iteration { network, samples, micro_batches, optimizer } = *iteration;
        let mut demand = Demand::default();
        for (id, layer) in network.layers() {
            for pass in [Direction::Forward, Direction::Backward] {
                demand.extend(&Demand::of(layer, pass, samples).times(micro_batches as f64));
            }
            if network.own_parameter_count(id) > 0 && optimizer != Optimizer::Omitted {
                demand.extend(&Demand::of_update(layer.parameter_bytes()).with_update(optimizer.traffic()));
            }
        }
        let shape = format!("iteration of {}", network.name());
        self.push(network.name(), row, samples, shape, demand, time);
        if let Some(row) = self.rows.last_mut() {
            row.gpu = Some(*gpu);
            row.is_whole = true;
        }
    }

    /// Adds all times of a table: forward, backward and optimiser step of each layer. Its times of
    /// the whole network are the reference for errors of whole networks.
    ///
    /// # Errors
    /// - Those of [`ProfileTable::for_model`] if the table is of another network.
    /// - [`ProfileError::NotMeasured`] if some of its times are modelled.
    /// - [`ProfileError::ConditionsMismatch`] if an earlier table has another device, other
    ///   libraries or another precision.
    /// - [`ProfileError::DuplicateObservation`] if the network was added before at one of its batch
    ///   sizes.
    pub fn add_table(&mut self, network: &LayerGraph, table: &ProfileTable) -> Result<(), ProfileError> {
        if table.origin() == Origin::Modelled || table.accuracy().is_some() {
            return Err(ProfileError::NotMeasured { model: table.model().into() });
        }
        let table = table.clone().for_model(network)?;
        let conditions = conditions(&table);
        if let Some(first) = self.conditions.as_ref().filter(|first| **first != conditions) {
            let (model, first) = (network.name().into(), first.clone());
            return Err(ProfileError::ConditionsMismatch { model, found: conditions, first });
        }
        let seen: HashSet<usize> =
            self.rows.iter().filter(|row| row.network == network.name()).map(|row| row.batch).collect();
        let mut batches = table.layers().iter().flat_map(|layer| &layer.times).map(|time| time.batch);
        if let Some(batch) = batches.find(|batch| seen.contains(batch)) {
            return Err(ProfileError::DuplicateObservation { model: network.name().into(), batch });
        }
        self.conditions = Some(conditions);
        for (_, layer) in network.computing_layers() {
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
            is_whole: false,
            gpu: None,
        });
    }

    /// Returns the names of the networks, in the order of their first observation.
    #[must_use]
    pub fn networks(&self) -> Vec<&str> {
        distinct(self.rows.iter().map(|row| row.network.as_str()))
    }

    /// Returns the observations without those of a network.
    #[must_use]
    pub fn without(&self, network: &str) -> Self {
        let mut rest = self.clone();
        rest.rows.retain(|row| row.network != network);
        rest
    }

    /// Returns the observations of a network.
    #[must_use]
    pub fn only(&self, network: &str) -> Self {
        let mut of_network = self.clone();
        of_network.rows.retain(|row| row.network == network);
        of_network
    }

    /// Returns the description given to [`new`](Self::new).
    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// Returns all observations in the order of addition.
    pub(super) fn rows(&self) -> &[Observation] {
        &self.rows
    }

    /// Returns the observations with those of other GPUs scaled to `gpu`.
    pub(super) fn scaled_to(&self, gpu: &Gpu) -> Self {
        let mut scaled = self.clone();
        for row in &mut scaled.rows {
            if let Some(measured) = row.gpu {
                row.demand = row.demand.scaled(&measured, gpu);
            }
        }
        scaled
    }

    /// Returns the measured time of a whole network at a batch size, in microseconds, for forward,
    /// backward and optimiser step together. `None` if it was not measured.
    pub(super) fn whole_us(&self, network: &str, batch: usize) -> Option<f64> {
        self.whole_us.get(&(network.to_owned(), batch)).copied()
    }

    /// Returns the distinct keys of work (its kind and shape), in the order of their first
    /// observation.
    pub(super) fn shapes(&self) -> Vec<&str> {
        distinct(self.rows.iter().map(|row| row.shape.as_str()))
    }
}

/// Describes the device, precision and libraries of a table. The order of images is left out: each
/// network is measured in the one that is fastest for it.
fn conditions(table: &ProfileTable) -> String {
    let engine = table.measurement().cloned().map_or("engine not recorded".into(), |mut measurement| {
        measurement.libraries.remove("images");
        measurement.engine()
    });
    format!("`{}` ({engine})", table.device())
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = HashSet::new();
    names.filter(|&name| seen.insert(name)).collect()
}
