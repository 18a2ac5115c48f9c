//! Which point of a frontier a question is answered with.

use burst_planner::{Error, NodeOption, PlanProblem, SearchOptions, frontier};
use proptest::prelude::*;

use crate::random::{all_outcomes, close, graphs, problems};

/// A frontier whose points have these iteration and GPU times: one node, one option a point.
fn one_node(points: &[(usize, f64)]) -> PlanProblem {
    let mut problem = PlanProblem::new(1024);
    problem.single_gpu_us = Some(1.0);
    problem.add_node("node", points.iter().map(|&(gpus, time_us)| NodeOption::new(gpus, time_us)));
    problem
}

#[test]
fn a_deadline_is_kept_with_the_least_gpu_time() {
    let problem = one_node(&[(8, 20.0), (4, 30.0), (2, 50.0), (1, 90.0)]);
    let points = frontier(&problem, &SearchOptions::default()).expect("a frontier");
    let choice = |deadline_us| points.cheapest_within(deadline_us).map(|point| point.choice[0]);
    assert_eq!(choice(20.0), Ok(0));
    assert_eq!(choice(49.0), Ok(1));
    // Times are compared at 1e-9 relative.
    assert_eq!(choice(50.0 * (1.0 - 1e-10)), Ok(2));
    assert_eq!(choice(50.0 * (1.0 - 1e-8)), Ok(1));
    assert_eq!(choice(f64::INFINITY), Ok(3));
    assert_eq!(choice(19.0), Err(Error::DeadlineUnreachable { deadline_us: 19.0, smallest_us: 20.0 }));
    assert_eq!(choice(-1.0), Err(Error::BadDeadline { deadline_us: -1.0 }));
    assert!(matches!(choice(f64::NAN), Err(Error::BadDeadline { .. })));
}

#[test]
fn the_knee_lies_farthest_below_the_line_through_the_ends() {
    let knee = |options: &[(usize, f64)]| {
        let points = frontier(&one_node(options), &SearchOptions::default()).expect("a frontier");
        points.knee().choice[0]
    };
    // GPU times 160, 120, 100, 90. Scaled: (0, 1), (1/7, 3/7), (3/7, 1/7), (1, 0). Both in between lie as far below.
    assert_eq!(knee(&[(8, 20.0), (4, 30.0), (2, 50.0), (1, 90.0)]), 1);
    // With 104 instead of 100 only the first does, with 130 instead of 120 only the second.
    assert_eq!(knee(&[(8, 20.0), (4, 30.0), (2, 52.0), (1, 90.0)]), 1);
    assert_eq!(knee(&[(8, 20.0), (4, 32.5), (2, 50.0), (1, 90.0)]), 2);
    assert_eq!(knee(&[(1, 90.0)]), 0);
    assert_eq!(knee(&[(1, 90.0), (8, 20.0)]), 1);
    // GPU times 40, 39, 30: the one in between lies above the line.
    assert_eq!(knee(&[(4, 10.0), (3, 13.0), (2, 15.0)]), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn the_cheapest_in_time_is_that_of_all_choices(
        problem in problems(graphs(), &[1, 2, 3, 4, 8]), position in -0.1_f64..1.1,
    ) {
        let outcomes = all_outcomes(&problem);
        let bound = |worst: f64, of: fn(f64, f64) -> f64| outcomes.iter().map(|one| one.time).fold(worst, of);
        let (low, high) = (bound(f64::INFINITY, f64::min), bound(0.0, f64::max));
        let deadline_us = (low + position * (high - low)).max(0.0);
        let in_time = outcomes.iter().filter(|one| one.time <= deadline_us * (1.0 + 1e-9));
        let expected = in_time.map(|one| one.gpu).fold(f64::INFINITY, f64::min);
        match frontier(&problem, &SearchOptions::default())?.cheapest_within(deadline_us) {
            Ok(point) => {
                prop_assert!(close(point.totals.gpu_time_us, expected));
                prop_assert!(point.totals.iteration_us <= deadline_us * (1.0 + 1e-9));
            }
            Err(Error::DeadlineUnreachable { smallest_us, .. }) => {
                prop_assert!(expected.is_infinite() && close(smallest_us, low));
            }
            Err(error) => prop_assert!(false, "{}", error),
        }
    }

    #[test]
    fn no_point_lies_farther_below_the_line_than_the_knee(
        problem in problems(graphs(), &[1, 2, 3, 4, 8]), factor in 0.01..100.0,
    ) {
        let points = frontier(&problem, &SearchOptions::default())?;
        let at = |index: usize| {
            let totals = points.points()[index].totals;
            (totals.iteration_us, totals.gpu_time_us)
        };
        let (first, last) = (at(0), at(points.points().len() - 1));
        // Twice the area of the triangle with both ends: proportional to the distance from the line, whatever the scale.
        let area = |(x, y): (f64, f64)| (first.1 - y) * (last.0 - first.0) - (x - first.0) * (first.1 - last.1);
        let scale = (last.0 - first.0) * (first.1 - last.1);
        let knee = points.knee();
        let farthest = (0..points.points().len()).map(|index| area(at(index))).fold(0.0, f64::max);
        let distance = area((knee.totals.iteration_us, knee.totals.gpu_time_us));
        prop_assert!(distance >= farthest - 1e-9 * scale, "{} {}", distance, farthest);

        // The unit of time does not matter.
        let mut scaled = problem.clone();
        for option in scaled.nodes.iter_mut().flat_map(|node| &mut node.options) {
            option.time_us *= factor;
            option.all_reduce_us *= factor;
        }
        scaled.edges.iter_mut().flat_map(|edge| edge.transfer_us.iter_mut().flatten()).for_each(|us| *us *= factor);
        let again = frontier(&scaled, &SearchOptions::default())?.knee().totals;
        prop_assert!(close(again.iteration_us, knee.totals.iteration_us * factor) || farthest <= 1e-9 * scale);
    }
}
