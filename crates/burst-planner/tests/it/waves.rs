//! What holds for every search with branches at the same time, against all choices under all schedules.

use burst_planner::{
    Error, NodeId, NodeOption, PlanProblem, Schedule, SearchOptions, TimeModel, data_parallel,
    evaluate_schedule, fastest, frontier, layout,
};
use proptest::prelude::*;

use crate::random::waves::{all_scheduled, parallel_problems};
use crate::random::{CLOSE, Outcome, close, nondominated};

const COUNTS: &[usize] = &[1, 2, 3, 4];

fn waves() -> SearchOptions {
    SearchOptions::default().with_time_model(TimeModel::Waves)
}

/// What all choices under all schedules come to; `bytes` is what the fullest rank holds.
fn outcomes(problem: &PlanProblem) -> Vec<Outcome> {
    let all = all_scheduled(problem).into_iter();
    all.map(|one| Outcome {
        choice: one.choice,
        time: one.time,
        gpu: one.gpu,
        bytes: one.bytes.into_iter().max().unwrap_or(0),
    })
    .collect()
}

/// A limit of the problem's own scale; away from the amplification of any plan, where rounding decides.
fn limit_at(problem: &PlanProblem, outcomes: &[Outcome], position: f64) -> f64 {
    let amplifications = outcomes.iter().map(|o| o.gpu / problem.single_gpu_time_us());
    let (low, high) = amplifications.fold((f64::INFINITY, 0.0_f64), |(l, h), a| (l.min(a), h.max(a)));
    (low + position * (high - low)).max(1.0) * (1.0 + 1e-7)
}

/// A memory limit between what the leanest plan needs and what the fullest does.
fn bytes_at(outcomes: &[Outcome], position: f64) -> u64 {
    let low = outcomes.iter().map(|o| o.bytes).min().unwrap_or(0);
    let high = outcomes.iter().map(|o| o.bytes).max().unwrap_or(0);
    low + (position * (high - low) as f64) as u64
}

