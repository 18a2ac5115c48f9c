//! Candidate configurations of a training job.

use crate::{AccuracyError, Configuration};

/// Batches of candidates, in samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Batches {
    /// Global batches, combined with every number of workers.
    Global(Vec<usize>),
    /// Samples per worker. The global batch is this number times the workers.
    PerWorker(Vec<usize>),
}

/// Candidate configurations: all combinations of workers, GPUs per worker, batches and
/// amplification limits.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidates {
    workers: Vec<usize>,
    gpus_per_worker: Vec<usize>,
    batches: Batches,
    limits: Vec<Option<f64>>,
    max_gpus: usize,
}

impl Candidates {
    /// Creates data-parallel candidates with the given numbers of workers, without amplification
    /// limits.
    #[must_use]
    pub fn new(workers: impl IntoIterator<Item = usize>, batches: Batches) -> Self {
        Self {
            workers: workers.into_iter().collect(),
            gpus_per_worker: vec![1],
            batches,
            limits: vec![None],
            max_gpus: usize::MAX,
        }
    }

    /// Sets the numbers of GPUs per worker. Default: 1.
    #[must_use]
    pub fn with_gpus_per_worker(mut self, gpus: impl IntoIterator<Item = usize>) -> Self {
        self.gpus_per_worker = gpus.into_iter().collect();
        self
    }

    /// Sets the amplification limits; `None` is no limit. Default: no limit.
    #[must_use]
    pub fn with_limits(mut self, limits: impl IntoIterator<Item = Option<f64>>) -> Self {
        self.limits = limits.into_iter().collect();
        self
    }

    /// Sets the maximum number of GPUs of a candidate, over all workers. Default: no maximum.
    #[must_use]
    pub fn with_max_gpus(mut self, gpus: usize) -> Self {
        self.max_gpus = gpus;
        self
    }

    /// Returns the batches of the candidates.
    pub(super) fn batches(&self) -> &Batches {
        &self.batches
    }

    /// Returns all distinct configurations, sorted by workers, GPUs per worker, batch and limit.
    ///
    /// # Errors
    /// [`AccuracyError::Empty`] if a list is empty, or if all candidates have more than the maximum
    /// number of GPUs. [`AccuracyError::OutOfRange`] for zeros, for limits that are below 1 or not
    /// finite, and if a number of GPUs or a global batch overflows `usize`.
    pub fn configurations(&self) -> Result<Vec<Configuration>, AccuracyError> {
        let (batches, per_worker) = match &self.batches {
            Batches::Global(batches) => (batches, false),
            Batches::PerWorker(batches) => (batches, true),
        };
        let workers = counts("workers", &self.workers)?;
        let widths = counts("GPUs a worker", &self.gpus_per_worker)?;
        let batches = counts("batches", batches)?;
        let limits = limits(&self.limits)?;
        let mut found = Vec::new();
        for &workers in &workers {
            for &gpus_per_worker in &widths {
                if product("GPUs", workers, gpus_per_worker)? > self.max_gpus {
                    continue;
                }
                for &batch in &batches {
                    let batch = if per_worker { product("samples", workers, batch)? } else { batch };
                    found.extend(limits.iter().map(|&limit| Configuration {
                        workers,
                        gpus_per_worker,
                        batch,
                        limit,
                    }));
                }
            }
        }
        if found.is_empty() {
            return Err(AccuracyError::Empty { name: "the list of candidates that fit on the GPUs" });
        }
        Ok(found)
    }
}

fn product(of: &str, workers: usize, each: usize) -> Result<usize, AccuracyError> {
    workers.checked_mul(each).ok_or_else(|| AccuracyError::OutOfRange {
        name: format!("the number of {of}"),
        value: format!("{workers} x {each}"),
        expected: "a number that a machine word holds",
    })
}

fn counts(name: &'static str, list: &[usize]) -> Result<Vec<usize>, AccuracyError> {
    let mut list = list.to_vec();
    list.sort_unstable();
    list.dedup();
    match list.first() {
        None => Err(AccuracyError::Empty { name }),
        Some(0) => {
            let name = format!("one of the {name}");
            Err(AccuracyError::OutOfRange { name, value: "0".into(), expected: "at least 1" })
        }
        Some(_) => Ok(list),
    }
}

fn limits(list: &[Option<f64>]) -> Result<Vec<Option<f64>>, AccuracyError> {
    if let Some(limit) = list.iter().flatten().find(|limit| !limit.is_finite() || **limit < 1.0) {
        let name = "an amplification limit".into();
        let expected = "finite and at least 1, or no limit";
        return Err(AccuracyError::OutOfRange { name, value: limit.to_string(), expected });
    }
    let mut list = list.to_vec();
    list.sort_by(|a, b| limit_order(*a).total_cmp(&limit_order(*b)));
    list.dedup();
    if list.is_empty() { Err(AccuracyError::Empty { name: "burst limits" }) } else { Ok(list) }
}

/// Returns the key by which amplification limits are sorted: no limit comes first, then ascending
/// limits.
pub(super) fn limit_order(limit: Option<f64>) -> f64 {
    limit.unwrap_or(f64::NEG_INFINITY)
}
