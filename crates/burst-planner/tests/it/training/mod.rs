//! Training programs: their time, and the search by it.

mod evaluator;
mod json;
mod memory;
mod quality;
mod replicated;
mod shared_parameters;
mod timeline;

use burst_planner::Arrangement;

/// Whether an arrangement is one of those that are enumerated: all its lists of ranks are ascending.
fn is_ascending(arrangement: &Arrangement) -> bool {
    arrangement.ranks.iter().all(|ranks| ranks.is_sorted())
}

/// How many random cases a test goes through.
fn cases(usual: u64) -> u64 {
    std::env::var("BURST_PLANNER_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(usual)
}
