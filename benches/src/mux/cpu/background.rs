//! A job that a rank does by itself: layers over a batch, cut by samples.

use std::time::{Duration, Instant};

use gpu_mux::{Error, JobState, Policy, PolledJob, Upcoming, pieces};

use super::work::Matrices;

/// Samples of a batch.
const BATCH: usize = 64;
/// Layers, all alike.
const LAYERS: usize = 8;
/// How long a layer takes for one sample.
const SAMPLE: Duration = Duration::from_micros(30);

/// How it is called in reports.
pub(super) const NAME: &str = "a network of 8 layers, each 30 us a sample, with a batch of 64";

/// Endless iterations.
pub(super) struct Background {
    /// Samples of each tasklet of an iteration.
    program: Vec<usize>,
    next: usize,
    units: usize,
    matrices: Matrices,
    input: f32,
    /// Samples that have gone through a layer.
    layers_done: u64,
}

impl Background {
    /// Cut as a policy wants it.
    pub(super) fn new(policy: &Policy, unit: Duration) -> Self {
        let units = (SAMPLE.as_secs_f64() / unit.as_secs_f64()).round().max(1.0);
        let sample = unit.mul_f64(units);
        let most = policy.background_micro_batch.map_or(BATCH, |most| most.get().min(BATCH));
        let bound = policy.background_piece.unwrap_or(Duration::MAX);
        let mut layer = Vec::new();
        let mut left = BATCH;
        while left > 0 {
            let samples = left.min(most);
            let takes = sample.mul_f64(samples as f64);
            layer.extend(pieces(takes, samples, bound).map(|piece| piece.samples.len()));
            left -= samples;
        }
        Self {
            program: layer.repeat(LAYERS),
            next: 0,
            units: units as usize,
            matrices: Matrices::new(),
            input: 0.5,
            layers_done: 0,
        }
    }

    /// Samples that have gone through all layers, with parts.
    pub(super) fn samples(&self) -> f64 {
        self.layers_done as f64 / LAYERS as f64
    }

    /// Runs by itself for a time, and gives its samples by second.
    pub(super) fn alone(&mut self, time: Duration) -> Result<f64, Error> {
        let (before, began) = (self.samples(), Instant::now());
        while began.elapsed() < time {
            self.run()?;
        }
        Ok((self.samples() - before) / began.elapsed().as_secs_f64())
    }
}

impl PolledJob for Background {
    type Error = Error;

    fn poll(&mut self) -> Result<JobState, Error> {
        // Pieces of the same size take the same time: what is learned of one holds for all.
        Ok(JobState::Ready(Upcoming { site: u32::try_from(self.program[self.next]).ok(), estimate: None }))
    }

    fn run(&mut self) -> Result<(), Error> {
        let samples = self.program[self.next];
        self.input = self.matrices.work(samples * self.units, self.input);
        self.layers_done += samples as u64;
        self.next = (self.next + 1) % self.program.len();
        Ok(())
    }
}
