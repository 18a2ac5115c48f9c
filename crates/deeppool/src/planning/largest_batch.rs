//! The largest batch that is within a memory limit, for the error of a batch that is not.

use burst_planner::Error as Unplanned;

use super::checkpoint_choice::choose_checkpoints;
use super::micro_batches::can_be_cut;
use super::program_memory::{data_parallel_gpus, data_parallel_on};
use crate::Error;
use crate::job::Job;
use crate::plan::PlanRequest;
use crate::program::{LowerOptions, PartialBackpropagation};

/// Returns the error of a job without a plan, with the largest batch for which data parallelism is
/// within the memory limit with recomputed activations or micro-batches. O(log batch) choices of
/// checkpoints.
///
/// # Errors
/// As [`choose_checkpoints`].
pub(super) fn with_largest_batch(
    unplanned: Unplanned,
    job: &Job<'_>,
    request: &PlanRequest,
) -> Result<Error, Error> {
    let Unplanned::MemoryExceeded { limit_bytes, .. } = unplanned else {
        return Ok(Error::Planner(unplanned));
    };
    let limits = Limits::new(job, request, limit_bytes)?;
    let largest = (1..job.batch()).rev().find(|&batch| limits.allow(batch)).unwrap_or(0);
    Ok(if largest == 0 { Error::Planner(unplanned) } else { Error::BatchTooLarge { unplanned, largest } })
}

/// Maximum numbers of samples of a micro-batch with data parallelism.
struct Limits {
    /// Number of micro-batches of the job.
    micro_batches: usize,
    /// With that number of micro-batches.
    uncut: usize,
    /// With 2 or more micro-batches, which need memory for sums of gradients; 0 if the batch of the
    /// job cannot be cut.
    cut: usize,
}

impl Limits {
    fn new(job: &Job<'_>, request: &PlanRequest, limit_bytes: u64) -> Result<Self, Error> {
        let micro_batches = job.lowering().micro_batches.max(1);
        let max_samples = |micro_batches: usize| -> Result<usize, Error> {
            let job = job.with_lowering(LowerOptions { micro_batches, ..job.lowering().clone() });
            // The maximum is in this range. Every part of partial backpropagation has a sample.
            let mut fits = job.lowering().partial.as_ref().map_or(1, PartialBackpropagation::parts) - 1;
            let mut exceeds = (job.batch() / micro_batches + 1).max(fits + 1);
            let min_fits = fits;
            while exceeds - fits > 1 {
                request.stop.check()?;
                let samples = fits + (exceeds - fits) / 2;
                let job = job.with_batch(samples * micro_batches);
                let arrangement = data_parallel_on(&job, data_parallel_gpus(request, samples));
                let is_within = match choose_checkpoints(&job, request.gpus, &arrangement, limit_bytes) {
                    Ok(choice) => choice.fastest.is_some(),
                    // A measured profile may lack times of a shard.
                    Err(Error::Profile(_)) => false,
                    Err(error) => return Err(error),
                };
                *(if is_within { &mut fits } else { &mut exceeds }) = samples;
            }
            Ok(if fits == min_fits { 0 } else { fits })
        };
        let uncut = max_samples(micro_batches)?;
        let cut = if can_be_cut(job) { max_samples(2)? } else { 0 };
        Ok(Self { micro_batches, uncut, cut })
    }

    /// Returns whether data parallelism with a batch is within the limit.
    fn allow(&self, batch: usize) -> bool {
        if batch % self.micro_batches == 0 && batch / self.micro_batches <= self.uncut {
            return true;
        }
        // The maximum number of micro-batches.
        let parts = 1_usize << batch.trailing_zeros();
        parts > 1 && batch / parts <= self.cut
    }
}
