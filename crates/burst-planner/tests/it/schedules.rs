//! Regions, and what a choice costs under a schedule.

use burst_planner::{
    Error, Link, NodeId, NodeOption, PlanProblem, RegionSchedule, Schedule, evaluate, evaluate_schedule,
    layout, regions,
};
use proptest::prelude::*;

use crate::random::waves::{all_schedules, parallel_problems, scheduled};
use crate::random::{close, graphs, problems};

/// fork -> a -> join, fork -> b -> join and fork -> join, where b forks once more: b -> c -> join and b -> d -> join.
fn nested() -> PlanProblem {
    let mut problem = PlanProblem::new(8);
    let option = |gpus: usize, time_us: f64| NodeOption::new(gpus, time_us).with_memory_bytes(gpus as u64);
    let [fork, a, b, c, d, join] =
        [(8, 1.0), (4, 20.0), (3, 30.0), (1, 5.0), (2, 7.0), (8, 2.0)].map(|(gpus, us)| {
            let name = format!("n{}", problem.nodes.len());
            problem.add_node(name, [option(gpus, us), option(1, 100.0)])
        });
    problem.single_gpu_us = Some(100.0);
    for (from, to) in [(fork, a), (fork, b), (a, join), (b, c), (b, d), (c, join), (d, join), (fork, join)] {
        problem.add_edge(from, to, vec![vec![0.5; 2]; 2]).transfer_disjoint_us = Some(vec![vec![1.0; 2]; 2]);
    }
    problem
}

fn waves(fork: usize, join: usize, waves: &[&[usize]]) -> RegionSchedule {
    RegionSchedule {
        fork: NodeId(fork),
        join: NodeId(join),
        waves: waves.iter().map(|wave| wave.to_vec()).collect(),
    }
}

#[test]
fn regions_are_found_with_what_is_nested_in_them() {
    let regions = regions(&nested()).expect("regions");
    assert_eq!(regions.len(), 2);
    assert_eq!((regions[0].fork, regions[0].join, regions[0].parent), (NodeId(0), NodeId(5), None));
    let links: Vec<_> =
        regions[0].branches.iter().map(|branch| (branch.nodes.clone(), branch.links.clone())).collect();
    assert_eq!(
        links,
        [
            (vec![NodeId(1)], vec![Link::Edge(0), Link::Edge(2)]),
            (vec![NodeId(2)], vec![Link::Edge(1), Link::Region(1)]),
            (vec![], vec![Link::Edge(7)]),
        ]
    );
    assert_eq!((regions[1].fork, regions[1].join, regions[1].parent), (NodeId(2), NodeId(5), Some((0, 1))));
}

#[test]
fn a_schedule_costs_what_its_definition_says() {
    let problem = nested();
    let schedule = Schedule { regions: vec![waves(0, 5, &[&[0, 1], &[2]]), waves(2, 5, &[&[1, 0]])] };
    let totals = evaluate_schedule(&problem, &[0; 6], &schedule).expect("totals");
    // The nested wave takes as long as its branch d with both exits disjoint, since b is not the first of its wave.
    let nested_us = f64::max(0.5 + 7.0 + 1.0, 1.0 + 5.0 + 1.0);
    let wave_us = f64::max(0.5 + 20.0 + 0.5, 1.0 + 30.0 + nested_us);
    assert!(close(totals.iteration_us, 1.0 + wave_us + 0.5 + 2.0), "{totals:?}");
    let layers = 8.0 + 80.0 + 90.0 + 5.0 + 14.0 + 16.0;
    let transfers =
        8.0 * 0.5 + 8.0 * 0.5 + (8.0 + 3.0) * 1.0 + (3.0 + 1.0) * 1.0 + 3.0 * 0.5 + 9.0 + 10.0 + 8.0 * 0.5;
    assert!(close(totals.gpu_time_us, layers + transfers), "{totals:?}");
    assert!(close(totals.amplification * 100.0, totals.gpu_time_us));

    let layout = layout(&problem, &[0; 6], &schedule).expect("a layout");
    assert_eq!(layout.ranks, [0..8, 0..4, 4..7, 6..7, 4..6, 0..8]);
    assert_eq!(layout.waves, [None, Some(0), Some(0), Some(0), Some(0), None]);
    assert_eq!(layout.memory_bytes, [20, 20, 20, 20, 21, 21, 20, 16]);
}

