mod assembly;
mod fill;
mod rig;
mod timing;

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use layer_engine::{Engine, EngineError, Precision};
use layer_graph::{LayerGraph, LayerId, LayerKind};

use crate::table::check_batches;
use crate::time::Spread;
use crate::{BatchTime, LayerProfile, LayerTime, NetworkTime, Origin, ProfileError, ProfileTable};
use assembly::Assembly;
use rig::{Phase, Rig};
use timing::Timing;

/// Measures how long an engine takes for each layer of a network, and for the network as a whole.
///
/// Every kernel runs until it is warm (two runs within 20% of each other, at most ten), then as often as there are
/// repeats; the table holds the medians and, for layers, the median absolute deviations. A kernel that takes less than
/// 20 us is launched several times a repeat, so that neither the clock nor the queue's end is what is measured.
///
/// Layers are measured one at a time on made-up numbers, without the gradient of their inputs where these are the
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
/// let table = Profiler::new(&engine, "one core").batches([1, 4]).repeats(3).profile(&network)?;
/// println!("conv3, 2 samples: {:?}", table.time("conv3", 2)?.forward);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Profiler<'a, E> {
    engine: &'a E,
    device: String,
    batches: Vec<usize>,
    repeats: usize,
    precision: Precision,
    progress: bool,
}

impl<'a, E: Engine<Scalar: From<f32>>> Profiler<'a, E> {
    /// A profiler of what this engine runs on, under the name that the table is to give the device. It measures in single
    /// precision, at batches of 1, 2, 4, 8, 16 and 32, with 10 repeats and no progress bar.
    #[must_use]
    pub fn new(engine: &'a E, device: impl Into<String>) -> Self {
        Self {
            engine,
            device: device.into(),
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

    /// Sets how often a measurement is repeated, at least once.
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
    /// [`ProfileError::Batches`] when the batch sizes are none, zero or not ascending; [`ProfileError::Engine`] when the
    /// engine fails; [`ProfileError::Invalid`] when the network has no layer but its input.
    pub fn profile(&self, network: &LayerGraph) -> Result<ProfileTable, ProfileError> {
        check_batches(&self.batches)?;
        let bar = self.progress_bar(network.len() * self.batches.len());
        let mut layers = Vec::with_capacity(network.len() - 1);
        for (id, layer) in network.layers().filter(|(_, layer)| *layer.kind() != LayerKind::Input) {
            bar.set_message(layer.name().to_owned());
            layers.push(self.layer(network, id, &bar)?);
        }
        bar.set_message("the whole network");
        let mut whole = Vec::with_capacity(self.batches.len());
        for &batch in &self.batches {
            let assembly = Assembly::new(self.engine, network, batch, self.precision);
            let time = assembly.and_then(Assembly::network).and_then(|mut rig| self.network(&mut rig));
            let subject = || format!("network `{}`", network.name());
            whole.push(NetworkTime { batch, time: time.map_err(failure(subject, batch))? });
            bar.inc(1);
        }
        bar.finish_and_clear();
        ProfileTable::new(network.name(), self.device.as_str(), Origin::Measured, layers, whole)
    }

    fn layer(
        &self,
        network: &LayerGraph,
        id: LayerId,
        bar: &ProgressBar,
    ) -> Result<LayerProfile, ProfileError> {
        let layer = network.layer(id);
        let mut times = Vec::with_capacity(self.batches.len());
        let mut update = None;
        for &batch in &self.batches {
            let subject = || format!("layer `{}`", layer.name());
            let mut measure = || {
                let mut rig = Assembly::new(self.engine, network, batch, self.precision)?.layer(id)?;
                let forward = self.phase(&mut rig, Phase::Forward)?;
                let backward = self.phase(&mut rig, Phase::Backward)?;
                // The update does not depend on the batch.
                if update.is_none() && network.own_parameter_count(id) > 0 {
                    update = Some(self.phase(&mut rig, Phase::Update)?.median);
                }
                Ok((forward, backward))
            };
            let (forward, backward) = measure().map_err(failure(subject, batch))?;
            times.push(BatchTime {
                batch,
                forward: forward.median,
                backward: backward.median,
                spread: Some(Spread { forward: forward.deviation, backward: backward.deviation }),
            });
            bar.inc(1);
        }
        Ok(LayerProfile { name: layer.name().into(), kind: layer.kind().label().into(), update, times })
    }

    /// The times of one phase on its own, launched over and over.
    fn phase(&self, rig: &mut Rig<'_, E>, phase: Phase) -> Result<Timing, EngineError> {
        if rig.is_idle(phase) {
            return Ok(Timing::default());
        }
        let once = timing::warm_up(|| rig.time(phase, 1))?;
        let launches = timing::launches(once);
        let mut samples = Vec::with_capacity(self.repeats);
        for _ in 0..self.repeats {
            samples.push(rig.time(phase, launches)? / launches);
        }
        Ok(Timing::of(samples))
    }

    /// The times of the three phases, run one after another as in training.
    fn network(&self, rig: &mut Rig<'_, E>) -> Result<LayerTime, EngineError> {
        let mut run = || -> Result<[Duration; 3], EngineError> {
            Ok([rig.time(Phase::Forward, 1)?, rig.time(Phase::Backward, 1)?, rig.time(Phase::Update, 1)?])
        };
        timing::warm_up(|| Ok(run()?.iter().sum()))?;
        let runs = (0..self.repeats).map(|_| run()).collect::<Result<Vec<_>, _>>()?;
        let median = |phase: usize| Timing::of(runs.iter().map(|run| run[phase]).collect()).median;
        Ok(LayerTime { forward: median(0), backward: median(1), update: median(2) })
    }

    fn progress_bar(&self, steps: usize) -> ProgressBar {
        if !self.progress {
            return ProgressBar::hidden();
        }
        // Draws on the standard error stream, and nothing at all where that is not a terminal.
        let bar = ProgressBar::new(steps as u64);
        match ProgressStyle::with_template("profiling {bar:30} {pos}/{len} {msg}") {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        }
    }
}

fn failure(subject: impl Fn() -> String, batch: usize) -> impl Fn(EngineError) -> ProfileError {
    move |source| ProfileError::Engine { subject: subject(), batch, source }
}
