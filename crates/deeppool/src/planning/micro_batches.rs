//! Batches cut into micro-batches.

use layer_engine::Role;

use crate::job::Job;
use crate::program::LowerOptions;

/// The same job with its batch cut into 2, 4, 8 or more micro-batches, as far as they are all of the same size. None where that
/// would change what is learned, as it does with batch normalisation, or the batch is cut already.
pub(super) fn cuts<'a>(job: &Job<'a>) -> impl Iterator<Item = Job<'a>> {
    let most = if can_be_cut(job) { job.batch() } else { 1 };
    let counts = std::iter::successors(Some(2), |&count: &usize| count.checked_mul(2));
    let counts = counts.take_while(move |&count| count <= most && job.batch() % count == 0);
    counts.map(|micro_batches| job.with_lowering(LowerOptions { micro_batches, ..job.lowering().clone() }))
}

/// Whether micro-batches leave what is learned unchanged.
fn can_be_cut(job: &Job<'_>) -> bool {
    let mut layers = job.costs().network().layers();
    job.lowering().micro_batches == 1 && layers.all(|(_, layer)| Role::Statistics.elements(layer, 0) == 0)
}
