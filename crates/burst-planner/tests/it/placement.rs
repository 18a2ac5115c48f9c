//! Tests of placements on a few devices: against enumeration, by laws, and as arrangements.

use burst_planner::placement::{Operation, PlacementProblem, PlacementSearch, cuts, list_schedule, place};
use burst_planner::testing::{
    Graph, RandomProblem, placement_by_enumeration, random_placement_problem, random_problem_on,
};
use burst_planner::{Error, Evaluator, NodeId};

/// Times that differ by less, relatively, are equal.
const SAME: f64 = 1e-9;

fn cases(usual: u64) -> u64 {
    std::env::var("BURST_PLANNER_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(usual)
}

fn is_same(a: f64, b: f64) -> bool {
    (a - b).abs() <= SAME * a.abs().max(b.abs())
}

/// Up to 7 operations by default; `BURST_PLANNER_OPERATIONS=10` for the full test.
#[test]
fn placements_match_enumeration() {
    let maximum =
        std::env::var("BURST_PLANNER_OPERATIONS").ok().and_then(|maximum| maximum.parse().ok()).unwrap_or(7);
    let mut without = 0;
    for seed in 0..cases(150) {
        let problem =
            random_placement_problem(seed, 2 + seed as usize % (maximum - 1), 1 + seed as usize % 3);
        let found = place(&problem, &PlacementSearch::default());
        match (found, placement_by_enumeration(&problem)) {
            (Ok(found), Some(min_us)) => {
                assert!(
                    is_same(found.makespan_us, min_us),
                    "seed {seed}: {found:?}, and {min_us} us is the least"
                );
                assert!(is_same(found.lower_bound_us, min_us), "seed {seed}: {found:?} is not proved");
                let again_us = problem.makespan_us(&found.devices, &found.order).expect("a valid placement");
                assert!(is_same(again_us, found.makespan_us), "seed {seed}");
            }
            (Err(Error::MemoryExceeded { needed_bytes, limit_bytes, .. }), None) => {
                assert!(needed_bytes > limit_bytes);
                without += 1;
            }
            (found, min_us) => panic!("seed {seed}: {found:?}, and {min_us:?}"),
        }
    }
    println!("{without} problems have no answer");
}

#[test]
fn placements_satisfy_the_laws() {
    for seed in 0..cases(60) {
        let operations = 8 + seed as usize % 12;
        let mut problem = random_placement_problem(seed, operations, 1);
        problem.memory_limit_bytes = None;
        let search = PlacementSearch::default().with_branches(20_000);
        let forward: f64 = problem.operations.iter().map(|operation| operation.forward_us).sum();
        let backward: f64 = problem.operations.iter().map(|operation| operation.backward_us).sum();
        let mut before_us = f64::INFINITY;
        for devices in 1..=4 {
            problem.devices = devices;
            let found = place(&problem, &search).expect("a valid problem");
            let listed = list_schedule(&problem).expect("a valid problem");
            if devices == 1 {
                assert!(is_same(found.makespan_us, forward + backward), "seed {seed}");
            }
            assert!(
                found.makespan_us <= before_us * (1.0 + SAME),
                "seed {seed}: slower on {devices} devices"
            );
            assert!(found.makespan_us <= listed.makespan_us * (1.0 + SAME), "seed {seed}");
            assert!(found.lower_bound_us <= found.makespan_us * (1.0 + SAME), "seed {seed}");
            let even = (forward + backward) / devices as f64;
            let longest = longest_way(&problem);
            assert!(found.makespan_us >= even.max(longest) * (1.0 - SAME), "seed {seed}");
            assert!(found.lower_bound_us >= even.max(longest) * (1.0 - SAME), "seed {seed}: a loose bound");
            before_us = found.makespan_us;
        }
    }
}

/// Returns the longest path through both passes without transfers.
fn longest_way(problem: &PlacementProblem) -> f64 {
    let of_pass = |time: &dyn Fn(usize) -> f64| {
        let mut ends = vec![0.0_f64; problem.operations.len()];
        // One round per operation suffices for any path.
        for _ in 0..problem.operations.len() {
            for to in 0..ends.len() {
                let producers = problem.edges.iter().filter(|edge| edge.to.0 == to);
                ends[to] = producers.map(|edge| ends[edge.from.0]).fold(0.0, f64::max) + time(to);
            }
        }
        ends.into_iter().fold(0.0, f64::max)
    };
    of_pass(&|one| problem.operations[one].forward_us) + of_pass(&|one| problem.operations[one].backward_us)
}

/// Compares the program of an arrangement with the placement's lower bound, if one operation starts
/// and ends each iteration.
#[test]
fn program_time_is_at_least_the_lower_bound() {
    let mut closest = f64::INFINITY;
    for seed in 0..cases(100) {
        let graph = [Graph::Chain, Graph::Branches][seed as usize % 2];
        let RandomProblem { mut problem, costs, .. } =
            random_problem_on(seed, graph, 3 + seed as usize % 8, 3);
        for node in &mut problem.nodes {
            node.synchronized = None;
            node.parameters_of = None;
        }
        problem.nodes[0].gradient_bytes = problem.nodes[0].gradient_bytes.max(1);
        problem.memory_limit_bytes = None;
        let placement = PlacementProblem::from_problem(&problem, &costs, 3).expect("times for one GPU");
        let cuts = cuts(&placement).expect("a valid problem");
        let ends = [cuts.first(), cuts.last()].map(|cut| cut.map(|cut| cut.0));
        if ends != [Some(0), Some(problem.nodes.len() - 1)] {
            continue;
        }
        let found = place(&placement, &PlacementSearch::default()).expect("a valid problem");
        let time = Evaluator::new(&problem, &costs).unwrap().evaluate(&found.arrangement()).unwrap();
        let min_us = problem.micro_batches.get() as f64 * found.lower_bound_us;
        assert!(
            time.iteration_us >= min_us * (1.0 - SAME),
            "seed {seed}: {} us, {min_us} at least",
            time.iteration_us
        );
        closest = closest.min(time.iteration_us / min_us);
    }
    assert!(closest < 1.05, "no program comes closer to the bound than {closest} times");
}

#[test]
fn cuts_are_operations_that_all_paths_contain() {
    let mut problem = PlacementProblem::new(2);
    let [stem, left, right, join, skipped, end] = ["stem", "left", "right", "join", "skipped", "end"]
        .map(|name| problem.add(Operation::new(name, 1.0, 2.0)));
    for (from, to) in
        [(stem, left), (stem, right), (left, join), (right, join), (join, skipped), (skipped, end)]
    {
        problem.connect(from, to, 1.0, 1.0);
    }
    assert_eq!(cuts(&problem).unwrap(), [stem, join, skipped, end]);
    problem.connect(join, end, 1.0, 1.0);
    assert_eq!(cuts(&problem).unwrap(), [stem, join, end], "an edge leads past it");
}

#[test]
fn invalid_placement_problems_are_refused() {
    let search = PlacementSearch::default();
    assert_eq!(place(&PlacementProblem::new(2), &search), Err(Error::NoNodes));
    let mut problem = PlacementProblem::new(0);
    let one = problem.add(Operation::new("one", 1.0, 2.0));
    assert_eq!(place(&problem, &search), Err(Error::NoGpus));
    problem.devices = 2;
    let other = problem.add(Operation::new("other", f64::NAN, 2.0));
    let wrong = place(&problem, &search).unwrap_err().to_string();
    assert_eq!(wrong, "operation `other`: forward_us is NaN, expected a finite time that is not negative");
    problem.operations[other.0].forward_us = 1.0;
    problem.connect(one, other, 1.0, -1.0);
    let wrong = place(&problem, &search).unwrap_err().to_string();
    assert_eq!(
        wrong,
        "edge 0 (`one` to `other`): backward_us is -1, expected a finite time that is not negative"
    );
    problem.edges[0].backward_us = 1.0;
    problem.connect(other, one, 1.0, 1.0);
    assert_eq!(place(&problem, &search), Err(Error::Cycle { node: "one".into() }));
    problem.edges.pop();
    let wrong = problem.makespan_us(&[0, 2], &[0, 1]).unwrap_err().to_string();
    assert_eq!(wrong, "the arrangement does not fit the problem: `other` is on device 2, and there are 2");
    let wrong = problem.makespan_us(&[0, 1], &[1, 0]).unwrap_err().to_string();
    assert!(wrong.contains("`other` comes before `one`, whose output it uses"), "{wrong}");
    problem.connect(one, NodeId(7), 1.0, 1.0);
    assert_eq!(place(&problem, &search), Err(Error::EdgeToNowhere { edge: 1, node: 7, nodes: 2 }));
    problem.edges.pop();
    problem.operations[one.0].memory_bytes = 10;
    let problem = problem.with_memory_limit(9);
    let wrong = place(&problem, &search).unwrap_err();
    assert!(matches!(wrong, Error::MemoryExceeded { limit_bytes: 9, needed_bytes: 10, .. }), "{wrong:?}");
}
