//! Integration tests of the planner.

mod evaluator;
mod json;
mod memory;
mod original;
mod original_data;
mod original_failures;
mod per_layer;
mod placement;
mod problem;
mod proof;
mod quality;
mod replicated;
mod shared_parameters;
mod splits;
mod stop;
mod timeline;

use burst_planner::Arrangement;

/// Returns whether every node's ranks are ascending, as in all enumerated arrangements.
fn is_ascending(arrangement: &Arrangement) -> bool {
    arrangement.ranks.iter().all(|ranks| ranks.is_sorted())
}

/// Returns the number of random cases of a test: `BURST_PLANNER_CASES`, or `usual`.
fn cases(usual: u64) -> u64 {
    std::env::var("BURST_PLANNER_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(usual)
}
