//! Searches that are stopped.

use burst_planner::testing::{RandomProblem, random_problem};
use burst_planner::{Error, SearchOptions, frontier};

#[test]
fn a_stopped_search_returns_an_error() {
    let RandomProblem { problem, costs, .. } = random_problem(7);
    let options = SearchOptions::default();
    assert!(frontier(&problem, &costs, &options).is_ok());
    options.stop.clone().stop();
    assert_eq!(frontier(&problem, &costs, &options).unwrap_err(), Error::Stopped);
}
