//! Sources of the batches of a run.

use std::ops::Range;

use layer_engine::random::{Purpose, RandomStream};

use crate::Error;
use crate::data::Samples;
use crate::program::BatchPart;
use crate::runtime::BatchSource;

/// Source of batches of training samples, epoch after epoch: in the order of the data set, or
/// [shuffled](Self::shuffled). An incomplete batch at the end of an epoch is skipped.
#[derive(Debug, Clone)]
pub struct Epochs<'a> {
    samples: &'a Samples,
    batch: usize,
    /// Seed of the order of each epoch, if they are shuffled.
    seed: Option<u64>,
    /// The epoch of `order`.
    epoch: Option<u64>,
    order: Vec<usize>,
}

impl<'a> Epochs<'a> {
    /// Creates a source of batches of `batch` samples. `batch` is clamped to the range from 1 to
    /// the number of samples.
    #[must_use]
    pub fn new(samples: &'a Samples, batch: usize) -> Self {
        let batch = batch.clamp(1, samples.len().max(1));
        Self { samples, batch, seed: None, epoch: None, order: Vec::new() }
    }

    /// Shuffles the samples in each epoch. The order depends only on the seed and the epoch.
    #[must_use]
    pub fn shuffled(self, seed: u64) -> Self {
        Self { seed: Some(seed), ..self }
    }
}

impl BatchSource for Epochs<'_> {
    fn load(
        &mut self,
        iteration: u64,
        part: BatchPart,
        samples: Range<usize>,
        elements: Range<usize>,
        out: &mut Vec<f32>,
    ) -> Result<(), Error> {
        let batches = (self.samples.len() / self.batch) as u64;
        let (epoch, batch) = (iteration / batches.max(1), iteration % batches.max(1));
        if self.epoch != Some(epoch) {
            self.order.clear();
            self.order.extend(0..self.samples.len());
            if let Some(seed) = self.seed {
                RandomStream::new(seed, Purpose::Shuffle, epoch, "", 0).shuffle(&mut self.order);
            }
            self.epoch = Some(epoch);
        }
        let first = batch as usize * self.batch;
        let indices = self.order[first + samples.start..first + samples.end].iter().copied();
        append((self.samples, indices), part, &elements, out);
        Ok(())
    }
}

/// Source of batches in the order of the data set: batch `i` begins at sample `i * batch`.
#[derive(Debug, Clone)]
pub struct InOrder<'a> {
    samples: &'a Samples,
    batch: usize,
}

impl<'a> InOrder<'a> {
    /// Creates a source of batches of `batch` samples.
    #[must_use]
    pub fn new(samples: &'a Samples, batch: usize) -> Self {
        Self { samples, batch }
    }
}

impl BatchSource for InOrder<'_> {
    fn load(
        &mut self,
        iteration: u64,
        part: BatchPart,
        samples: Range<usize>,
        elements: Range<usize>,
        out: &mut Vec<f32>,
    ) -> Result<(), Error> {
        let first = iteration as usize * self.batch;
        let indices = first + samples.start..first + samples.end;
        append((self.samples, indices), part, &elements, out);
        Ok(())
    }
}

/// Appends a range of the features or labels of each of the samples with these indices.
fn append(
    (samples, indices): (&Samples, impl Iterator<Item = usize>),
    part: BatchPart,
    elements: &Range<usize>,
    out: &mut Vec<f32>,
) {
    for index in indices {
        let all = match part {
            BatchPart::Features => samples.features(index),
            BatchPart::Labels => samples.labels_of(index),
        };
        out.extend_from_slice(all.get(elements.clone()).unwrap_or_default());
    }
}
