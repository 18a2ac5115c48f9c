//! Times of redistributions of boxes.

use std::time::Duration;

use collectives::{CollectiveKind, Layout, LinkModel, Redistribution};
use proptest::prelude::*;

/// Returns a link with a startup time of 10 us, 1 us a message and 1 byte a nanosecond.
fn link() -> LinkModel {
    LinkModel::new("test", Duration::from_micros(10), Duration::from_micros(1), 1e9)
        .expect("a valid bandwidth")
}

/// Returns racks of two hosts of two ranks.
fn racks() -> LinkModel {
    let network = LinkModel::ethernet_100g();
    let racks = link().between_hosts(2, network.clone()).and_then(|hosts| hosts.between_hosts(2, network));
    racks.expect("racks of two hosts")
}

fn grid(extents: &[usize], parts: &[usize], ranks: &[usize]) -> Layout {
    Layout::grid(extents, parts, ranks).expect("a grid of the ranks")
}

#[test]
fn samples_to_features_take_the_time_of_an_all_to_all() {
    for ranks in [2, 4, 8] {
        let all: Vec<usize> = (0..ranks).collect();
        let (rows, columns) = (grid(&[16, 24], &[ranks, 1], &all), grid(&[16, 24], &[1, ranks], &all));
        let turn = Redistribution::new(&rows, &columns).expect("the same array");
        let all_to_all = link().cost(CollectiveKind::AllToAll, ranks, (16 * 24 / ranks * 100) as u64);
        assert_eq!(link().redistribution(&turn, 100), all_to_all, "{ranks} ranks");
        // All features on all ranks: an all-gather of each rank's buffer.
        let copies = grid(&[16, 24], &[1, 1], &all);
        let gather = Redistribution::new(&columns, &copies).expect("the same array");
        let all_gather = link().cost(CollectiveKind::AllGather, ranks, 16 * 24 * 100);
        assert_eq!(link().redistribution(&gather, 100), all_gather, "{ranks} ranks");
        // Copies to features: every rank has its own.
        let slice = Redistribution::new(&copies, &columns).expect("the same array");
        assert_eq!(link().redistribution(&slice, 100), Duration::ZERO);
    }
}

#[test]
fn addends_of_features_take_the_time_of_a_reduce_scatter() {
    for ranks in [2, 4, 8] {
        let all: Vec<usize> = (0..ranks).collect();
        // Each rank has one addend of all features; it gets all addends of some features.
        let extents = [ranks, 4, 1, 16];
        let addends = grid(&extents, &[ranks, 1, 1, 1], &all);
        let features = grid(&extents, &[1, 1, 1, ranks], &all);
        let scatter = Redistribution::new(&addends, &features).expect("the same array");
        let reduce_scatter = link().cost(CollectiveKind::ReduceScatter, ranks, 4 * 16 * 100);
        assert_eq!(link().redistribution(&scatter, 100), reduce_scatter, "{ranks} ranks");
    }
}

#[test]
fn replicas_on_the_receivers_host_spare_the_network() {
    let hosts = link().between_hosts(4, LinkModel::ethernet_10g()).expect("hosts of four");
    let copies = grid(&[8, 6], &[1, 1], &[0, 4]);
    let inside =
        Redistribution::new(&copies, &grid(&[8, 6], &[4, 1], &[6, 5, 1, 2])).expect("the same array");
    // Each of the two sends two messages of two samples to its own host.
    assert_eq!(hosts.redistribution(&inside, 1_000), Duration::from_micros(10 + 2 + 24));
}

/// Ranks and parts of two grids over an array of samples, a dimension that is not divided, and
/// units.
fn grids() -> impl Strategy<Value = [Layout; 2]> {
    let extents = (1..10_usize, 1..4_usize, 1..12_usize);
    let choice = || {
        let order = Just((0..12_usize).collect::<Vec<_>>()).prop_shuffle();
        (order, 1..4_usize, 1..3_usize, 1..3_usize)
    };
    (extents, choice(), choice()).prop_map(|((samples, outer, units), from, to)| {
        [from, to].map(|(order, ranges, parts, replicas)| {
            grid(&[samples, outer, units], &[ranges, 1, parts], &order[..ranges * parts * replicas])
        })
    })
}

proptest! {
    #[test]
    fn the_time_is_that_of_the_busiest_rank([from, to] in grids(), item_bytes in 1..1_000_u64) {
        let moves = Redistribution::new(&from, &to).expect("the same array");
        for link in [link(), racks()] {
            prop_assert_eq!(link.traffic_between(&from, &to), Ok(link.traffic(&moves)));
        }
        let count = |of: fn(&collectives::Move) -> usize, rank: usize| {
            moves.moves().iter().filter(|m| of(m) == rank).count()
        };
        let messages = (0..12).map(|rank| count(|m| m.from_rank, rank).max(count(|m| m.to_rank, rank))).max();
        let messages = messages.expect("twelve ranks") as u64;
        let expected = if messages == 0 {
            Duration::ZERO
        } else {
            let bytes = Duration::from_nanos(moves.busiest_rank_bytes(item_bytes));
            Duration::from_micros(10 + messages) + bytes
        };
        prop_assert_eq!(link().redistribution(&moves, item_bytes), expected);
        let between_racks = |bytes| racks().redistribution(&moves, bytes);
        prop_assert!(between_racks(item_bytes) <= between_racks(item_bytes + 1));
    }

    #[test]
    fn racks_far_apart_have_the_traffic_of_near_ones(
        orders in prop::array::uniform2(Just((0..12_usize).collect::<Vec<_>>()).prop_shuffle()),
        counts in prop::array::uniform2(1..12_usize),
        samples in 1..40_usize,
    ) {
        let [from, to] = [0, 1].map(|side| &orders[side][..counts[side]]);
        let far = |ranks: &[usize]| -> Vec<usize> {
            ranks.iter().map(|rank| rank / 4 * (1 << 50) + rank % 4).collect()
        };
        let near = racks().even_traffic(samples, from, to);
        prop_assert_eq!(racks().even_traffic(samples, &far(from), &far(to)), near);
    }

    #[test]
    fn a_dimension_that_is_not_divided_may_belong_to_the_item(
        (samples, outer, units) in (1..10_usize, 1..4_usize, 1..12_usize),
        order in Just((0..12_usize).collect::<Vec<_>>()).prop_shuffle(),
        (from, to) in (prop::array::uniform2(1..4_usize), prop::array::uniform2(1..4_usize)),
        item_bytes in 1..1_000_u64,
    ) {
        let ranks = |[ranges, parts]: [usize; 2]| &order[..ranges * parts];
        let boxes = [from, to].map(|parts| {
            grid(&[samples, outer, units], &[parts[0], 1, parts[1]], ranks(parts))
        });
        let flat = [from, to].map(|parts| grid(&[samples, units], &parts, ranks(parts)));
        let [boxes, flat] = [boxes, flat].map(|[from, to]| racks().traffic_between(&from, &to));
        let [boxes, flat] = [boxes, flat].map(|traffic| traffic.expect("the same array"));
        let time = racks().traffic_time(&boxes, item_bytes);
        prop_assert_eq!(time, racks().traffic_time(&flat, outer as u64 * item_bytes));
    }
}

#[test]
fn layouts_of_different_arrays_have_no_traffic() {
    let [four, five] = [4, 5].map(|samples| grid(&[samples], &[2], &[0, 1]));
    let error = link().traffic_between(&four, &five).expect_err("different arrays");
    assert_eq!(Err(error), Redistribution::new(&four, &five));
}
