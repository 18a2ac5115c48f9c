//! Links of clusters, and the use of them by operations.

use std::time::Duration;

use collectives::{
    ClusterLink, ClusterLinks, CollectiveKind, Direction, Flow, Layout, LinkModel, Redistribution,
};
use proptest::prelude::*;

fn level(name: &str, bytes_per_s: f64) -> LinkModel {
    LinkModel::new(name, Duration::ZERO, Duration::ZERO, bytes_per_s).expect("a bandwidth")
}

/// Returns racks of two hosts of four ranks. Hosts have two adapters of 100 MB/s, racks one of the
/// same bandwidth: they are oversubscribed by 4.
fn racks() -> LinkModel {
    let hosts = level("inside", 1e9).between_hosts(4, level("leaf", 1e8).with_adapters(2)).unwrap();
    hosts.between_hosts(2, level("spine", 1e8)).unwrap()
}

/// Returns the bytes of a flow over each link that it uses.
fn bytes(links: &ClusterLinks, flow: &Flow) -> Vec<(ClusterLink, f64)> {
    let volume = flow.max_rate() * flow.alone().as_secs_f64();
    let of_link = |(link, factor): (usize, f64)| (links.get(link).expect("a link"), factor * volume);
    flow.uses().map(of_link).collect()
}

/// Returns the bytes over the links of a level, which are the same in both directions, by member.
fn of_level(links: &ClusterLinks, flow: &Flow, level: usize) -> Vec<(usize, f64)> {
    let all = bytes(links, flow);
    let of_direction = |direction| {
        let of_level = all.iter().filter(move |(link, _)| link.level == level && link.direction == direction);
        of_level.map(|(link, bytes)| (link.member, (bytes * 1e3).round() / 1e3)).collect::<Vec<_>>()
    };
    let sent = of_direction(Direction::Sent);
    assert_eq!(sent, of_direction(Direction::Received));
    sent
}

#[test]
fn every_member_of_every_level_has_a_link_in_each_direction() {
    let links = ClusterLinks::new(&racks(), 17).unwrap();
    let counts: Vec<usize> = (0..4).map(|level| links.of_level(level).len()).collect();
    assert_eq!((counts, links.levels(), links.count()), (vec![34, 10, 6, 0], 3, 50));
    let capacities: Vec<Option<f64>> = (0..4).map(|level| links.capacity(level)).collect();
    assert_eq!(capacities, [Some(1e9), Some(2e8), Some(1e8), None]);
    let name = |index| links.get(index).map(|link: ClusterLink| link.to_string());
    assert_eq!(name(3).as_deref(), Some("GPU 1, received"));
    assert_eq!(name(34).as_deref(), Some("host 0, sent"));
    assert_eq!(name(49).as_deref(), Some("rack 2, received"));
    assert_eq!(name(50), None);
    assert!(links.network().is_ok());

    let error = ClusterLinks::new(&LinkModel::dgx_a100(), 9).unwrap_err();
    assert!(error.to_string().contains("connects 8 ranks, not 9"), "{error}");
}

#[test]
fn an_all_reduce_sends_the_bytes_of_its_rings() {
    let links = ClusterLinks::new(&racks(), 16).unwrap();
    let of = |ranks: &[usize]| links.collective(CollectiveKind::AllReduce, ranks, 1, 1_000).unwrap();
    // Two ranks of a host: 2 (2 - 1) / 2 of the bytes.
    let inside = of(&[0, 1]);
    assert_eq!(of_level(&links, &inside, 0), [(0, 1e3), (1, 1e3)]);
    assert_eq!(of_level(&links, &inside, 1), []);
    // Two hosts of a rack: the bytes of a host pass its two adapters.
    let hosts = of(&[0, 1, 4, 5]);
    assert_eq!(of_level(&links, &hosts, 1), [(0, 1e3), (1, 1e3)]);
    assert_eq!(of_level(&links, &hosts, 2), []);
    assert!((hosts.max_rate() * hosts.alone().as_secs_f64() - 500.0).abs() < 1e-6, "{hosts:?}");
    // Two racks, of two hosts each: half of what leaves a rack passes each of its hosts.
    let racks = of(&[0, 4, 8, 12]);
    assert_eq!(of_level(&links, &racks, 2), [(0, 1e3), (1, 1e3)]);
    assert_eq!(of_level(&links, &racks, 1), [(0, 1.5e3), (1, 1.5e3), (2, 1.5e3), (3, 1.5e3)]);
    assert_eq!(of_level(&links, &racks, 0), []);
    // A ring over all levels passes each host once.
    let pipelined = ClusterLinks::new(&self::racks().pipelined(), 16).unwrap();
    let ring = pipelined.collective(CollectiveKind::AllGather, &[0, 4, 8, 12], 1, 1_000).unwrap();
    for level in [1, 2] {
        assert!(
            of_level(&pipelined, &ring, level).iter().all(|&(_, bytes)| (bytes - 750.0).abs() < 1e-6),
            "{ring:?}"
        );
    }
}

