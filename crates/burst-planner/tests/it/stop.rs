//! Searches that are told to stop.

use burst_planner::testing::{RandomProblem, random_problem};
use burst_planner::{Error, NodeOption, PlanProblem, SearchOptions, Stop, TimeModel, fastest, frontier};

#[test]
fn a_search_for_arrangements_ends_once_it_is_stopped() {
    let RandomProblem { problem, costs, .. } = random_problem(7);
    let options = SearchOptions::default();
    assert!(frontier(&problem, &costs, &options).is_ok());
    options.stop.clone().stop();
    assert_eq!(frontier(&problem, &costs, &options).unwrap_err(), Error::Stopped);
}

#[test]
fn searches_of_times_that_add_up_end_once_they_are_stopped() {
    let mut problem = PlanProblem::new(4);
    let option = |gpus: usize| NodeOption::new(gpus, 100.0 / gpus as f64 + gpus as f64);
    for index in 0..6 {
        problem.add_node(format!("node{index}"), [1, 2, 3, 4].map(option));
    }
    let stop = Stop::default();
    let options = SearchOptions::default().with_time_model(TimeModel::Additive).with_stop(stop.clone());
    assert!(fastest(&problem, 1.5, &options).is_ok());
    stop.stop();
    assert_eq!(fastest(&problem, 1.5, &options).unwrap_err(), Error::Stopped);
    assert_eq!(frontier(&problem, &options).unwrap_err(), Error::Stopped);
}
