//! Background job of a rank: layers over a batch that can be divided by samples. A *unit* is one
//! product of small matrices, of which all computation consists.

use std::time::{Duration, Instant};

use gpu_mux::{Error, JobState, Policy, PolledJob, Upcoming, pieces};

use super::matrices::Matrices;

/// Number of samples of a batch.
const BATCH: usize = 64;
/// Number of layers.
const LAYERS: usize = 8;
/// Time of a layer for one sample.
const SAMPLE: Duration = Duration::from_micros(30);

/// Description of the background job in reports.
pub(super) const NAME: &str = "a network of 8 layers, each 30 us a sample, with a batch of 64";

/// A background job with an unlimited number of iterations.
pub(super) struct Background {
    /// Number of samples of each tasklet of an iteration.
    program: Vec<usize>,
    next: usize,
    units: usize,
    matrices: Matrices,
    input: f32,
    /// Number of pairs of a sample and a layer that are complete.
    layers_done: u64,
}

impl Background {
    /// Creates a job whose layers are divided into tasklets by the policy's micro-batch and maximum
    /// duration. `unit` is the duration of a unit.
    pub(super) fn new(policy: &Policy, unit: Duration) -> Self {
        let units = (SAMPLE.as_secs_f64() / unit.as_secs_f64()).round().max(1.0);
        let sample = unit.mul_f64(units);
        let max_samples = policy.background_micro_batch.map_or(BATCH, |max| max.get().min(BATCH));
        let bound = policy.background_piece.unwrap_or(Duration::MAX);
        let mut layer = Vec::new();
        let mut left = BATCH;
        while left > 0 {
            let samples = left.min(max_samples);
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

    /// Returns the number of samples processed since the job was created. A sample that has passed
    /// k of n layers counts as k / n.
    pub(super) fn samples(&self) -> f64 {
        self.layers_done as f64 / LAYERS as f64
    }

    /// Runs for at least `time` without a foreground, and returns the throughput in samples a
    /// second.
    ///
    /// # Errors
    /// If a tasklet fails.
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
        // Pieces of the same size share a site, because they take the same time.
        Ok(JobState::Ready(Upcoming { site: u32::try_from(self.program[self.next]).ok(), estimate: None }))
    }

    fn run(&mut self) -> Result<(), Error> {
        let samples = self.program[self.next];
        self.input = self.matrices.multiply_units(samples * self.units, self.input);
        self.layers_done += samples as u64;
        self.next = (self.next + 1) % self.program.len();
        Ok(())
    }
}
