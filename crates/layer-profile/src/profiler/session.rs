//! One run of the profiler over a network.

use std::time::Duration;

use layer_engine::{Engine, EngineError};
use layer_graph::{Layer, LayerGraph, LayerId};

use super::builder::WorkloadBuilder;
use super::journal::Journal;
use super::progress::{self, Progress};
use super::timing::Timing;
use super::workload::Phase;
use super::{Profiler, sampling};
use crate::{BatchSpread, BatchTime, LayerProfile, LayerTime, NetworkSpread, NetworkTime, ProfileError};

/// Run of a profiler over a network: takes finished measurements from the journal, makes the others
/// and appends them. A measurement is that of a layer, of a part of a layer, or of the whole
/// network, at one batch size.
pub(super) struct Session<'a, 'f, E> {
    /// Profiler whose settings are used.
    pub(super) profiler: &'a Profiler<'a, E>,
    /// Network that is measured.
    pub(super) network: &'a LayerGraph,
    /// Journal of finished measurements. `None` if they are not recorded.
    pub(super) journal: Option<&'a mut Journal<'f>>,
    /// Progress bar of the run.
    pub(super) progress: Progress,
    /// Number of measurements made by this run.
    pub(super) measured: usize,
}

impl<E: Engine<Scalar: From<f32>>> Session<'_, '_, E> {
    /// Measures each layer separately at all batch sizes of the profiler, without the input layers.
    /// Returns the rows in topological order.
    ///
    /// # Errors
    /// [`ProfileError::Engine`] if the engine fails, and [`ProfileError::JournalFile`] if the
    /// journal cannot be written.
    pub(super) fn measure_layers(&mut self) -> Result<Vec<LayerProfile>, ProfileError> {
        let network = self.network;
        let mut layers = Vec::with_capacity(network.len());
        for (id, _) in network.computing_layers() {
            layers.extend(self.measure_rows(id, None)?);
        }
        Ok(layers)
    }

    /// Measures each part of a layer separately at all batch sizes of the profiler.
    ///
    /// # Errors
    /// As [`measure_layers`](Self::measure_layers).
    pub(super) fn measure_parts(&mut self) -> Result<Vec<LayerProfile>, ProfileError> {
        let (profiler, network) = (self.profiler, self.network);
        let mut rows = Vec::with_capacity(profiler.parts.len());
        for part in &profiler.parts {
            if let Some(id) = network.find(part.name()) {
                rows.extend(self.measure_rows(id, Some(part))?);
            }
        }
        Ok(rows)
    }

    /// Measures a layer, or a part of it, at all batch sizes. `None` without batch sizes.
    fn measure_rows(
        &mut self,
        id: LayerId,
        part: Option<&Layer>,
    ) -> Result<Option<LayerProfile>, ProfileError> {
        let layer = part.unwrap_or(self.network.layer(id));
        let name = layer.name();
        let subject = if part.is_some() { format!("a part of `{name}`") } else { format!("layer `{name}`") };
        let mut rows: Option<LayerProfile> = None;
        for &batch in &self.profiler.batches {
            let work = progress::layer_work(layer, batch);
            let finished = self.journal.as_ref().and_then(|journal| match part {
                Some(part) => journal.part(part, batch),
                None => journal.layer(name, batch),
            });
            let row = if let Some(row) = finished {
                self.progress.skip(work);
                row.clone()
            } else {
                self.progress.show(&subject, batch);
                // The update does not depend on the batch size.
                let row = self.measure_layer((id, part), batch, rows.is_none());
                let row = row.map_err(failure(|| subject.clone(), batch))?;
                match &mut self.journal {
                    Some(journal) if part.is_some() => journal.add_part(&row)?,
                    Some(journal) => journal.add_layer(&row)?,
                    None => {}
                }
                self.measured += 1;
                self.progress.advance(work);
                row
            };
            match &mut rows {
                Some(rows) => rows.times.extend(row.times),
                None => rows = Some(row),
            }
        }
        Ok(rows)
    }

