use std::time::Duration;

use crate::Error;
use crate::costs::Costs;

/// What one training iteration of a background job costs on a device of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct BackgroundCosts {
    batch: usize,
    tasklets: Vec<Duration>,
}

impl BackgroundCosts {
    /// The iteration of a network with this batch on one device: each layer's forward step, its backward step, and its
    /// optimiser step are tasklets.
    ///
    /// # Errors
    /// When the batch is empty or the profile lacks a time.
    pub fn new(costs: &Costs<'_>, batch: usize) -> Result<Self, Error> {
        if batch == 0 {
            return Err(Error::EmptyBatch);
        }
        let times: Result<Vec<_>, _> =
            costs.network().layers().skip(1).map(|(id, _)| costs.layer_time(id, batch)).collect();
        let times = times?;
        let forward = times.iter().map(|time| time.forward);
        let backward = times.iter().rev().map(|time| time.backward);
        let update = times.iter().map(|time| time.update);
        let tasklets = forward.chain(backward).chain(update).filter(|time| !time.is_zero()).collect();
        Ok(Self { batch, tasklets })
    }

    /// Samples of an iteration.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// How long an iteration takes on a device of its own.
    #[must_use]
    pub fn iteration(&self) -> Duration {
        self.tasklets.iter().sum()
    }

    /// Samples by second on a device of its own.
    #[must_use]
    pub fn samples_per_s(&self) -> f64 {
        self.batch as f64 / self.iteration().as_secs_f64()
    }

    /// Each tasklet's time and the samples by which it may be cut.
    pub(super) fn tasklets(&self) -> impl Iterator<Item = (Duration, usize)> + '_ {
        self.tasklets.iter().map(|&takes| (takes, self.batch))
    }
}
