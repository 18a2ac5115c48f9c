//! Why each node has its option.

use burst_planner::{
    NodeOption, Plan, PlanProblem, RegionSchedule, Schedule, SearchOptions, evaluate, explain, fastest,
};
use proptest::prelude::*;

use crate::random::waves::parallel_problems;
use crate::random::{close, graphs, problems};

/// What a choice costs with one node changed, and what it holds.
fn changed(problem: &PlanProblem, choice: &[usize], node: usize, option: usize) -> (f64, f64, u64) {
    let mut choice = choice.to_vec();
    choice[node] = option;
    let totals = evaluate(problem, &choice).expect("totals");
    let bytes = choice.iter().zip(&problem.nodes).map(|(&option, node)| node.options[option].memory_bytes);
    (totals.iteration_us, totals.gpu_time_us, bytes.map(Option::unwrap_or_default).sum())
}

fn plan(problem: &PlanProblem, choice: &[usize]) -> Plan {
    Plan::from_choice(problem, choice.to_vec()).expect("a plan")
}

#[test]
fn the_next_option_is_the_one_with_the_best_price() {
    let mut problem = PlanProblem::new(8);
    let options = [(1, 80.0), (2, 41.0), (4, 30.0), (8, 29.0)];
    problem.add_node("a", options.map(|(gpus, us)| NodeOption::new(gpus, us)));
    problem.add_node("b", [NodeOption::new(1, 20.0)]);
    let explanations = explain(&problem, &plan(&problem, &[1, 0]), Some(1.1)).expect("explanations");
    // 4 GPUs pay 38 GPU-microseconds for 11, 8 GPUs 150 for 12; one GPU saves 2 for 39.
    let faster = explanations[0].faster.as_ref().expect("4 GPUs");
    assert_eq!((faster.option, faster.gpus), (2, 4));
    assert_eq!((faster.iteration_delta_us, faster.gpu_time_delta_us), (-11.0, 38.0));
    assert_eq!((faster.amplification, faster.breaks_limit), (1.4, Some(true)));
    let cheaper = explanations[0].cheaper.as_ref().expect("one GPU");
    assert_eq!((cheaper.gpus, cheaper.iteration_delta_us, cheaper.gpu_time_delta_us), (1, 39.0, -2.0));
    assert_eq!((cheaper.amplification, cheaper.breaks_limit), (1.0, Some(false)));
    assert_eq!((&explanations[1].faster, &explanations[1].cheaper), (&None, &None));
    assert_eq!((explanations[1].node.as_str(), explanations[1].gpus), ("b", 1));
}

