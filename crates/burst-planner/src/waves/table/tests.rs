//! Region tables against all choices under all schedules.

use proptest::prelude::*;

use super::{RegionTable, RegionTables, TableOptions};
use crate::{Error, PlanProblem, Schedule, evaluate_schedule, layout, regions};

#[path = "../../../tests/it/random/mod.rs"]
#[allow(dead_code, reason = "the integration tests use the rest of it")]
mod random;
use random::waves::{Scheduled, all_scheduled, parallel_problems};
use random::{CLOSE, close};

fn options(epsilon: f64, with_memory: bool) -> TableOptions {
    TableOptions { epsilon, max_labels: 1_000_000, with_memory }
}

/// All choices for nodes outside of the tables with all alternatives of the tables, by summing up.
fn all_from_tables(problem: &PlanProblem, tables: &[RegionTable]) -> Result<Vec<Scheduled>, TestCaseError> {
    let regions = regions(problem)?;
    let is_inside = |node: &usize| tables.iter().any(|table| table.nodes.contains(node));
    let outside: Vec<usize> = (0..problem.nodes.len()).filter(|node| !is_inside(node)).collect();
    let mut choices = vec![vec![0; problem.nodes.len()]];
    for &node in &outside {
        let with = |choice: &Vec<usize>, option: usize| {
            let mut choice = choice.clone();
            choice[node] = option;
            choice
        };
        let options = 0..problem.nodes[node].options.len();
        choices = choices
            .iter()
            .flat_map(|choice| options.clone().map(move |option| with(choice, option)))
            .collect();
    }
    let mut all = Vec::new();
    for choice in choices {
        let (mut time, mut gpu, mut bytes) = (0.0, 0.0, vec![0; problem.gpus]);
        for &node in &outside {
            let option = &problem.nodes[node].options[choice[node]];
            time += option.total_us();
            gpu += option.gpus as f64 * option.total_us();
            bytes[..option.gpus].iter_mut().for_each(|bytes| *bytes += option.memory_bytes.unwrap_or(0));
        }
        for (index, edge) in problem.edges.iter().enumerate() {
            if tables.iter().all(|table| !table.edges.contains(&index)) {
                let us = edge.transfer_us[choice[edge.from.0]][choice[edge.to.0]];
                let gpus = |node: usize| problem.nodes[node].options[choice[node]].gpus;
                time += us;
                gpu += us * gpus(edge.from.0).max(gpus(edge.to.0)) as f64;
            }
        }
        let mut plans = vec![Scheduled { choice, schedule: Schedule::default(), time, gpu, bytes }];
        for table in tables {
            let mut next = Vec::new();
            for plan in &plans {
                let alternatives = table.alternatives(plan.choice[table.fork], plan.choice[table.join]);
                prop_assert!(!alternatives.is_empty());
                for alternative in alternatives {
                    let mut plan = plan.clone();
                    plan.time += table.time_us[alternative];
                    plan.gpu += table.gpu_us[alternative];
                    if let Some(bytes) = table.bytes(alternative) {
                        plan.bytes.iter_mut().zip(bytes).for_each(|(sum, bytes)| *sum += bytes);
                    }
                    let expanded = table.expand(&regions, alternative);
                    prop_assert_eq!(expanded.choices.len(), table.nodes.len());
                    expanded.choices.iter().for_each(|&(node, option)| plan.choice[node] = option);
                    plan.schedule.regions.extend(expanded.schedules);
                    next.push(plan);
                }
            }
            plans = next;
        }
        all.extend(plans);
    }
    Ok(all)
}

/// Every plan of the tables costs what it says, and every plan there is is covered by one.
fn check(problem: &PlanProblem, options: &TableOptions) -> Result<(), TestCaseError> {
    let tables = match RegionTables::new(problem, &regions(problem)?, options) {
        // A few problems in a thousand have more plans than the search may hold: that is said, and is no plan lost.
        Err(Error::TooManyLoads { .. }) => return Err(TestCaseError::reject("too many loads")),
        tables => tables?.tables,
    };
    let found = all_from_tables(problem, &tables)?;
    for plan in &found {
        let totals = evaluate_schedule(problem, &plan.choice, &plan.schedule)?;
        prop_assert!(close(totals.iteration_us, plan.time), "{:?} {:?}", totals, plan);
        prop_assert!(close(totals.gpu_time_us, plan.gpu), "{:?} {:?}", totals, plan);
        if options.with_memory {
            prop_assert_eq!(&layout(problem, &plan.choice, &plan.schedule)?.memory_bytes, &plan.bytes);
        }
    }
    let factor = (1.0 + options.epsilon) * (1.0 + CLOSE);
    for one in all_scheduled(problem) {
        let covered = found.iter().any(|plan| {
            let fits = plan.bytes.iter().zip(&one.bytes).all(|(own, other)| own <= other);
            plan.time <= one.time * factor
                && plan.gpu <= one.gpu * (1.0 + CLOSE)
                && (fits || !options.with_memory)
        });
        prop_assert!(covered, "{:?}", one);
    }
    for table in &tables {
        let forks = problem.nodes[table.fork].options.len();
        for (a, b) in (0..forks).flat_map(|a| (0..table.columns).map(move |b| (a, b))) {
            for pair in
                table.alternatives(a, b).collect::<Vec<_>>().windows(2).filter(|_| !options.with_memory)
            {
                prop_assert!(table.time_us[pair[0]] < table.time_us[pair[1]]);
                prop_assert!(table.gpu_us[pair[0]] > table.gpu_us[pair[1]]);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn tables_hold_all_plans_worth_choosing_from(problem in parallel_problems(&[1, 2, 3, 4], 2)) {
        check(&problem, &options(0.0, false))?;
    }

    #[test]
    fn tables_cover_all_plans_to_the_tolerance(problem in parallel_problems(&[1, 2, 3, 4], 2), epsilon in 0.0..0.4) {
        check(&problem, &options(epsilon, false))?;
    }

    #[test]
    fn tables_tell_what_every_rank_holds(problem in parallel_problems(&[1, 2, 3], 2), epsilon in prop_oneof![Just(0.0), 0.0..0.4]) {
        check(&problem, &options(epsilon, true))?;
    }
}
