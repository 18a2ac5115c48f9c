mod assembly;
mod conditions;
mod fill;
mod journal;
mod progress;
mod rig;
mod sampling;
mod session;
mod timing;

use std::path::{Path, PathBuf};

use layer_engine::{Engine, Precision};
use layer_graph::LayerGraph;

use crate::table::check_batches;
use crate::{MeasurementConditions, Origin, ProfileError, ProfileTable};
use conditions::Conditions;
use journal::Journal;
use progress::Progress;
use session::Session;

/// Measures how long an engine takes for each layer of a network, and for the network as a whole.
///
/// A time is the median of the repeats; the table also holds their median absolute deviation, how many of them were
/// outliers (more than five deviations, and more than 1% of the median, from the median), and what ran where: the device,
/// the versions, the clock, the repeats.
///
/// Before the repeats the work runs until it is warm: until the medians of two successive windows of three samples are
/// within 5% of each other. After 24 samples or 10 seconds the warm-up gives up, and the time is marked as
/// [unsteady](crate::Spread::unsteady). Work that takes less than 100 us is launched several times a sample, so that
/// neither the clock's resolution nor synchronization dominates. Samples are taken by [`Engine::time`], which a device may
/// measure by its own clock.
///
/// Layers are measured one at a time on synthetic data, without the gradient of their inputs where these are the
/// network's. The whole network is measured in runs of all forward passes, all backward passes (with the sums of
/// gradients where branches meet, which belong to no layer) and all optimiser steps. Memory holds one layer at one batch
/// size, or the whole network at one batch size.
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
    progress: bool,
}

/// What [`Profiler::profile_to`] did.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ProfileRun {
    /// The profile, as it is in the file.
    pub table: ProfileTable,
    /// How many measurements this run made: a layer at a batch size, or the whole network at a batch size.
    pub measured: usize,
    /// How many measurements were taken over from an earlier run that was stopped.
    pub resumed: usize,
}

impl<'a, E: Engine<Scalar: From<f32>>> Profiler<'a, E> {
    /// A profiler of what this engine runs on. It measures in single precision, at batches of 1, 2, 4, 8, 16 and 32, with
    /// 10 repeats and no progress bar.
    #[must_use]
    pub fn new(engine: &'a E) -> Self {
        Self {
            engine,
            batches: vec![1, 2, 4, 8, 16, 32],
            repeats: 10,
            precision: Precision::F32,
            progress: false,
        }
    }

    /// Sets the batch sizes, ascending.
    #[must_use]
    pub fn batches(mut self, batches: impl Into<Vec<usize>>) -> Self {
        self.batches = batches.into();
        self
    }

    /// Sets how often a measurement is repeated, at least once. Fewer than ten repeats say little about the spread: good for
    /// a quick look, not for a profile that is kept.
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

    /// Shows a progress bar on the standard error stream, if that is a terminal.
    #[must_use]
    pub fn progress(mut self, progress: bool) -> Self {
        self.progress = progress;
        self
    }

    /// Measures a network.
    ///
    /// # Errors
    /// [`ProfileError::Batches`] when the batch sizes are none, zero or not ascending; [`ProfileError::Opaque`] when a layer is;
    /// [`ProfileError::Engine`] when the engine fails; [`ProfileError::Invalid`] when the network has no layer but its input.
    pub fn profile(&self, network: &LayerGraph) -> Result<ProfileTable, ProfileError> {
        self.check(network)?;
        let (device, measurement) = self.describe();
        Ok(self.run(network, device, measurement, None)?.table)
    }

    /// Measures a network and [saves](ProfileTable::save) the profile.
    ///
    /// Every measurement goes into a journal beside the file ([`journal_path`](Self::journal_path)) as soon as it is
    /// finished. When this run fails or is killed, the next one with the same file takes them over and measures what is
    /// left. The journal is deleted when the profile is on disk. It outlives this process, not a crash of the system; two
    /// runs must not write the same file at the same time. What is no file, such as a pipe, has no journal.
    ///
    /// # Errors
    /// Those of [`profile`](Self::profile); [`ProfileError::Journal`] when there is a journal that is damaged, or of another
    /// network, device, version, precision, number of repeats or choice of batch sizes; [`ProfileError::File`] when a file
    /// cannot be written.
    pub fn profile_to(
        &self,
        network: &LayerGraph,
        path: impl AsRef<Path>,
    ) -> Result<ProfileRun, ProfileError> {
        self.check(network)?;
        let (device, measurement) = self.describe();
        if !whole_file::is_file(&path)? {
            let run = self.run(network, device, measurement, None)?;
            run.table.save(path)?;
            return Ok(run);
        }
        let conditions = Conditions::new(network, &device, &measurement, &self.batches);
        let mut journal = Journal::open(Self::journal_path(&path), &conditions)?;
        let run = self.run(network, device, measurement, Some(&mut journal))?;
        run.table.save(path)?;
        journal.remove()?;
        Ok(run)
    }

    /// Where [`profile_to`](Self::profile_to) keeps what is finished: the file's name with `.partial` behind it.
    #[must_use]
    pub fn journal_path(profile: impl AsRef<Path>) -> PathBuf {
        let mut path = profile.as_ref().as_os_str().to_owned();
        path.push(".partial");
        path.into()
    }

    /// Whether this network can be measured at these batch sizes, before anything is.
    fn check(&self, network: &LayerGraph) -> Result<(), ProfileError> {
        check_batches(&self.batches)?;
        match network.opaque_layers().next() {
            Some((layer, opaque)) => {
                Err(ProfileError::Opaque { layer: layer.name().into(), op: opaque.op.clone() })
            }
            None => Ok(()),
        }
    }

    /// The device's name, and how measurements are made on it.
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
        journal: Option<&mut Journal>,
    ) -> Result<ProfileRun, ProfileError> {
        let progress = if self.progress { Progress::new(network, &self.batches) } else { Progress::hidden() };
        let resumed = journal.as_ref().map_or(0, |journal| journal.len());
        if resumed > 0 {
            progress.say(&format!("taken over from an earlier run: {resumed} measurements"));
        }
        let mut session = Session { profiler: self, network, journal, progress, measured: 0 };
        let layers = session.layers()?;
        let whole = session.whole()?;
        session.progress.finish();
        let table = ProfileTable::new(network.name(), device, Origin::Measured, layers, whole)?;
        Ok(ProfileRun { table: table.with_measurement(measurement), measured: session.measured, resumed })
    }
}
