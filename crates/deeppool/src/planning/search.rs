//! The planner's search with the options of a request.

use burst_planner::{Frontier, PlanProblem, SearchOptions, frontier};

use crate::Error;
use crate::job::JobCosts;
use crate::plan::PlanRequest;

/// Maximum number of entries of a table of layers x GPU counts x GPUs.
const MAX_TABLE_ENTRIES: usize = 200_000_000;

/// Searches for the Pareto frontier of a problem with the request's effort and stop signal.
///
/// # Errors
/// [`Error::Planner`] if no arrangement is within the memory limit, or the search was stopped.
pub(super) fn search(
    problem: &PlanProblem,
    costs: JobCosts<'_>,
    request: &PlanRequest,
) -> Result<Frontier, Error> {
    let mut options = SearchOptions::default();
    options.effort = request.effort;
    options.stop = request.stop.clone();
    Ok(frontier(problem, costs, &options)?)
}

/// Checks that a table of `layers` x `counts` x `gpus` entries is not too large for the search.
/// `counts` is the number of different GPU counts.
///
/// # Errors
/// [`Error::Setting`] if it would have more than 200,000,000 entries.
pub(super) fn check_size(layers: usize, counts: usize, gpus: usize) -> Result<(), Error> {
    if layers.saturating_mul(counts).saturating_mul(gpus) <= MAX_TABLE_ENTRIES {
        return Ok(());
    }
    Err(Error::Setting {
        setting: "the size of a plan, layers x GPU counts x GPUs,",
        expected: "at most 200,000,000: give fewer GPUs or fewer GPU counts",
        got: format!("{layers} x {counts} x {gpus}"),
    })
}
