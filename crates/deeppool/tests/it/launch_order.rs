//! Launch order: two in-order queues, with one dependency across per launch, keep all dependencies
//! of a program.

use std::collections::BTreeSet;

use deeppool::program::{Launch, LowerOptions, RankProgram, StepId, lower_training};
use layer_graph::zoo;

use crate::program_export::scattered;

/// Returns the last launch on the lane of a launch before it.
fn before_on_its_lane(program: &RankProgram, launches: &[Launch], place: usize) -> Option<usize> {
    let lane = |launch: usize| program.steps[launches[launch].step.0].lane();
    (0..place).rev().find(|&before| lane(before) == lane(place))
}

/// Returns, for each launch, all launches that have ended when it begins.
fn ended_before(program: &RankProgram, launches: &[Launch]) -> Vec<BTreeSet<usize>> {
    let mut ended: Vec<BTreeSet<usize>> = Vec::new();
    for (place, launch) in launches.iter().enumerate() {
        let on_its_lane = before_on_its_lane(program, launches, place);
        let mut all = BTreeSet::new();
        for before in on_its_lane.into_iter().chain(launch.after) {
            assert!(before < place);
            all.extend(ended[before].iter().copied().chain([before]));
        }
        ended.push(all);
    }
    ended
}

/// Returns the launches that a step depends on, through steps that are not launched.
fn needed(program: &RankProgram, step: usize, launched: &[Option<usize>]) -> BTreeSet<usize> {
    let mut all = BTreeSet::new();
    for after in &program.steps[step].after {
        match launched[after.0] {
            Some(launch) => _ = all.insert(launch),
            None => all.extend(needed(program, after.0, launched)),
        }
    }
    all
}

#[test]
fn launches_start_after_all_dependencies_of_their_steps() {
    for model in ["digits-cnn", "resnet-18", "inception-v3"] {
        let network = zoo::model(model).unwrap();
        let program = lower_training(&network, &scattered(&network), 8, &LowerOptions::default()).unwrap();
        for (rank, seed) in program.ranks.iter().flat_map(|rank| (0..5).map(move |seed| (rank, seed))) {
            // All steps have work, and then fewer and fewer of them.
            let is_launched = |step: StepId| (step.0 * 7 + seed) % 5 >= seed;
            let launches = rank.launches(is_launched);
            let mut launched = vec![None; rank.steps.len()];
            for (place, launch) in launches.iter().enumerate() {
                launched[launch.step.0] = Some(place);
            }
            assert!((0..rank.steps.len()).all(|step| launched[step].is_some() == is_launched(StepId(step))));
            let ended = ended_before(rank, &launches);
            for (place, launch) in launches.iter().enumerate() {
                let missing = &needed(rank, launch.step.0, &launched) - &ended[place];
                assert!(missing.is_empty(), "{model}, rank {}, {launch:?}: {missing:?}", rank.rank);
                let before = before_on_its_lane(rank, &launches, place);
                let is_redundant = |after| before.is_some_and(|before| ended[before].contains(&after));
                assert!(!launch.after.is_some_and(is_redundant), "{model}, rank {}, {launch:?}", rank.rank);
            }
        }
    }
}