    /// Measures the whole network at all batch sizes of the profiler, in ascending order.
    ///
    /// # Errors
    /// [`ProfileError::Engine`] if the engine fails, and [`ProfileError::JournalFile`] if the
    /// journal cannot be written.
    pub(super) fn measure_whole_network(&mut self) -> Result<Vec<NetworkTime>, ProfileError> {
        let mut rows = Vec::with_capacity(self.profiler.batches.len());
        for &batch in &self.profiler.batches {
            let work = progress::network_work(self.network, batch);
            if let Some(row) = self.journal.as_ref().and_then(|journal| journal.network(batch)) {
                self.progress.skip(work);
                rows.push(row);
                continue;
            }
            self.progress.show("the whole network", batch);
            let subject = || format!("network `{}`", self.network.name());
            let row = self.measure_network(batch).map_err(failure(subject, batch))?;
            if let Some(journal) = &mut self.journal {
                journal.add_network(&row)?;
            }
            self.measured += 1;
            self.progress.advance(work);
            rows.push(row);
        }
        Ok(rows)
    }

    fn builder(&self, batch: usize) -> Result<WorkloadBuilder<'_, E>, EngineError> {
        WorkloadBuilder::new(self.profiler.engine, self.network, batch, self.profiler.precision)
    }

    /// Measures a layer, or a part of it, at one batch size.
    fn measure_layer(
        &self,
        (id, part): (LayerId, Option<&Layer>),
        batch: usize,
        with_update: bool,
    ) -> Result<LayerProfile, EngineError> {
        let mut workload = self.builder(batch)?.layer(id, part)?;
        let forward = workload.measure(Phase::Forward, self.profiler.repeats)?;
        let backward = workload.measure(Phase::Backward, self.profiler.repeats)?;
        let has_update = with_update && !workload.is_empty(Phase::Update);
        let update =
            has_update.then(|| workload.measure(Phase::Update, self.profiler.repeats)).transpose()?;
        let spread = BatchSpread { forward: forward.spread, backward: backward.spread };
        let (forward, backward) = (forward.median, backward.median);
        let times = vec![BatchTime { batch, forward, backward, spread: Some(spread) }];
        let median = update.map(|update| update.median);
        let row = match part {
            Some(part) => LayerProfile::of_part(part, median, times),
            None => LayerProfile::new(self.network, id, median, times),
        };
        Ok(LayerProfile { update_spread: update.map(|update| update.spread), ..row })
    }

    /// Measures the three phases, run in sequence as in training.
    fn measure_network(&self, batch: usize) -> Result<NetworkTime, EngineError> {
        let mut workload = self.builder(batch)?.network()?;
        let mut once = |phase| workload.time(phase, |stopwatch| stopwatch(1));
        let mut run = || -> Result<[Duration; 3], EngineError> {
            Ok([once(Phase::Forward)?, once(Phase::Backward)?, once(Phase::Update)?])
        };
        let stable = sampling::warm_up(|| Ok(run()?.iter().sum()))?;
        let runs = (0..self.profiler.repeats).map(|_| run()).collect::<Result<Vec<_>, EngineError>>()?;
        let timing = |phase: Phase| {
            let samples: Vec<Duration> = runs.iter().map(|run| run[phase as usize]).collect();
            Timing::of(&samples, stable)
        };
        let [forward, backward, update] = [Phase::Forward, Phase::Backward, Phase::Update].map(timing);
        Ok(NetworkTime {
            batch,
            time: LayerTime { forward: forward.median, backward: backward.median, update: update.median },
            spread: Some(NetworkSpread {
                forward: forward.spread,
                backward: backward.spread,
                update: update.spread,
            }),
        })
    }
}

fn failure(subject: impl Fn() -> String, batch: usize) -> impl Fn(EngineError) -> ProfileError {
    move |problem| ProfileError::Engine { subject: subject(), batch, problem }
}
