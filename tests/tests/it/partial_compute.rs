//! Partial backpropagation: compute time of each rank by number of parts.

use std::time::Duration;

use collectives::LinkModel;
use deeppool::costs::{Costs, shard_sizes};
use deeppool::program::{LowerOptions, Op, Placement, Program, lower_rotation};
use deeppool_tests::{in_stretches, scattered};
use layer_graph::{LayerGraph, zoo};
use layer_profile::DeviceModel;

use crate::partial::{by_layers, equal_layers, plain};

/// Returns the compute time of each rank per iteration, the mean over a rotation.
fn computing(programs: &[Program], costs: &Costs<'_>) -> Vec<Duration> {
    let mut by_rank = vec![Duration::ZERO; programs[0].ranks.len()];
    for program in programs {
        for (time, rank) in by_rank.iter_mut().zip(&program.ranks) {
            *time +=
                rank.steps.iter().map(|step| costs.compute_time(rank, &step.op).unwrap()).sum::<Duration>();
        }
    }
    by_rank.into_iter().map(|time| time / programs.len() as u32).collect()
}

fn min_factor(number: usize) -> usize {
    (2..=number).find(|factor| number % factor == 0).unwrap_or(number)
}

fn max_prime_factor(number: usize) -> usize {
    (2..=number).rev().find(|&factor| number % factor == 0 && min_factor(factor) == factor).unwrap_or(1)
}

/// Returns whether no rank computes longer with `more` parts than with `fewer`, for any placement.
///
/// This holds if `more` is a multiple of `fewer` whose quotient has no prime factor below one of
/// `fewer`.
fn never_rises(fewer: usize, more: usize) -> bool {
    more > fewer && more % fewer == 0 && min_factor(more / fewer) >= max_prime_factor(fewer)
}

#[test]
fn compute_time_does_not_rise_with_refined_parts() {
    const PARTS: [usize; 9] = [2, 3, 4, 5, 6, 8, 9, 12, 16];
    for model in ["vgg16", "resnet-18", "inception-v3", "digits-cnn"] {
        let network = zoo::model(model).unwrap();
        let profile = DeviceModel::named("a100").unwrap().profile(&network, &shard_sizes(32, 8)).unwrap();
        let link = LinkModel::dgx_a100();
        let costs = Costs::new(&network, &profile, &link);
        let times = |placement: &Placement, partial| {
            let options = LowerOptions::default().with_partial(partial);
            computing(&lower_rotation(&network, placement, 32, &options).unwrap(), &costs)
        };
        let everywhere = everywhere(&network, 8);
        let mut before = times(&everywhere, None);
        for parts in [2, 4, 8] {
            let now = times(&everywhere, Some(by_layers(&network, parts)));
            assert!(now.iter().zip(&before).all(|(now, before)| now < before), "{model}: {parts} parts");
            before = now;
        }
        let placements = [
            in_stretches(&network, 8, 0).unwrap(),
            in_stretches(&network, 7, 1).unwrap(),
            scattered(&network, 5, 2).unwrap(),
        ];
        for placement in &placements {
            let whole = (1, times(placement, None));
            let partial = PARTS.map(|parts| (parts, times(placement, Some(by_layers(&network, parts)))));
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

/// Returns each rank's number of backward steps with data parallelism, relative to full
/// backpropagation.
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

/// Minimum and maximum share of backward steps, as in the table of the documentation.
#[test]
fn backward_shares_match_the_documented_table() {
    for (parts, expected) in [
        (2, [0.75, 0.75]),
        (3, [0.667, 0.889]),
        (4, [0.625, 0.625]),
        (6, [0.583, 0.694]),
        (8, [0.5625, 0.5625]),
        (12, [0.597, 0.597]),
        (16, [0.5625, 0.5625]),
    ] {
        let actual = range(&backward_shares(48, 8, 48, parts));
        let is_close =
            actual.iter().zip(&expected).all(|(actual, expected)| (actual - expected).abs() < 5e-4);
        assert!(is_close, "{parts} parts: {actual:?}, not {expected:?}");
    }
}

/// Each rank has one sample. This holds for any assignment of roles to parts.
#[test]
fn three_parts_compute_more_of_two_layers_than_two_parts() {
    let all_have = |parts, expected: f64| {
        let shares = backward_shares(2, 6, 6, parts);
        assert!(shares.iter().all(|share| (share - expected).abs() < 1e-9), "{parts} parts: {shares:?}");
    };
    all_have(2, 0.75);
    all_have(3, 5.0 / 6.0);
}

/// No roles of six parts refine both the roles of two parts and the roles of three.
#[test]
fn six_parts_refine_two_parts_but_not_three() {
    let max_share = |ranks, parts| range(&backward_shares(6, ranks, 6, parts))[1];
    assert!(max_share(2, 6) <= max_share(2, 2));
    assert!(max_share(3, 6) > max_share(3, 3));
}
