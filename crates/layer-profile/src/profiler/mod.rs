//! Measurement of the times of a network's layers on an engine.

mod builder;
mod header;
mod initial_data;
mod journal;
mod kernel_time;
mod progress;
mod sampling;
mod session;
mod timing;
mod workload;

use std::collections::HashSet;
use std::fs::File;

use layer_engine::{Engine, Precision};
use layer_graph::{Layer, LayerGraph};

use crate::structure;
use crate::table::{check_batches, invalid};
use crate::{MeasurementConditions, Origin, ProfileError, ProfileTable};
use header::JournalHeader;
use journal::Journal;
pub use kernel_time::KernelTime;
use progress::Progress;
use session::Session;

/// Profiler: measures the times of each layer of a network, and of the whole network, on an engine.
///
/// A time is the median of the repeats. The table also holds their median absolute deviation, the
/// number of outliers (repeats that differ from the median by more than five deviations and more
/// than 1%), and the conditions: device, versions, clock and number of repeats.
///
/// Before the repeats comes the warm-up: the work is timed until the medians of two successive
/// windows of three timings are within 5% of each other. After 24 timings or 10 seconds the warm-up
/// ends anyway, and the time is marked as [unstable](crate::Spread::warm_up_unstable). Work shorter
/// than 100 us is launched several times in each timing and each repeat, so that neither clock
/// resolution nor synchronisation dominates. All of them are taken by [`Engine::time`], which may
/// use the clock of the device.
///
/// Layers are measured one at a time on synthetic data. The gradient of their inputs is omitted if
/// these are the inputs of the network. The whole network is measured in runs of all forward
/// passes, all backward passes (including the sums of gradients where branches join) and all
/// optimiser steps. Memory holds one layer, or the whole network, at one batch size.
///
/// ```
/// use layer_engine::CpuEngine;
/// use layer_profile::Profiler;
///
/// let network = layer_graph::zoo::model("digits-cnn")?;
/// let engine = CpuEngine::<f32>::new();
/// let table = Profiler::new(&engine).batches([1, 4]).profile(&network)?;
/// let (alone, whole) = (table.sum_of_layers(4)?, table.network_time(4)?);
/// println!("{}: {:?} layer by layer, {:?} whole", table.device(), alone.total(), whole.total());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Profiler<'a, E> {
    engine: &'a E,
    batches: Vec<usize>,
    repeats: usize,
    precision: Precision,
    /// Parts of split layers, each once.
    parts: Vec<Layer>,
    progress: bool,
}

/// Result of [`Profiler::profile_with_journal`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ProfileRun {
    /// Profile of the network, from the measurements of this run and those taken from the journal.
    pub table: ProfileTable,
    /// Number of measurements made by this run. A measurement is a layer, a part of a layer or the
    /// whole network at one batch size.
    pub measured: usize,
    /// Number of measurements taken from the journal of an earlier run.
    pub resumed: usize,
}

impl<'a, E: Engine<Scalar: From<f32>>> Profiler<'a, E> {
    /// Creates a profiler for an engine with the defaults: single precision, batch sizes 1, 2, 4,
    /// 8, 16 and 32, 10 repeats, no progress bar.
    #[must_use]
    pub fn new(engine: &'a E) -> Self {
        Self {
            engine,
            batches: vec![1, 2, 4, 8, 16, 32],
            repeats: 10,
            precision: Precision::F32,
            parts: Vec::new(),
            progress: false,
        }
    }

    /// Sets the batch sizes in samples, which must be positive and ascending.
    #[must_use]
    pub fn batches(mut self, batches: impl Into<Vec<usize>>) -> Self {
        self.batches = batches.into();
        self
    }

    /// Sets the number of repeats, at least 1. Fewer than 10 give a poor estimate of the spread.
    #[must_use]
    pub fn repeats(mut self, repeats: usize) -> Self {
        self.repeats = repeats.max(1);
        self
    }

    /// Sets the number format of the arithmetic.
    #[must_use]
    pub fn precision(mut self, precision: Precision) -> Self {
        self.precision = precision;
        self
    }

    /// Sets parts of split layers, which are measured in addition to all layers. A part has the
    /// name of the whole layer, as [`LayerPart::layer`](layer_graph::LayerPart::layer) has. Of
    /// equal parts of a layer, one is measured.
    #[must_use]
    pub fn parts(mut self, parts: impl IntoIterator<Item = Layer>) -> Self {
        let mut known = HashSet::new();
        let mut is_new = |part: &Layer| known.insert((part.name().to_owned(), structure::of_layer(part)));
        self.parts = parts.into_iter().filter(|part| is_new(part)).collect();
        self
    }