fn best(problem: &PlanProblem, outcomes: Vec<Outcome>, limit: f64) -> Option<Outcome> {
    let budget = limit * problem.single_gpu_time_us();
    nondominated(outcomes).into_iter().find(|o| o.gpu <= budget)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_exact_frontier_is_that_of_all_schedules(problem in parallel_problems(COUNTS, 2)) {
        let expected = nondominated(outcomes(&problem));
        let found = frontier(&problem, &waves())?;
        prop_assert!(found.optimality_gap() == 0.0);
        prop_assert_eq!(found.points().len(), expected.len(), "{:?} {:?}", found, expected);
        for (point, expected) in found.points().iter().zip(&expected) {
            prop_assert!(close(point.totals.iteration_us, expected.time), "{:?} {:?}", point, expected);
            prop_assert!(close(point.totals.gpu_time_us, expected.gpu), "{:?} {:?}", point, expected);
        }
    }

    #[test]
    fn the_frontier_keeps_the_memory_limit_on_every_rank(
        mut problem in parallel_problems(&[1, 2, 3], 2),
        position in 0.0..1.1,
    ) {
        let outcomes = outcomes(&problem);
        let limit = bytes_at(&outcomes, position);
        problem.memory_limit_bytes = Some(limit);
        let expected = nondominated(outcomes.into_iter().filter(|o| o.bytes <= limit).collect());
        let found = frontier(&problem, &waves())?;
        prop_assert_eq!(found.points().len(), expected.len(), "{:?} {:?}", found, expected);
        for (point, expected) in found.points().iter().zip(&expected) {
            prop_assert!(close(point.totals.iteration_us, expected.time), "{:?} {:?}", point, expected);
            prop_assert!(close(point.totals.gpu_time_us, expected.gpu), "{:?} {:?}", point, expected);
            let layout = layout(&problem, &point.choice, &point.schedule)?;
            prop_assert!(layout.memory_bytes.iter().all(|&bytes| bytes <= limit));
        }
    }

    #[test]
    fn less_memory_than_any_plan_needs_is_an_error(mut problem in parallel_problems(&[1, 2, 3], 2)) {
        let least = bytes_at(&outcomes(&problem), 0.0);
        prop_assume!(least > 0);
        problem.memory_limit_bytes = Some(least - 1);
        let error = fastest(&problem, f64::INFINITY, &waves()).expect_err("an error");
        let names_it = matches!(error, Error::DoesNotFit { .. } | Error::DoesNotFitInWaves { .. });
        prop_assert!(names_it, "{:?}", error);
    }

    #[test]
    fn the_fastest_plan_is_that_of_all_schedules(
        mut problem in parallel_problems(COUNTS, 2),
        position in 0.0..1.1,
        memory in prop::option::of(0.0..1.1),
    ) {
        let mut outcomes = outcomes(&problem);
        let limit = limit_at(&problem, &outcomes, position);
        problem.memory_limit_bytes = memory.map(|position| bytes_at(&outcomes, position));
        outcomes.retain(|o| problem.memory_limit_bytes.is_none_or(|limit| o.bytes <= limit));
        match (fastest(&problem, limit, &waves()), best(&problem, outcomes, limit)) {
            (Ok(plan), Some(best)) => {
                prop_assert!(close(plan.totals.iteration_us, best.time), "{:?} {:?}", plan, best);
                prop_assert!(close(plan.totals.gpu_time_us, best.gpu), "{:?} {:?}", plan, best);
                prop_assert_eq!(plan.optimality_gap, Some(0.0));
            }
            (Err(Error::LimitUnreachable { smallest, .. }), None) => {
                prop_assert!(smallest > limit);
                let plan = fastest(&problem, smallest, &waves())?;
                prop_assert!(close(plan.totals.amplification, smallest));
            }
            (found, expected) => prop_assert!(false, "{:?} {:?}", found, expected),
        }
    }

    #[test]
    fn every_schedule_is_covered_to_the_tolerance(
        mut problem in parallel_problems(COUNTS, 2),
        epsilon in prop_oneof![0.0..0.02, 0.0..1.0],
        memory in prop::option::of(0.3..1.0),
        position in 0.0..1.1,
    ) {
        let mut outcomes = outcomes(&problem);
        let limit = limit_at(&problem, &outcomes, position);
        problem.memory_limit_bytes = memory.map(|position| bytes_at(&outcomes, position));
        outcomes.retain(|o| problem.memory_limit_bytes.is_none_or(|limit| o.bytes <= limit));
        let options = SearchOptions::with_epsilon(epsilon).with_time_model(TimeModel::Waves);
        let found = frontier(&problem, &options)?;
        prop_assert!(found.optimality_gap() <= epsilon);
        let factor = (1.0 + found.optimality_gap()) * (1.0 + CLOSE);
        for one in &outcomes {
            let covered = found.points().iter().any(|point| {
                point.totals.iteration_us <= one.time * factor && point.totals.gpu_time_us <= one.gpu * factor
            });
            prop_assert!(covered, "{:?} {:?}", one, found);
        }
        match (fastest(&problem, limit, &options), best(&problem, outcomes, limit)) {
            (Ok(plan), Some(best)) => {
                let certified = plan.optimality_gap.unwrap_or(f64::NAN);
                prop_assert!(certified <= epsilon);
                prop_assert!(plan.totals.iteration_us <= best.time * (1.0 + certified) * (1.0 + CLOSE));
                prop_assert!(plan.totals.amplification <= limit * (1.0 + 1e-9));
            }
            (Err(Error::LimitUnreachable { .. }), None) => {}
            (found, expected) => prop_assert!(false, "{:?} {:?}", found, expected),
        }
    }

    #[test]
    fn a_plan_is_what_its_schedule_says(problem in parallel_problems(COUNTS, 3), position in 0.0..1.1) {
        let points = frontier(&problem, &waves())?;
        let amplification = |index: usize| points.points()[index].totals.amplification;
        let (fast, cheap) = (amplification(0), amplification(points.points().len() - 1));
        let limit = f64::max(cheap + position * (fast - cheap), 1.0) * (1.0 + 1e-7);
        let Ok(plan) = fastest(&problem, limit, &waves()) else { return Ok(()) };
        prop_assert_eq!(plan.totals, evaluate_schedule(&problem, &plan.choice, &plan.schedule)?);
        prop_assert!(plan.totals.amplification <= limit * (1.0 + 1e-9));
        prop_assert!(plan.gpus <= problem.gpus);
        let layout = layout(&problem, &plan.choice, &plan.schedule)?;
        for (node, assignment) in plan.assignments.iter().enumerate() {
            prop_assert_eq!(&assignment.ranks, &layout.ranks[node]);
            prop_assert_eq!(assignment.ranks.len(), problem.nodes[node].options[plan.choice[node]].gpus);
            prop_assert!(assignment.ranks.end <= plan.gpus);
        }
        let point = points.fastest_within(limit)?;
        prop_assert!(close(point.totals.iteration_us, plan.totals.iteration_us));
        prop_assert_eq!(point.plan(&problem)?.totals, point.totals);
    }

    #[test]
    fn branches_one_after_another_are_never_faster(problem in parallel_problems(COUNTS, 3), limit in 1.0..9.0) {
        let serial = fastest(&problem, limit, &waves().with_time_model(TimeModel::Additive));
        if let Ok(serial) = &serial {
            prop_assert_eq!(&serial.schedule, &Schedule::default());
            let plan = fastest(&problem, limit, &waves())?;
            prop_assert!(plan.totals.iteration_us <= serial.totals.iteration_us * (1.0 + CLOSE));
        }
        // Where nothing can be placed apart, that is all there is.
        let mut together = problem.clone();
        together.edges.iter_mut().for_each(|edge| edge.transfer_disjoint_us = None);
        let plan = fastest(&together, limit, &waves());
        prop_assert_eq!(plan.map(|plan| (plan.choice, plan.schedule)), serial.map(|plan| (plan.choice, plan.schedule)));
    }

    #[test]
    fn data_parallelism_is_never_faster(problem in parallel_problems(&[2, 2, 4], 3)) {
        if let Ok(dp) = data_parallel(&problem) {
            let plan = fastest(&problem, dp.totals.amplification.max(1.0), &waves())?;
            prop_assert!(plan.totals.iteration_us <= dp.totals.iteration_us * (1.0 + CLOSE));
        }
    }

    #[test]
    fn a_looser_limit_is_never_slower(problem in parallel_problems(COUNTS, 3), a in 1.0..9.0, b in 1.0..9.0) {
        if let Ok(tight) = fastest(&problem, f64::min(a, b), &waves()) {
            let loose = fastest(&problem, f64::max(a, b), &waves())?;
            prop_assert!(loose.totals.iteration_us <= tight.totals.iteration_us * (1.0 + CLOSE));
        }
    }

    #[test]
    fn more_gpus_are_never_slower(problem in parallel_problems(COUNTS, 3), more in 1_usize..5, limit in 1.0..9.0) {
        let mut larger = problem.clone();
        larger.gpus += more;
        if let Ok(plan) = fastest(&problem, limit, &waves()) {
            let faster = fastest(&larger, limit, &waves())?;
            prop_assert!(faster.totals.iteration_us <= plan.totals.iteration_us * (1.0 + CLOSE));
        }
    }

    #[test]
    fn scaling_all_times_scales_the_answer(problem in parallel_problems(COUNTS, 3), limit in 1.0..9.0, factor in 0.01..100.0) {
        let mut scaled = problem.clone();
        scaled.single_gpu_us = scaled.single_gpu_us.map(|us| us * factor);
        for option in scaled.nodes.iter_mut().flat_map(|node| &mut node.options) {
            option.time_us *= factor;
            option.all_reduce_us *= factor;
        }
        for edge in &mut scaled.edges {
            let matrices = std::iter::once(&mut edge.transfer_us).chain(&mut edge.transfer_disjoint_us);
            matrices.flatten().flatten().for_each(|us| *us *= factor);
        }
        match (fastest(&problem, limit, &waves()), fastest(&scaled, limit, &waves())) {
            (Ok(plan), Ok(scaled)) => {
                prop_assert!(close(plan.totals.iteration_us * factor, scaled.totals.iteration_us));
                prop_assert!(close(plan.totals.amplification, scaled.totals.amplification));
            }
            (plan, scaled) => prop_assert!(plan.is_err() && scaled.is_err(), "{:?} {:?}", plan, scaled),
        }
    }

    #[test]
    fn names_and_order_change_nothing(problem in parallel_problems(COUNTS, 3), limit in 1.0..9.0, seed in any::<u64>()) {
        let mut order: Vec<usize> = (0..problem.nodes.len()).collect();
        order.sort_by_key(|&node| seed.rotate_left(node as u32 * 7).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut shuffled = problem.clone();
        shuffled.nodes.clear();
        shuffled.edges.clear();
        for &node in &order {
            shuffled.add_node(format!("renamed {node}"), problem.nodes[node].options.clone());
        }
        let place = |node: usize| order.iter().position(|&other| other == node).unwrap_or(order.len());
        for edge in problem.edges.iter().rev() {
            shuffled.add_edge(NodeId(place(edge.from.0)), NodeId(place(edge.to.0)), edge.transfer_us.clone()).transfer_disjoint_us =
                edge.transfer_disjoint_us.clone();
        }
        match (fastest(&problem, limit, &waves()), fastest(&shuffled, limit, &waves())) {
            (Ok(plan), Ok(other)) => {
                prop_assert!(close(plan.totals.iteration_us, other.totals.iteration_us));
                prop_assert!(close(plan.totals.gpu_time_us, other.totals.gpu_time_us));
            }
            (plan, other) => prop_assert!(plan.is_err() && other.is_err(), "{:?} {:?}", plan, other),
        }
    }

    #[test]
    fn the_same_input_gives_the_same_plan(problem in parallel_problems(COUNTS, 3), limit in 1.0..9.0) {
        let answer = || fastest(&problem, limit, &waves()).map(|plan| (plan.choice, plan.schedule));
        prop_assert_eq!(answer(), answer());
    }
}

/// Branches of one node each between a fork and a join.
fn fan(branches: usize, apart: bool) -> PlanProblem {
    let mut problem = PlanProblem::new(8);
    let options = |work: usize| {
        let option = |gpus: usize| NodeOption::new(gpus, work as f64 / gpus as f64 + 3.0 * gpus as f64);
        [1, 2, 4].map(|gpus| option(gpus).with_memory_bytes((work * 7 % 11 + 20 / gpus) as u64))
    };
    let fork = problem.add_node("fork", options(10));
    let join = problem.add_node("join", options(20));
    for branch in 0..branches {
        let node = problem.add_node(format!("branch {branch}"), options(50 + 13 * branch));
        for (from, to) in [(fork, node), (node, join)] {
            let disjoint = apart.then(|| vec![vec![2.0; 3]; 3]);
            problem.add_edge(from, to, vec![vec![1.0; 3]; 3]).transfer_disjoint_us = disjoint;
        }
    }
    problem
}

#[test]
fn too_many_branches_are_refused_unless_they_cannot_part() {
    let error = fastest(&fan(11, true), 9.0, &waves()).expect_err("an error");
    assert_eq!(
        error.to_string(),
        "the region from `fork` to `join` has 11 branches, and at most 10 can be tried at the same time: run branches \
         one after another, or leave out transfer_disjoint_us where they should not part"
    );
    assert!(fastest(&fan(10, true), 9.0, &waves()).is_ok());
    assert!(fastest(&fan(11, false), 9.0, &waves()).is_ok());
}

#[test]
fn searches_that_grow_too_large_say_what_to_do() {
    let mut options = waves();
    options.max_labels = 400;
    let error = fastest(&fan(5, true), 9.0, &options).expect_err("an error");
    assert_eq!(error, Error::TooManyLabels { max_labels: 400, epsilon: 0.0 });
    let mut problem = fan(4, true);
    problem.memory_limit_bytes = Some(45);
    // Enough for the plan that is best without the limit, which does not fit.
    options.max_labels = 700;
    let error = fastest(&problem, 9.0, &options).expect_err("an error");
    assert_eq!(error, Error::TooManyLoads { max_labels: 700 });
}
