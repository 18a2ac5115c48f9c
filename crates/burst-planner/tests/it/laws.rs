//! What holds for every problem, against the slow and obvious search of all choices.

use burst_planner::{
    Error, NodeId, NodeOption, PlanProblem, SearchOptions, data_parallel, evaluate, fastest, frontier,
};
use proptest::prelude::*;

use crate::random::{CLOSE, Outcome, all_outcomes, close, graphs, nondominated, problems};

const COUNTS: &[usize] = &[1, 2, 3, 4, 8];

fn exact() -> SearchOptions {
    SearchOptions::default()
}

/// A limit somewhere between "nothing" and "everything", on the problem's own scale.
fn limit_at(problem: &PlanProblem, position: f64) -> f64 {
    let amplifications = all_outcomes(problem).into_iter().map(|o| o.gpu / problem.single_gpu_time_us());
    let (low, high) = amplifications.fold((f64::INFINITY, 0.0_f64), |(l, h), a| (l.min(a), h.max(a)));
    (low + position * (high - low)).max(1.0)
}

/// The fastest choice within a budget, then the one with less GPU time.
fn brute_force(problem: &PlanProblem, limit: f64) -> Option<Outcome> {
    let budget = limit * problem.single_gpu_time_us() * (1.0 + 1e-9);
    let bytes = problem.memory_limit_bytes.unwrap_or(u64::MAX);
    let within = all_outcomes(problem).into_iter().filter(|o| o.gpu <= budget && o.bytes <= bytes);
    // Times that differ by rounding count as the same.
    nondominated(within.collect()).into_iter().next()
}