    /// Sets whether to show a progress bar on the standard error stream, if that is a terminal.
    #[must_use]
    pub fn progress(mut self, progress: bool) -> Self {
        self.progress = progress;
        self
    }

    /// Measures each layer of a network, and the whole network, at all batch sizes.
    ///
    /// # Errors
    /// - [`ProfileError::Batches`] if the batch sizes are empty, zero or not ascending.
    /// - [`ProfileError::Opaque`] if a layer is opaque.
    /// - [`ProfileError::Engine`] if the engine fails.
    /// - [`ProfileError::Invalid`] if the network has only its input layer, or a part is of a layer
    ///   that the network lacks.
    pub fn profile(&self, network: &LayerGraph) -> Result<ProfileTable, ProfileError> {
        self.check(network)?;
        let (device, measurement) = self.describe();
        Ok(self.run(network, device, measurement, None)?.table)
    }

    /// Measures a network as [`profile`](Self::profile) does, and appends every finished
    /// measurement to a journal. `None` measures without a journal.
    ///
    /// The journal is a file that is open for reading and writing. If the run fails or is killed,
    /// the next run with the same file takes the finished measurements from it and makes the rest.
    /// Delete the file after the profile is saved. It survives the end of the process but not a
    /// crash of the system. Two runs must not use the same file at the same time.
    ///
    /// # Errors
    /// Those of [`profile`](Self::profile); [`ProfileError::Journal`] if the journal is damaged, or
    /// has another network, device, version, precision, number of repeats or batch sizes;
    /// [`ProfileError::JournalFile`] if it cannot be read or written.
    pub fn profile_with_journal(
        &self,
        network: &LayerGraph,
        journal: Option<&mut File>,
    ) -> Result<ProfileRun, ProfileError> {
        self.check(network)?;
        let (device, measurement) = self.describe();
        let header = JournalHeader::new((network, &self.parts), &device, &measurement, &self.batches);
        let mut journal = journal.map(|file| Journal::open(file, &header)).transpose()?;
        self.run(network, device, measurement, journal.as_mut())
    }

    /// Checks the network and the batch sizes, without measuring anything.
    ///
    /// # Errors
    /// [`ProfileError::Batches`] if the batch sizes are empty, zero or not ascending,
    /// [`ProfileError::Opaque`] if a layer is opaque, and [`ProfileError::Invalid`] if a part is of
    /// a layer that the network lacks.
    pub fn check(&self, network: &LayerGraph) -> Result<(), ProfileError> {
        check_batches(&self.batches)?;
        if let Some(part) = self.parts.iter().find(|part| network.find(part.name()).is_none()) {
            let problem = format!("`{}` has no layer `{}` to measure a part of", network.name(), part.name());
            return Err(invalid("parts", problem));
        }
        match network.opaque_layers().next() {
            Some((layer, opaque)) => {
                Err(ProfileError::Opaque { layer: layer.name().into(), op: opaque.op.clone() })
            }
            None => Ok(()),
        }
    }

    /// Returns the name of the device and the conditions of the measurement.
    fn describe(&self) -> (String, MeasurementConditions) {
        let device = self.engine.describe();
        let measurement = MeasurementConditions {
            profiler: MeasurementConditions::PROFILER.into(),
            libraries: device.libraries,
            clock_mhz: device.clock_mhz,
            precision: self.precision.label().into(),
            repeats: self.repeats,
        };
        (device.name, measurement)
    }

    fn run(
        &self,
        network: &LayerGraph,
        device: String,
        measurement: MeasurementConditions,
        journal: Option<&mut Journal<'_>>,
    ) -> Result<ProfileRun, ProfileError> {
        let progress = if self.progress {
            Progress::new(network, &self.parts, &self.batches)
        } else {
            Progress::hidden()
        };
        let resumed = journal.as_ref().map_or(0, |journal| journal.len());
        if resumed > 0 {
            progress.print_line(&format!("resumed from an earlier run: {resumed} measurements"));
        }
        let mut session = Session { profiler: self, network, journal, progress, measured: 0 };
        let layers = session.measure_layers()?;
        let parts = session.measure_parts()?;
        let whole = session.measure_whole_network()?;
        session.progress.finish();
        let table = ProfileTable::new(network.name(), device, Origin::Measured, layers, whole)?;
        let table = table.with_parts(parts)?;
        Ok(ProfileRun { table: table.with_measurement(measurement), measured: session.measured, resumed })
    }
}
