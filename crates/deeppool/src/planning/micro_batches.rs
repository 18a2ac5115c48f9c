//! Jobs with their batch split into micro-batches.

use layer_engine::Role;

use crate::job::Job;
use crate::program::LowerOptions;

/// Returns the job, and then the job with 2, 4, 8 and more micro-batches, while they have equal
/// sizes. Only the job if it has micro-batches already, or if they would change the result of
/// training, as with batch normalisation.
pub(super) fn with_micro_batches<'a>(job: &Job<'a>) -> impl Iterator<Item = Job<'a>> {
    let max_count = if can_be_cut(job) { job.batch() } else { 1 };
    let counts = std::iter::successors(Some(2), |&count: &usize| count.checked_mul(2));
    let counts = counts.take_while(move |&count| count <= max_count && job.batch() % count == 0);
    let cut = counts
        .map(|micro_batches| job.with_lowering(LowerOptions { micro_batches, ..job.lowering().clone() }));
    std::iter::once(job.clone()).chain(cut)
}

/// Returns whether micro-batches leave the result of training unchanged.
pub(super) fn can_be_cut(job: &Job<'_>) -> bool {
    let mut layers = job.costs().network().layers();
    job.lowering().micro_batches == 1 && layers.all(|(_, layer)| Role::Statistics.elements(layer, 0) == 0)
}