#[test]
fn what_does_not_fit_into_its_wave_is_no_alternative() {
    let mut problem = PlanProblem::new(4);
    let options = || [(1, 80.0), (2, 41.0), (3, 30.0)].map(|(gpus, us)| NodeOption::new(gpus, us));
    let names = ["fork", "a", "b", "join"];
    let [fork, a, b, join] = names.map(|name| problem.add_node(name, options()));
    for (from, to) in [(fork, a), (fork, b), (a, join), (b, join)] {
        problem.add_edge(from, to, vec![vec![1.0; 3]; 3]).transfer_disjoint_us = Some(vec![vec![2.0; 3]; 3]);
    }
    let waves = Schedule { regions: vec![RegionSchedule { fork, join, waves: vec![vec![0, 1]] }] };
    let choice = [0, 1, 1, 0];
    let beside = Plan::from_schedule(&problem, choice.to_vec(), waves).expect("a plan");
    let explanations = explain(&problem, &beside, None).expect("explanations");
    // On 3 GPUs beside a branch on 2 there would have to be 5.
    assert_eq!((&explanations[a.0].faster, &explanations[b.0].faster), (&None, &None));
    // Branch b takes longer, by its transfers: a is on one GPU for 37 us only, of its 39.
    let cheaper = explanations[a.0].cheaper.as_ref().expect("one GPU");
    assert_eq!((cheaper.gpus, cheaper.iteration_delta_us), (1, 37.0));
    assert_eq!(cheaper.breaks_limit, None);
    let serial = explain(&problem, &plan(&problem, &choice), None).expect("explanations");
    assert_eq!(serial[a.0].faster.as_ref().expect("3 GPUs").gpus, 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn no_other_option_has_a_better_price(
        mut problem in problems(graphs(), &[1, 2, 3, 4, 8]), draw in any::<u64>(), limit in 1.0..4.0, room in 0..200_u64,
    ) {
        let choice: Vec<usize> = problem.nodes.iter().enumerate()
            .map(|(index, node)| (draw.rotate_left(index as u32 * 5) % node.options.len() as u64) as usize)
            .collect();
        let (time, gpu, bytes) = changed(&problem, &choice, 0, choice[0]);
        problem.memory_limit_bytes = (draw % 2 == 0).then_some(bytes + room);
        let explanations = explain(&problem, &plan(&problem, &choice), Some(limit))?;
        prop_assert_eq!(explanations.len(), problem.nodes.len());
        for (node, explanation) in explanations.iter().enumerate() {
            prop_assert_eq!(explanation.gpus, problem.nodes[node].options[choice[node]].gpus);
            let others: Vec<_> = (0..problem.nodes[node].options.len())
                .map(|option| changed(&problem, &choice, node, option))
                .filter(|other| problem.memory_limit_bytes.is_none_or(|limit| other.2 <= limit))
                .map(|other| (other.0 - time, other.1 - gpu))
                .collect();
            let faster = others.iter().filter(|other| other.0 < -1e-9 * time).map(|other| -other.1 / other.0);
            let cheaper = others.iter().filter(|other| other.1 < -1e-9 * gpu).map(|other| -other.0 / other.1);
            for (found, best, price_unit, is_faster) in [
                (&explanation.faster, faster.fold(f64::INFINITY, f64::min), gpu / time, true),
                (&explanation.cheaper, cheaper.fold(f64::INFINITY, f64::min), time / gpu, false),
            ] {
                prop_assert_eq!(found.is_some(), best.is_finite());
                let Some(found) = found else { continue };
                let (new_time, new_gpu, _) = changed(&problem, &choice, node, found.option);
                prop_assert!((new_time - time - found.iteration_delta_us).abs() <= 1e-9 * time);
                prop_assert!((new_gpu - gpu - found.gpu_time_delta_us).abs() <= 1e-9 * gpu);
                prop_assert!(close(found.amplification * problem.single_gpu_time_us(), new_gpu));
                prop_assert_eq!(found.breaks_limit, Some(found.amplification > limit * (1.0 + 1e-9)));
                let (iteration_us, gpu_us) = (found.iteration_delta_us, found.gpu_time_delta_us);
                let price = if is_faster { -gpu_us / iteration_us } else { -iteration_us / gpu_us };
                prop_assert!((price - best).abs() <= 1e-6 * (price_unit + best.abs()), "{} {}", price, best);
            }
        }
    }

    #[test]
    fn in_the_fastest_plan_whatever_is_faster_breaks_the_limit(
        problem in prop_oneof![problems(graphs(), &[1, 2, 3, 4, 8]), parallel_problems(&[1, 2, 3, 4], 2)], limit in 1.0..6.0,
    ) {
        let Ok(plan) = fastest(&problem, limit, &SearchOptions::default()) else { return Ok(()) };
        for explanation in explain(&problem, &plan, Some(limit))? {
            if let Some(faster) = explanation.faster {
                prop_assert_eq!(faster.breaks_limit, Some(true), "{}", explanation.node);
            }
            if let Some(cheaper) = explanation.cheaper {
                prop_assert!(cheaper.iteration_delta_us > 0.0 && cheaper.breaks_limit == Some(false));
            }
        }
    }
}