#[test]
fn schedules_that_make_no_sense_are_errors() {
    let problem = nested();
    let fails = |choice: [usize; 6], regions: &[RegionSchedule]| {
        let schedule = Schedule { regions: regions.to_vec() };
        let error = evaluate_schedule(&problem, &choice, &schedule).expect_err("an error");
        if !matches!(error, Error::NoDisjointTransfer { .. }) {
            assert_eq!(layout(&problem, &choice, &schedule), Err(error.clone()));
        }
        error.to_string()
    };
    assert_eq!(
        fails([0; 6], &[waves(0, 7, &[])]),
        "the schedule has waves from `n0` to `number 7`, which are not the fork and the join of a region"
    );
    for (listed, message) in [
        (vec![waves(2, 5, &[&[0], &[1]]), waves(2, 5, &[&[0], &[1]])], "the region is listed twice"),
        (vec![waves(2, 5, &[&[0]])], "branch 1 is missing"),
        (vec![waves(2, 5, &[&[0], &[1, 0]])], "branch 0 is listed twice"),
        (vec![waves(2, 5, &[&[0], &[1, 2]])], "branch 2 does not exist, there are 2"),
        (vec![waves(2, 5, &[&[0], &[], &[1]])], "wave 1 has no branches"),
    ] {
        assert_eq!(fails([0; 6], &listed), format!("the waves from `n2` to `n5`: {message}"));
    }
    // The nested region has the width of its branch: 2 GPUs, for 1 + 2.
    assert_eq!(
        fails([0, 0, 1, 0, 0, 0], &[waves(2, 5, &[&[0, 1]])]),
        "wave 0 from `n2` to `n5` needs 3 GPUs, and there are 2"
    );
    let mut lacking = problem.clone();
    lacking.edges[5].transfer_disjoint_us = None;
    let schedule = |wave: &[usize]| Schedule { regions: vec![waves(2, 5, &[wave])] };
    assert!(evaluate_schedule(&lacking, &[0; 6], &schedule(&[0, 1])).is_ok());
    let error = evaluate_schedule(&lacking, &[0; 6], &schedule(&[1, 0])).expect_err("an error");
    assert_eq!(
        error.to_string(),
        "the waves from `n2` to `n5` place `n3` and `n5` on different ranks, and their edge has no transfer_disjoint_us"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn one_branch_after_another_is_the_additive_model(problem in problems(graphs(), &[1, 2, 3, 4, 8]), draw in any::<u64>()) {
        let choice: Vec<usize> = problem.nodes.iter().enumerate()
            .map(|(index, node)| (draw.rotate_left(index as u32 * 5) % node.options.len() as u64) as usize)
            .collect();
        let additive = evaluate(&problem, &choice)?;
        let serial = evaluate_schedule(&problem, &choice, &Schedule::default())?;
        prop_assert!(close(additive.iteration_us, serial.iteration_us));
        prop_assert!(close(additive.gpu_time_us, serial.gpu_time_us));
        let layout = layout(&problem, &choice, &Schedule::default())?;
        for (node, ranks) in layout.ranks.iter().enumerate() {
            prop_assert_eq!(ranks, &(0..problem.nodes[node].options[choice[node]].gpus));
        }
    }

    #[test]
    fn totals_and_layout_are_those_of_the_definition(problem in parallel_problems(&[1, 2, 3, 4], 3), draw in any::<[u64; 2]>()) {
        let choice: Vec<usize> = problem.nodes.iter().enumerate()
            .map(|(index, node)| (draw[0].rotate_left(index as u32 * 5) % node.options.len() as u64) as usize)
            .collect();
        let regions = regions(&problem)?;
        let schedules = all_schedules(&regions);
        let schedule = &schedules[(draw[1] % schedules.len() as u64) as usize];
        match (evaluate_schedule(&problem, &choice, schedule), scheduled(&problem, &regions, &choice, schedule)) {
            (Ok(totals), Some(expected)) => {
                prop_assert!(close(totals.iteration_us, expected.time), "{:?} {:?}", totals, expected);
                prop_assert!(close(totals.gpu_time_us, expected.gpu), "{:?} {:?}", totals, expected);
                prop_assert_eq!(layout(&problem, &choice, schedule)?.memory_bytes, expected.bytes);
            }
            (Err(Error::WaveTooWide { gpus, available, .. }), None) => prop_assert!(gpus > available),
            (Err(Error::NoDisjointTransfer { .. }), None) => {}
            (found, expected) => prop_assert!(false, "{:?} {:?}", found, expected),
        }
    }

    #[test]
    fn regions_are_whole_and_nothing_more_can_be_merged(
        problem in prop_oneof![parallel_problems(&[1], 1), problems(graphs(), &[1])],
    ) {
        let regions = regions(&problem)?;
        let ends = |link: Link| match link {
            Link::Edge(edge) => (problem.edges[edge].from, problem.edges[edge].to),
            Link::Region(region) => (regions[region].fork, regions[region].join),
        };
        let mut links: Vec<Link> = (0..problem.edges.len()).map(Link::Edge).collect();
        links.extend((0..regions.len()).map(Link::Region));
        for (index, region) in regions.iter().enumerate() {
            prop_assert!(region.branches.len() > 1);
            for (place, branch) in region.branches.iter().enumerate() {
                prop_assert_eq!(branch.links.len(), branch.nodes.len() + 1);
                prop_assert!(!branch.nodes.is_empty() || matches!(branch.links[0], Link::Edge(_)));
                let mut from = region.fork;
                for (&link, &to) in branch.links.iter().zip(branch.nodes.iter().chain([&region.join])) {
                    prop_assert_eq!(ends(link), (from, to));
                    from = to;
                    // Each link lies in one branch.
                    prop_assert!(links.contains(&link));
                    links.retain(|&other| other != link);
                    if let Link::Region(inner) = link {
                        prop_assert!(inner > index);
                        prop_assert_eq!(regions[inner].parent, Some((index, place)));
                    }
                }
            }
        }
        // Nodes in branches have no other links; what is left has no parallel links, not even between chains of nodes.
        let mut left: Vec<(NodeId, NodeId)> = links.into_iter().map(ends).collect();
        for node in regions.iter().flat_map(|region| &region.branches).flat_map(|branch| &branch.nodes) {
            prop_assert!(left.iter().all(|link| link.0 != *node && link.1 != *node));
        }
        for node in (0..problem.nodes.len()).map(NodeId) {
            let into: Vec<_> = left.iter().filter(|link| link.1 == node).copied().collect();
            let out: Vec<_> = left.iter().filter(|link| link.0 == node).copied().collect();
            if let (&[(from, _)], &[(_, to)]) = (into.as_slice(), out.as_slice()) {
                left.retain(|link| link.0 != node && link.1 != node);
                left.push((from, to));
            }
        }
        let links = left.len();
        left.sort_unstable();
        left.dedup();
        prop_assert_eq!(left.len(), links);
    }
}
