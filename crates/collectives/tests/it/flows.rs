//! Laws of flows that share links, against an oracle that raises all rates in small steps.

use std::time::Duration;

use collectives::{Error, Flow, FlowId, FlowNetwork};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Number of random networks: 1,000, or that of the environment variable `FLOW_CASES`.
fn cases() -> u32 {
    std::env::var("FLOW_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1_000)
}

/// A flow of a random network.
#[derive(Debug, Clone)]
struct RandomFlow {
    start: Duration,
    owner: usize,
    alone: Duration,
    bytes: f64,
    /// Bytes of each link, by index of the link.
    links: Vec<(usize, f64)>,
}

impl RandomFlow {
    fn flow(&self) -> Flow {
        Flow::new(self.alone, self.bytes, &self.links).expect("finite bytes").with_owner(self.owner)
    }
}

/// Links of 1 to 100 MB/s, and flows of milliseconds, of which about half are contended.
fn networks() -> impl Strategy<Value = (Vec<f64>, Vec<RandomFlow>)> {
    let capacities = prop::collection::vec(1e6..1e8_f64, 1..8);
    capacities.prop_flat_map(|capacities| {
        let links = capacities.len();
        let of_link = (0..links, prop_oneof![Just(1.0), 0.1..8.0_f64]);
        let flow = (0..20_000_u64, 0..6_usize, 1..20_000_u64, 1e3..1e6_f64);
        let flow = (flow, prop::collection::btree_map(0..links, of_link.prop_map(|(_, of)| of), 1..=links));
        let flow = flow.prop_map(|((start_us, owner, alone_us, bytes), links)| RandomFlow {
            start: Duration::from_micros(start_us),
            owner,
            alone: Duration::from_micros(alone_us),
            bytes,
            links: links.into_iter().map(|(link, factor)| (link, factor * bytes)).collect(),
        });
        (Just(capacities), prop::collection::vec(flow, 1..12))
    })
}

/// Runs a property on all random networks.
fn for_networks(property: impl Fn(&[f64], &[RandomFlow]) -> Result<(), TestCaseError>) {
    let config = Config { cases: cases(), failure_persistence: None, ..Config::default() };
    let result =
        TestRunner::new(config).run(&networks(), |(capacities, flows)| property(&capacities, &flows));
    result.unwrap_or_else(|error| panic!("{error}"));
}

/// Loads of the links at the maximum rate of each flow, in bytes per second: by flow, then by link.
/// The loads of an owner that exceed a capacity are scaled down to it.
fn demands(capacities: &[f64], flows: &[&RandomFlow]) -> Vec<Vec<f64>> {
    let of_flow = |flow: &&RandomFlow| {
        let mut of_links = vec![0.0; capacities.len()];
        for &(link, bytes) in &flow.links {
            of_links[link] += bytes / flow.alone.as_secs_f64();
        }
        of_links
    };
    let demands: Vec<Vec<f64>> = flows.iter().map(of_flow).collect();
    let mut scaled = demands.clone();
    for (of_flow, flow) in scaled.iter_mut().zip(flows) {
        for (link, capacity) in capacities.iter().enumerate() {
            let of_owner = flows.iter().zip(&demands).filter(|(other, _)| other.owner == flow.owner);
            let total: f64 = of_owner.map(|(_, demand)| demand[link]).sum();
            of_flow[link] *= (capacity / total).min(1.0);
        }
    }
    scaled
}

/// Rates by progressive filling in small steps, as fractions of the flows' maximum rates. A step is
/// 1% of the rates so far, and smaller, down to 0.001%, before a link is full.
fn filled_in_steps(capacities: &[f64], flows: &[&RandomFlow]) -> Vec<f64> {
    let max_rates: Vec<f64> = flows.iter().map(|flow| flow.bytes / flow.alone.as_secs_f64()).collect();
    let demands = demands(capacities, flows);
    let fits = |fractions: &[f64], flow: usize| {
        let load =
            |link: usize| -> f64 { demands.iter().zip(fractions).map(|(of, part)| of[link] * part).sum() };
        let mut used = (0..capacities.len()).filter(|&link| demands[flow][link] > 0.0);
        used.all(|link| load(link) <= capacities[link] * (1.0 + 1e-9))
    };
    let mut fractions = vec![0.0; flows.len()];
    let mut rising: Vec<usize> = (0..flows.len()).collect();
    let (mut level, mut step) = (1.0, 1e-2);
    while !rising.is_empty() {
        let next = level * (1.0 + step);
        let mut raised = fractions.clone();
        for &flow in &rising {
            raised[flow] = (next / max_rates[flow]).min(1.0);
        }
        let all_fit = rising.iter().all(|&flow| fits(&raised, flow));
        if all_fit {
            (level, fractions) = (next, raised);
            rising.retain(|&flow| fractions[flow] < 1.0);
        } else if step > 1e-5 {
            step /= 2.0;
        } else {
            rising.retain(|&flow| fits(&raised, flow));
            step = 1e-2;
        }
    }
    fractions
}

/// Ends of the flows with the oracle's rates, in seconds.
fn ends_by_oracle(capacities: &[f64], flows: &[RandomFlow]) -> Vec<f64> {
    let mut ends = vec![f64::NAN; flows.len()];
    let mut left: Vec<f64> = flows.iter().map(|flow| flow.alone.as_secs_f64()).collect();
    let mut now = 0.0;
    loop {
        let is_active = |flow: usize| ends[flow].is_nan() && flows[flow].start.as_secs_f64() <= now;
        let active: Vec<usize> = (0..flows.len()).filter(|&flow| is_active(flow)).collect();
        let starts = flows.iter().map(|flow| flow.start.as_secs_f64()).filter(|&start| start > now);
        let next_start = starts.fold(f64::INFINITY, f64::min);
        let of_active: Vec<&RandomFlow> = active.iter().map(|&flow| &flows[flow]).collect();
        let fractions = filled_in_steps(capacities, &of_active);
        let of_ends = active.iter().zip(&fractions).map(|(&flow, fraction)| now + left[flow] / fraction);
        let next = of_ends.fold(next_start, f64::min);
        if next.is_infinite() {
            return ends;
        }
        for (&flow, fraction) in active.iter().zip(&fractions) {
            left[flow] -= (next - now) * fraction;
            if left[flow] <= flows[flow].alone.as_secs_f64() * 1e-12 {
                ends[flow] = next;
            }
        }
        now = next;
    }
}

/// Starts all flows, each at its time, and returns their ids. Calls `check` after every change.
fn run(
    network: &mut FlowNetwork,
    flows: &[RandomFlow],
    mut check: impl FnMut(&FlowNetwork, &[(usize, FlowId)]) -> Result<(), TestCaseError>,
) -> Result<Vec<Duration>, TestCaseError> {
    let mut order: Vec<usize> = (0..flows.len()).collect();
    order.sort_by_key(|&flow| flows[flow].start);
    let mut pending = order.into_iter().peekable();
    let (mut active, mut ends) = (Vec::<(usize, FlowId)>::new(), vec![Duration::ZERO; flows.len()]);
    loop {
        let start = pending.peek().map(|&flow| flows[flow].start);
        let Some(next) = start.into_iter().chain(network.next_end()).min() else { return Ok(ends) };
        for (end, id) in network.advance(next) {
            let place = active.iter().position(|&(_, of)| of == id).expect("an active flow");
            ends[active.remove(place).0] = end;
        }
        if start == Some(next) {
            let flow = pending.next().expect("a flow to start");
            active.push((flow, network.start(next, flows[flow].flow()).expect("links that exist")));
        }
        check(network, &active)?;
    }
}

#[test]
fn ends_match_those_of_filling_in_small_steps() {
    for_networks(|capacities, flows| {
        let mut network = FlowNetwork::new(capacities).expect("positive capacities");
        let ends = run(&mut network, flows, |_, _| Ok(()))?;
        for ((end, expected), flow) in ends.iter().zip(ends_by_oracle(capacities, flows)).zip(flows) {
            let (took, expected) = (end.as_secs_f64(), expected);
            prop_assert!((took - expected).abs() <= 1e-3 * expected, "{took} {expected} {flow:?}");
        }
        Ok(())
    });
}

#[test]
fn rates_are_max_min_fair_within_capacities() {
    for_networks(|capacities, flows| {
        let mut network = FlowNetwork::new(capacities).expect("positive capacities");
        run(&mut network, flows, |network, active| {
            let of_active: Vec<&RandomFlow> = active.iter().map(|&(flow, _)| &flows[flow]).collect();
            let demands = demands(capacities, &of_active);
            let fractions: Vec<f64> =
                active.iter().map(|&(_, id)| network.fraction(id).expect("an active flow")).collect();
            let rate = |place: usize| {
                fractions[place] * of_active[place].bytes / of_active[place].alone.as_secs_f64()
            };
            let load = |link: usize| -> f64 {
                demands.iter().zip(&fractions).map(|(demand, fraction)| demand[link] * fraction).sum()
            };
            for (link, capacity) in capacities.iter().enumerate() {
                prop_assert!(load(link) <= capacity * (1.0 + 1e-6), "link {link}: {}", load(link));
                let reported = network.load(link);
                prop_assert!((reported - load(link)).abs() <= 1e-6 * capacity, "{reported} {}", load(link));
            }
            for place in 0..active.len() {
                // A flow below its maximum rate has a full link on which no flow is faster.
                let is_limited_by = |link: usize| {
                    demands[place][link] > 0.0
                        && load(link) >= capacities[link] * (1.0 - 1e-6)
                        && (0..active.len()).all(|other| {
                            demands[other][link] == 0.0 || rate(other) <= rate(place) * (1.0 + 1e-6)
                        })
                };
                let limited = (0..capacities.len()).any(is_limited_by);
                prop_assert!(fractions[place] >= 1.0 - 1e-9 || limited, "flow {place} of {of_active:?}");
            }
            Ok(())
        })?;
        Ok(())
    });
}

#[test]
fn flows_of_one_owner_take_their_times_alone() {
    for_networks(|capacities, flows| {
        let flows: Vec<RandomFlow> =
            flows.iter().map(|flow| RandomFlow { owner: 3, ..flow.clone() }).collect();
        let mut network = FlowNetwork::new(capacities).expect("positive capacities");
        let ends = run(&mut network, &flows, |_, _| Ok(()))?;
        for (end, flow) in ends.iter().zip(&flows) {
            prop_assert_eq!(*end, flow.start + flow.alone);
        }
        Ok(())
    });
}

#[test]
fn carried_bytes_are_those_of_the_flows() {
    for_networks(|capacities, flows| {
        // Each owner has one flow, which is no faster than its links: no use of a link is scaled.
        let mut flows = flows.to_vec();
        for (owner, flow) in flows.iter_mut().enumerate() {
            flow.owner = owner;
            let seconds =
                flow.links.iter().map(|&(link, bytes)| bytes / capacities[link]).fold(0.0, f64::max);
            flow.alone = flow.alone.max(Duration::from_secs_f64(seconds * 1.001));
        }
        let mut network = FlowNetwork::new(capacities).expect("positive capacities");
        run(&mut network, &flows, |_, _| Ok(()))?;
        for link in 0..capacities.len() {
            let of_link = flows.iter().flat_map(|flow| &flow.links).filter(|&&(of, _)| of == link);
            let expected: f64 = of_link.map(|(_, bytes)| bytes).sum();
            let carried = network.carried_bytes(link);
            prop_assert!((carried - expected).abs() <= 1e-4 * expected + 1.0, "{carried} {expected}");
        }
        Ok(())
    });
}

#[test]
fn a_flow_that_starts_late_slows_the_others_from_then_on() {
    let ms = Duration::from_millis;
    let mut network = FlowNetwork::new(&[1e6]).unwrap();
    let flow = Flow::new(ms(4), 4_000.0, &[(0, 4_000.0)]).unwrap();
    let first = network.start(ms(0), flow.clone()).unwrap();
    let second = network.start(ms(2), flow.clone().with_owner(1)).unwrap();
    // 2 ms alone, 4 ms at half of the rate; then the second one has 2 ms left.
    assert_eq!(network.advance(ms(20)), [(ms(6), first), (ms(8), second)]);
    assert_eq!((network.now(), network.next_end(), network.fraction(first)), (ms(20), None, None));
    assert!((network.carried_bytes(0) - 8_000.0).abs() < 1e-6);

    // Ends before a start are kept for the next call, and a start in the past is one at present.
    let third = network.start(ms(21), flow.clone()).unwrap();
    let fourth = network.start(ms(30), flow.clone()).unwrap();
    let fifth = network.start(ms(1), flow.with_owner(1)).unwrap();
    assert_eq!(network.next_end(), Some(ms(25)));
    assert_eq!(network.advance(ms(40)), [(ms(25), third), (ms(38), fourth), (ms(38), fifth)]);
}

#[test]
fn flows_without_bytes_or_time_use_no_links() {
    let ms = Duration::from_millis;
    let mut network = FlowNetwork::new(&[1.0]).unwrap();
    let barrier = network.start(ms(1), Flow::new(ms(2), 0.0, &[(0, 5.0)]).unwrap()).unwrap();
    let nothing = network.start(ms(1), Flow::new(ms(0), 9.0, &[(0, 9.0)]).unwrap()).unwrap();
    assert!(network.load(0).abs() < f64::EPSILON);
    assert_eq!(network.advance(ms(9)), [(ms(1), nothing), (ms(3), barrier)]);
}

#[test]
fn impossible_numbers_and_links_are_errors() {
    for capacity in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = FlowNetwork::new(&[1.0, capacity]).unwrap_err();
        assert!(error.is_input() && error.to_string().contains(&format!("{capacity} bytes/s")), "{error}");
    }
    for bytes in [-1.0, f64::NAN, f64::INFINITY] {
        for (volume, of_link) in [(bytes, 1.0), (1.0, bytes)] {
            let flow = Flow::new(Duration::from_secs(1), volume, &[(0, of_link)]);
            assert!(matches!(flow, Err(Error::BadFlow { .. })), "{flow:?}");
        }
    }
    let flow = Flow::new(Duration::from_secs(1), 1.0, &[(2, 1.0)]).unwrap();
    let error = FlowNetwork::new(&[1.0, 1.0]).unwrap().start(Duration::ZERO, flow).unwrap_err();
    assert!(error.to_string().contains("link 2 of 2"), "{error}");
}
