//! Plans that share the memory of their GPUs with a background job.

use crate::Error;
use crate::job::Job;
use crate::plan::PlanRequest;
use crate::planning::{PlanFrontier, find_frontier};
use crate::simulate::BackgroundCosts;

/// Finds the frontier of plans with memory for a background job on each GPU or, if there is none,
/// of plans without.
///
/// # Errors
/// As [`find_frontier`], and [`Error::Setting`] if the background job alone exceeds the memory of a
/// GPU.
pub(super) fn frontier_beside<'a>(
    job: &Job<'a>,
    request: &PlanRequest,
    background: &BackgroundCosts,
) -> Result<PlanFrontier<'a>, Error> {
    let room_bytes = background.memory_beside(request.memory_limit_bytes)?;
    match find_frontier(job, &request.clone().with_memory_limit(room_bytes)) {
        Err(error) if error.is_lack_of_memory() => find_frontier(job, request),
        found => found,
    }
}