fn check_frontier(problem: &PlanProblem, outcomes: Vec<Outcome>) -> Result<(), TestCaseError> {
    let expected = nondominated(outcomes);
    let found = frontier(problem, &exact())?;
    let pairs = |time: f64, gpu: f64| (time, gpu);
    let found: Vec<_> =
        found.points().iter().map(|p| pairs(p.totals.iteration_us, p.totals.gpu_time_us)).collect();
    let expected: Vec<_> = expected.iter().map(|o| pairs(o.time, o.gpu)).collect();
    prop_assert_eq!(found.len(), expected.len(), "{:?} {:?}", found, expected);
    for (found, expected) in found.iter().zip(&expected) {
        prop_assert!(close(found.0, expected.0) && close(found.1, expected.1), "{:?} {:?}", found, expected);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn the_exact_frontier_is_that_of_all_choices(problem in problems(graphs(), COUNTS)) {
        check_frontier(&problem, all_outcomes(&problem))?;
    }

    #[test]
    fn the_frontier_keeps_the_memory_limit(mut problem in problems(graphs(), COUNTS), position in 0.0..1.2) {
        let outcomes = all_outcomes(&problem);
        let low = outcomes.iter().map(|o| o.bytes).min().unwrap_or(0);
        let high = outcomes.iter().map(|o| o.bytes).max().unwrap_or(0);
        let limit = low + (position * (high - low) as f64) as u64;
        problem.memory_limit_bytes = Some(limit);
        check_frontier(&problem, outcomes.into_iter().filter(|o| o.bytes <= limit).collect())?;
    }

    #[test]
    fn the_fastest_plan_is_that_of_all_choices(
        mut problem in problems(graphs(), COUNTS),
        position in 0.0..1.1,
        memory in prop::option::of(0.1..1.0),
    ) {
        let most: u64 = all_outcomes(&problem).iter().map(|o| o.bytes).max().unwrap_or(0);
        problem.memory_limit_bytes = memory.map(|share| (share * most as f64) as u64);
        let limit = limit_at(&problem, position);
        match (fastest(&problem, limit, &exact()), brute_force(&problem, limit)) {
            (Ok(plan), Some(best)) => {
                prop_assert!(close(plan.totals.iteration_us, best.time), "{:?} {:?}", plan, best);
                prop_assert!(close(plan.totals.gpu_time_us, best.gpu), "{:?} {:?}", plan, best);
                prop_assert!(plan.totals.amplification <= limit * (1.0 + 1e-9));
                prop_assert!(plan.optimality_gap == Some(0.0));
            }
            (Err(Error::DoesNotFit { limit_bytes, needed_bytes, .. }), None) => {
                prop_assert!(needed_bytes > limit_bytes);
                prop_assert_eq!(Some(needed_bytes), all_outcomes(&problem).iter().map(|o| o.bytes).min());
            }
            (Err(Error::LimitUnreachable { smallest, .. }), None) => {
                prop_assert!(smallest > limit);
                let plan = fastest(&problem, smallest, &exact())?;
                prop_assert!(close(plan.totals.amplification, smallest));
            }
            (found, expected) => prop_assert!(false, "{:?} {:?}", found, expected),
        }
    }

    #[test]
    fn a_frontier_answers_what_a_search_does(problem in problems(graphs(), COUNTS), position in 0.0..1.1) {
        let limit = limit_at(&problem, position);
        let points = frontier(&problem, &exact())?;
        match (fastest(&problem, limit, &exact()), points.fastest_within(limit)) {
            (Ok(plan), Ok(point)) => {
                prop_assert!(close(plan.totals.iteration_us, point.totals.iteration_us));
                prop_assert!(close(plan.totals.gpu_time_us, point.totals.gpu_time_us));
                let budget_us = limit * problem.single_gpu_time_us();
                prop_assert_eq!(points.fastest_within_gpu_time_us(budget_us)?, point);
                prop_assert_eq!(point.plan(&problem)?.totals, point.totals);
            }
            (Err(plan), Err(point)) => prop_assert_eq!(plan, point),
            (plan, point) => prop_assert!(false, "{:?} {:?}", plan, point),
        }
    }

    #[test]
    fn every_choice_is_covered_to_the_tolerance(
        mut problem in problems(graphs(), COUNTS),
        epsilon in prop_oneof![0.0..0.02, 0.0..1.0],
        memory in prop::option::of(0.5..1.0),
    ) {
        let outcomes = all_outcomes(&problem);
        let most: u64 = outcomes.iter().map(|o| o.bytes).max().unwrap_or(0);
        let least: u64 = outcomes.iter().map(|o| o.bytes).min().unwrap_or(0);
        problem.memory_limit_bytes = memory.map(|share| least.max((share * most as f64) as u64));
        let options = SearchOptions::with_epsilon(epsilon);
        let found = frontier(&problem, &options)?;
        let certified = found.optimality_gap();
        prop_assert!(certified <= epsilon);
        let factor = (1.0 + certified) * (1.0 + CLOSE);
        for one in outcomes.iter().filter(|o| problem.memory_limit_bytes.is_none_or(|limit| o.bytes <= limit)) {
            let covered = found.points().iter().any(|point| {
                point.totals.iteration_us <= one.time * factor && point.totals.gpu_time_us <= one.gpu * factor
            });
            prop_assert!(covered, "{:?} {:?}", one, found);
        }
        let limit = limit_at(&problem, 0.4);
        if let Some(best) = brute_force(&problem, limit) {
            let plan = fastest(&problem, limit, &options)?;
            let certified = plan.optimality_gap.unwrap_or(f64::NAN);
            prop_assert!(certified <= epsilon);
            prop_assert!(plan.totals.iteration_us <= best.time * (1.0 + certified) * (1.0 + CLOSE));
            prop_assert!(plan.totals.amplification <= limit * (1.0 + 1e-9));
        }
    }

    #[test]
    fn a_plan_says_what_its_choice_is(problem in problems(graphs(), COUNTS)) {
        let plan = fastest(&problem, f64::INFINITY, &exact())?;
        prop_assert_eq!(plan.totals, evaluate(&problem, &plan.choice)?);
        prop_assert!(plan.gpus <= problem.gpus);
        for ((node, &option), assignment) in problem.nodes.iter().zip(&plan.choice).zip(&plan.assignments) {
            prop_assert_eq!(&assignment.name, &node.name);
            prop_assert_eq!(assignment.gpus, node.options[option].gpus);
            prop_assert_eq!(&assignment.ranks, &(0..assignment.gpus));
            prop_assert!(assignment.gpus <= plan.gpus);
        }
    }

    #[test]
    fn a_looser_limit_is_never_slower(problem in problems(graphs(), COUNTS), a in 0.0..1.1, b in 0.0..1.1) {
        let (tight, loose) = (limit_at(&problem, f64::min(a, b)), limit_at(&problem, f64::max(a, b)));
        if let Ok(tight) = fastest(&problem, tight, &exact()) {
            let loose = fastest(&problem, loose, &exact())?;
            prop_assert!(loose.totals.iteration_us <= tight.totals.iteration_us * (1.0 + CLOSE));
        }
    }

    #[test]
    fn more_gpus_are_never_slower(problem in problems(graphs(), COUNTS), position in 0.0..1.1, gpus in 1_usize..8) {
        let kept: Vec<Vec<usize>> = problem.nodes.iter()
            .map(|node| (0..node.options.len()).filter(|&o| node.options[o].gpus <= gpus).collect())
            .collect();
if kept.iter().any(Vec::is_empty) {
            return Ok(());
        }
        let mut fewer = PlanProblem::new(gpus);
        fewer.single_gpu_us = problem.single_gpu_us;
        for (node, kept) in problem.nodes.iter().zip(&kept) {
            fewer.add_node(node.name.clone(), kept.iter().map(|&o| node.options[o].clone()));
        }
        for edge in &problem.edges {
            let cell = |i: usize| kept[edge.to.0].iter().map(|&j| edge.transfer_us[i][j]).collect();
            fewer.add_edge(edge.from, edge.to, kept[edge.from.0].iter().map(|&i| cell(i)).collect());
        }
        let limit = limit_at(&problem, position);
        if let Ok(fewer) = fastest(&fewer, limit, &exact()) {
            let more = fastest(&problem, limit, &exact())?;
            prop_assert!(more.totals.iteration_us <= fewer.totals.iteration_us * (1.0 + CLOSE));
            prop_assert!(fewer.gpus <= gpus);
        }
    }

    #[test]
    fn a_burst_plan_is_never_slower_than_data_parallelism(problem in problems(graphs(), &[2, 4, 4])) {
        match data_parallel(&problem) {
            Ok(dp) => {
                prop_assert!(dp.assignments.iter().all(|a| a.gpus == dp.gpus));
                let larger = |node: &burst_planner::Node| node.options.iter().any(|o| o.gpus > dp.gpus);
                prop_assert!(dp.gpus == 4 || !problem.nodes.iter().all(larger));
                let same = all_outcomes(&problem).into_iter()
                    .filter(|o| o.choice.iter().zip(&problem.nodes).all(|(&c, node)| node.options[c].gpus == dp.gpus));
                let best = same.map(|o| o.time).fold(f64::INFINITY, f64::min);
                prop_assert!(close(best, dp.totals.iteration_us));
                let burst = fastest(&problem, dp.totals.amplification.max(1.0), &exact())?;
                prop_assert!(burst.totals.iteration_us <= dp.totals.iteration_us * (1.0 + CLOSE));
            }
            Err(error) => prop_assert_eq!(error, Error::NoDataParallelPlan),
        }
    }

    #[test]
    fn scaling_all_times_scales_the_answer(problem in problems(graphs(), COUNTS), position in 0.0..1.1, factor in 0.01..100.0) {
        let mut scaled = problem.clone();
        scaled.single_gpu_us = scaled.single_gpu_us.map(|us| us * factor);
        for option in scaled.nodes.iter_mut().flat_map(|node| &mut node.options) {
            option.time_us *= factor;
            option.all_reduce_us *= factor;
        }
        for us in scaled.edges.iter_mut().flat_map(|edge| edge.transfer_us.iter_mut().flatten()) {
            *us *= factor;
        }
        // Away from the amplification of any plan, where rounding decides.
        let limit = limit_at(&problem, position) * (1.0 + 1e-7);
        match (fastest(&problem, limit, &exact()), fastest(&scaled, limit, &exact())) {
            (Ok(plan), Ok(scaled)) => {
                prop_assert!(close(plan.totals.iteration_us * factor, scaled.totals.iteration_us));
                prop_assert!(close(plan.totals.amplification, scaled.totals.amplification));
            }
            (plan, scaled) => prop_assert!(plan.is_err() && scaled.is_err(), "{:?} {:?}", plan, scaled),
        }
    }

    #[test]
    fn names_and_order_change_nothing(problem in problems(graphs(), COUNTS), position in 0.0..1.1, seed in any::<u64>()) {
        let nodes = problem.nodes.len();
        let mut order: Vec<usize> = (0..nodes).collect();
        order.sort_by_key(|&node| seed.rotate_left(node as u32 * 7).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut shuffled = problem.clone();
        shuffled.nodes.clear();
        shuffled.edges.clear();
        for &node in &order {
            shuffled.add_node(format!("renamed {node}"), problem.nodes[node].options.clone());
        }
        let place = |node: usize| order.iter().position(|&other| other == node).unwrap_or(nodes);
        for edge in problem.edges.iter().rev() {
            shuffled.add_edge(NodeId(place(edge.from.0)), NodeId(place(edge.to.0)), edge.transfer_us.clone());
        }
        let limit = limit_at(&problem, position) * (1.0 + 1e-7);
        match (fastest(&problem, limit, &exact()), fastest(&shuffled, limit, &exact())) {
            (Ok(plan), Ok(other)) => {
                prop_assert!(close(plan.totals.iteration_us, other.totals.iteration_us));
                prop_assert!(close(plan.totals.gpu_time_us, other.totals.gpu_time_us));
            }
            (plan, other) => prop_assert!(plan.is_err() && other.is_err(), "{:?} {:?}", plan, other),
        }
    }

    #[test]
    fn the_same_input_gives_the_same_plan(problem in problems(graphs(), COUNTS), position in 0.0..1.1) {
        let limit = limit_at(&problem, position);
        let choice = || fastest(&problem, limit, &exact()).map(|plan| plan.choice);
        prop_assert_eq!(choice(), choice());
        let points = || frontier(&problem, &exact()).map(|frontier| frontier.points().to_vec());
        prop_assert_eq!(points()?, points()?);
    }

    #[test]
    fn json_keeps_a_problem(problem in problems(graphs(), COUNTS)) {
        prop_assert_eq!(PlanProblem::from_json(&problem.to_json()?)?, problem);
    }
}

/// Memory distinguishes partial plans, and once a plan won that was faster by a rounding error, took twice the GPU
/// time, and had only its smaller memory in its favour.
#[test]
fn of_plans_as_fast_the_cheaper_one_is_taken_though_it_holds_more() {
    let mut problem = PlanProblem::new(2);
    let small = NodeOption::new(2, 0.3).with_memory_bytes(1);
    let cheap = NodeOption::new(1, 0.1).with_all_reduce_us(0.2).with_memory_bytes(2);
    problem.add_node("a", [small, cheap]);
    problem.add_node("b", [1, 5].map(|bytes| NodeOption::new(1, 1.0).with_memory_bytes(bytes)));
    problem.memory_limit_bytes = Some(4);
    let plan = fastest(&problem, f64::INFINITY, &exact()).expect("a plan");
    assert_eq!(plan.choice, [1, 0]);
    assert_eq!(frontier(&problem, &exact()).expect("a frontier").points().len(), 1);
}