#[test]
fn groups_add_up_on_the_adapters_that_they_share() {
    let links = ClusterLinks::new(&racks(), 16).unwrap();
    let (kind, bytes) = (CollectiveKind::AllReduce, 1_000);
    let four = links.collective(kind, &[0, 4, 1, 5, 2, 6, 3, 7], 4, bytes).unwrap();
    assert_eq!(of_level(&links, &four, 1), [(0, 4e3), (1, 4e3)]);
    assert_eq!(four.alone(), racks().cost_in_groups(kind, &[0, 4, 1, 5, 2, 6, 3, 7], 4, bytes));
    // Alone, they fill the adapters.
    let mut network = links.network().unwrap();
    network.start(Duration::ZERO, four.clone()).unwrap();
    let host = links.of_level(1).start;
    assert!((network.load(host) - 2e8).abs() < 1.0, "{}", network.load(host));
    assert_eq!(network.next_end(), Some(four.alone()));
}

#[test]
fn a_redistribution_sends_its_moves_from_its_places() {
    let links = ClusterLinks::new(&racks(), 16).unwrap();
    let (narrow, wide) = (Layout::even(4, &[0]).unwrap(), Layout::even(4, &[0, 1, 2, 3]).unwrap());
    let spread = Redistribution::new(&narrow, &wide).unwrap();
    // To a rank of the host, to the other host of the rack, and to the other rack.
    let flow = links.redistribution(&spread, &[0, 1, 4, 8], 100).unwrap();
    let sent = |level, member| ClusterLink { level, member, direction: Direction::Sent };
    let received = |level, member| ClusterLink { level, member, direction: Direction::Received };
    let expected = [
        (sent(0, 0), 1e2),
        (received(0, 1), 1e2),
        (sent(1, 0), 2e2),
        (received(1, 1), 1e2),
        (received(1, 2), 1e2),
        (sent(2, 0), 1e2),
        (received(2, 1), 1e2),
    ];
    let got = bytes(&links, &flow);
    assert_eq!(got.len(), expected.len(), "{got:?}");
    for ((link, got), (expected_link, expected)) in got.into_iter().zip(expected) {
        assert!(link == expected_link && (got - expected).abs() < 1e-6, "{link}: {got}, {expected}");
    }
    let moved = [Layout::even(4, &[0]).unwrap(), Layout::even(4, &[0, 1, 4, 8]).unwrap()];
    let moved = Redistribution::new(&moved[0], &moved[1]).unwrap();
    assert_eq!(flow.alone(), racks().redistribution(&moved, 100));
    assert_eq!(flow, links.redistribution(&moved, &[], 100).unwrap());
}

/// A built-in cluster of 32 ranks, some of its ranks in any order, a collective and its bytes.
fn collectives() -> impl Strategy<Value = (LinkModel, Vec<usize>, usize, CollectiveKind, u64)> {
    let clusters = ["dgx-a100-pod", "dgx-h100-pod", "aws-p4de", "a100-100gbe", "dgx1-v100-ib100"];
    let link = prop::sample::select(clusters.to_vec()).prop_map(|name| LinkModel::named(name).unwrap());
    let link = prop_oneof![link, Just(racks()), Just(racks().pipelined())];
    let ranks = Just((0..32_usize).collect::<Vec<_>>()).prop_shuffle();
    let kind = prop::sample::select(CollectiveKind::ALL.to_vec());
    (link, ranks, 2..=32_usize, 1..4_usize, kind, 0..1_u64 << 32).prop_map(
        |(link, mut ranks, count, groups, kind, bytes)| {
            ranks.truncate(count);
            (link, ranks, groups, kind, bytes)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn operations_alone_take_the_time_of_the_link_model((link, ranks, groups, kind, bytes) in collectives()) {
        let links = ClusterLinks::new(&link, 32).unwrap();
        let flow = links.collective(kind, &ranks, groups, bytes).unwrap();
        prop_assert_eq!(flow.alone(), link.cost_in_groups(kind, &ranks, groups, bytes));
        let mut network = links.network().unwrap();
        network.start(Duration::ZERO, flow.clone()).unwrap();
        for index in 0..links.count() {
            let level = links.get(index).unwrap().level;
            prop_assert!(network.load(index) <= links.capacity(level).unwrap() * (1.0 + 1e-9));
        }
        prop_assert_eq!(network.next_end(), Some(flow.alone()));
    }

    #[test]
    fn one_group_never_exceeds_its_links((link, ranks, _, kind, bytes) in collectives()) {
        // The demand is not scaled: a link model whose transfers need no more time than they have.
        let links = ClusterLinks::new(&link, 32).unwrap();
        let flow = links.collective(kind, &ranks, 1, bytes).unwrap();
        for (index, factor) in flow.uses() {
            let level = links.get(index).unwrap().level;
            let load = factor * flow.max_rate();
            prop_assert!(load <= links.capacity(level).unwrap() * 1.001, "{:?}: {load}", links.get(index));
        }
    }
}
