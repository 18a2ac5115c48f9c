//! Times of operations that several groups perform at the same time.

use std::time::Duration;

use collectives::{CollectiveKind, LinkModel};
use proptest::prelude::*;

/// Returns hosts of four ranks, with 1 byte a nanosecond inside, and a network with the given
/// number of adapters a host, of 0.1 bytes a nanosecond each.
fn hosts(adapters: usize) -> LinkModel {
    let inside = LinkModel::new("inside", Duration::ZERO, Duration::from_micros(1), 1e9);
    let network = LinkModel::new("network", Duration::ZERO, Duration::from_micros(5), 1e8);
    let network = network.expect("a bandwidth").with_adapters(adapters);
    inside.expect("a bandwidth").between_hosts(4, network).expect("hosts of four")
}

fn all_reduce(link: &LinkModel, ranks: &[usize], groups: usize) -> Duration {
    link.cost_in_groups(CollectiveKind::AllReduce, ranks, groups, 80_000)
}

#[test]
fn groups_share_the_adapters_of_their_hosts() {
    let pairs = [0, 4, 1, 5, 2, 6, 3, 7];
    // Two steps, and 80000 bytes at a quarter, half and all of an adapter's bandwidth.
    for (adapters, expected_us) in [(1, 3_210), (2, 1_610), (4, 810), (8, 810)] {
        let time = all_reduce(&hosts(adapters), &pairs, 4);
        assert_eq!(time, Duration::from_micros(expected_us), "{adapters} adapters");
    }
    // Pairs of different hosts, and pairs within hosts, do not share an adapter.
    let alone = all_reduce(&hosts(1), &[0, 4], 1);
    assert_eq!(all_reduce(&hosts(1), &[0, 4, 8, 12], 2), alone);
    assert_eq!(all_reduce(&hosts(1), &[0, 4, 1, 2], 2), alone);
    assert!(all_reduce(&hosts(1), &[0, 4, 1, 12], 2) > alone.mul_f64(1.9));
    let inside = all_reduce(&hosts(1), &[0, 1], 1);
    assert_eq!(all_reduce(&hosts(1), &[0, 1, 2, 3, 6, 7], 3), inside);
}

#[test]
fn messages_and_barriers_of_groups_are_disturbed_by_bytes_only() {
    let time =
        |collective, ranks: &[usize], groups| hosts(1).cost_in_groups(collective, ranks, groups, 8_000);
    let message = time(CollectiveKind::Send, &[0, 4], 1);
    assert_eq!(time(CollectiveKind::Send, &[0, 4, 1, 5], 2), message + Duration::from_micros(80));
    let barrier = time(CollectiveKind::Barrier, &[0, 4], 1);
    assert_eq!(time(CollectiveKind::Barrier, &[0, 4, 1, 5], 2), barrier);
}

#[test]
fn incomplete_lists_of_groups_are_accepted() {
    assert_eq!(all_reduce(&hosts(1), &[], 3), Duration::ZERO);
    assert_eq!(all_reduce(&hosts(1), &[0, 4], 0), all_reduce(&hosts(1), &[0, 4], 1));
    assert_eq!(all_reduce(&hosts(1), &[0, 4], 9), Duration::ZERO);
    // The last group has one rank.
    assert_eq!(all_reduce(&hosts(1), &[0, 4, 1], 2), all_reduce(&hosts(1), &[0, 4], 1));
}

/// A number of groups of equal length, and their ranks, among those of eight hosts of four.
fn groups() -> impl Strategy<Value = (usize, Vec<usize>)> {
    let order = Just((0..32_usize).collect::<Vec<_>>()).prop_shuffle();
    let sizes = (1..9_usize).prop_flat_map(|groups| (Just(groups), 1..=32 / groups));
    (sizes, order).prop_map(|((groups, len), mut ranks)| {
        ranks.truncate(groups * len);
        (groups, ranks)
    })
}

proptest! {
    #[test]
    fn groups_take_at_least_the_time_of_each_alone_and_share_only_networks(
        (groups, ranks) in groups(),
        bytes in 0..1_u64 << 30,
        more in 0..1_u64 << 24,
        seed in 0..8_usize,
    ) {
        let network = match seed % 4 {
            0 => LinkModel::ethernet_10g(),
            1 => LinkModel::ethernet_25g().with_adapters(2),
            2 => LinkModel::ethernet_100g().with_adapters(4),
            _ => LinkModel::dgx_h100().with_max_members(None),
        };
        let host = LinkModel::dgx_a100();
        let cluster = host.clone().between_hosts(4, network).expect("hosts of four");
        let cluster = if seed < 4 { cluster } else { cluster.pipelined() };
        let [pod, ethernet] =
            ["dgx-a100-pod", "a100-100gbe"].map(|name| LinkModel::named(name).expect("it is built in"));
        let lists: Vec<&[usize]> = ranks.chunks(ranks.len() / groups).collect();
        for link in [host.with_max_members(None), cluster, pod, ethernet] {
            let is_one_level = link.ranks_by_level().len() == 1;
            for op in CollectiveKind::ALL {
                let time = link.cost_in_groups(op, &ranks, groups, bytes);
                let alone = lists.iter().map(|group| link.cost_among(op, group, bytes)).max();
                let alone = alone.expect("at least one group");
                prop_assert!(time >= alone, "{} {}: {:?} {:?}", link.name(), op, time, alone);
                if is_one_level || groups == 1 {
                    prop_assert_eq!(time, alone, "{} {}", link.name(), op);
                }
                // A group that has at most the whole bandwidth of one of n groups.
                prop_assert!(time <= alone.saturating_mul(2 * groups as u32), "{} {}", link.name(), op);
                let longer = link.cost_in_groups(op, &ranks, groups, bytes + more);
                prop_assert!(longer >= time, "{} {}: {:?} {:?}", link.name(), op, longer, time);
                let fewer = link.cost_in_groups(op, &ranks[..lists[0].len()], 1, bytes);
                prop_assert!(time >= fewer, "{} {}", link.name(), op);
            }
        }
    }

    #[test]
    fn adapters_of_a_host_carry_the_bytes_of_all_groups(
        (groups, ranks) in groups(),
        bytes in 0..1_u64 << 30,
        adapters in 1..5_usize,
    ) {
        let time = hosts(adapters).cost_in_groups(CollectiveKind::AllReduce, &ranks, groups, bytes);
        for host in 0..8 {
            // A host sends 2 (k - 1) / k of the bytes of a group on k hosts.
            let of_group = |group: &[usize]| {
                let mut members: Vec<usize> = group.iter().map(|rank| rank / 4).collect();
                members.sort_unstable();
                members.dedup();
                let count = members.len() as f64;
                if members.contains(&host) { 2.0 * (count - 1.0) / count * bytes as f64 } else { 0.0 }
            };
            let sent: f64 = ranks.chunks(ranks.len() / groups).map(of_group).sum();
            let bound = sent / (1e8 * adapters as f64);
            prop_assert!(time.as_secs_f64() >= bound * (1.0 - 1e-9), "{:?} {}", time, bound);
        }
    }
}
