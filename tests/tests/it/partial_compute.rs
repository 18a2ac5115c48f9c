//! Partial backpropagation: how long each rank computes with more parts.

use std::time::Duration;

use collectives::LinkModel;
use deeppool::costs::{Costs, shard_sizes};
use deeppool::program::{LowerOptions, Op, Placement, Program, lower_rotation};
use deeppool_tests::{in_stretches, scattered};
use layer_graph::{LayerGraph, zoo};
use layer_profile::DeviceModel;

use crate::partial::{by_layers, equal_layers, plain};

/// By rank: how long it computes in an iteration, as a mean over a rotation.
fn computing(programs: &[Program], costs: &Costs<'_>) -> Vec<Duration> {
    let mut by_rank = vec![Duration::ZERO; programs[0].ranks.len()];
    for program in programs {
        for (time, rank) in by_rank.iter_mut().zip(&program.ranks) {
            *time += rank.steps.iter().map(|step| costs.compute(&step.op).unwrap()).sum::<Duration>();
        }
    }
    by_rank.into_iter().map(|time| time / programs.len() as u32).collect()
}

fn least_factor(number: usize) -> usize {
    (2..=number).find(|factor| number % factor == 0).unwrap_or(number)
}

fn largest_factor(number: usize) -> usize {
    (2..=number).rev().find(|&factor| number % factor == 0 && least_factor(factor) == factor).unwrap_or(1)
}

/// Whether no rank computes longer with so many parts than with fewer, whatever the placement: those are cut into as many each, and no prime
/// factor of that is below one of theirs.
fn never_rises(fewer: usize, more: usize) -> bool {
    more > fewer && more % fewer == 0 && least_factor(more / fewer) >= largest_factor(fewer)
}

#[test]
fn no_rank_computes_longer() {
    const PARTS: [usize; 9] = [2, 3, 4, 5, 6, 8, 9, 12, 16];
    for model in ["vgg16", "resnet-18", "inception-v3", "digits-cnn"] {
        let network = zoo::model(model).unwrap();
        let profile = DeviceModel::named("a100").unwrap().profile(&network, &shard_sizes(32, 8)).unwrap();
        let link = LinkModel::dgx_a100();
        let costs = Costs::new(&network, &profile, &link);
        let of = |placement: &Placement, partial| {
            let options = LowerOptions::default().with_partial(partial);
            computing(&lower_rotation(&network, placement, 32, &options).unwrap(), &costs)
        };
        let everywhere = everywhere(&network, 8);
        let mut before = of(&everywhere, None);
        for parts in [2, 4, 8] {
            let now = of(&everywhere, Some(by_layers(&network, parts)));
            assert!(now.iter().zip(&before).all(|(now, before)| now < before), "{model}: {parts} parts");
            before = now;
        }
        let placements = [
            in_stretches(&network, 8, 0).unwrap(),
            in_stretches(&network, 7, 1).unwrap(),
            scattered(&network, 5, 2).unwrap(),
        ];
        for placement in &placements {
            let whole = (1, of(placement, None));
            let partial = PARTS.map(|parts| (parts, of(placement, Some(by_layers(&network, parts)))));
            let all = || std::iter::once(&whole).chain(&partial);
            for (fewer, before) in all() {
                for (more, now) in all().filter(|(more, _)| never_rises(*fewer, *more)) {
                    let falls = now.iter().zip(before).all(|(now, before)| now <= before);
                    assert!(falls, "{model}: {more} parts after {fewer}");
                }
            }
        }
    }
}

fn everywhere(network: &LayerGraph, ranks: usize) -> Placement {
    Placement::first_ranks(network, ranks, &vec![ranks; network.len() - 1]).unwrap()
}

/// By rank: its backward steps with data parallelism, over those of whole backpropagation.
fn backward_shares(layers: usize, ranks: usize, batch: usize, parts: usize) -> Vec<f64> {
    let network = equal_layers(layers);
    let options = plain().with_partial(Some(by_layers(&network, parts)));
    let programs = lower_rotation(&network, &everywhere(&network, ranks), batch, &options).unwrap();
    let is_of_layer =
        |op: &Op| matches!(op, Op::Backward { layer, .. } if network.layer(*layer).parameter_count() > 0);
    let steps = |rank: usize| -> usize {
        let of_rank = programs.iter().flat_map(|program| &program.ranks[rank].steps);
        of_rank.filter(|step| is_of_layer(&step.op)).count()
    };
    (0..ranks).map(|rank| steps(rank) as f64 / (parts * layers) as f64).collect()
}

fn range(shares: &[f64]) -> [f64; 2] {
    [shares.iter().copied().fold(f64::INFINITY, f64::min), shares.iter().copied().fold(0.0, f64::max)]
}

/// The table of the page on partial backpropagation.
#[test]
fn with_other_numbers_of_parts_it_may_rise() {
    for (parts, expected) in [
        (2, [0.75, 0.75]),
        (3, [0.667, 0.889]),
        (4, [0.625, 0.625]),
        (6, [0.583, 0.694]),
        (8, [0.5625, 0.5625]),
        (12, [0.597, 0.597]),
        (16, [0.5625, 0.5625]),
    ] {
        let found = range(&backward_shares(48, 8, 48, parts));
        let is_same = found.iter().zip(&expected).all(|(found, expected)| (found - expected).abs() < 5e-4);
        assert!(is_same, "{parts} parts: {found:?}, not {expected:?}");
    }
}

/// Whatever the roles are that parts have in an iteration: of two layers three parts reach more than two do, when each sample is a rank's.
#[test]
fn roles_of_three_parts_reach_more_of_two_layers_than_those_of_two() {
    let all_have = |parts, expected: f64| {
        let shares = backward_shares(2, 6, 6, parts);
        assert!(shares.iter().all(|share| (share - expected).abs() < 1e-9), "{parts} parts: {shares:?}");
    };
    all_have(2, 0.75);
    all_have(3, 5.0 / 6.0);
}

/// Parts that are cut in two on three ranks: six parts cannot have roles that suit two ranks, as ours do, and three as well.
#[test]
fn six_parts_suit_two_ranks_and_not_three() {
    let most = |ranks, parts| range(&backward_shares(6, ranks, 6, parts))[1];
    assert!(most(2, 6) <= most(2, 2));
    assert!(most(3, 6) > most(3, 3));
}
