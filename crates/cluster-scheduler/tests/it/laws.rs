//! Properties of every policy, for random worlds with failures and cancellations.

use std::collections::BTreeMap;
use std::time::Duration;

use cluster_scheduler::{End, Order, Policy, Report, Segment, Sharing, Step};
use proptest::prelude::*;

use crate::worlds::{World, policies, worlds};

fn cases() -> u32 {
    std::env::var("CLUSTER_SCHEDULER_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn fast_forwarded_is_event_by_event(world in worlds(100)) {
        for policy in policies() {
            let fast = world.run(&policy, Step::FastForward);
            let slow = world.run(&policy, Step::EveryIteration);
            prop_assert!(fast.events <= slow.events);
            prop_assert_eq!(Report { events: 0, ..fast }, Report { events: 0, ..slow }, "{}", policy.name);
        }
    }

    #[test]
    fn the_same_events_give_the_same_placements(world in worlds(60)) {
        for policy in policies() {
            let run = || world.run(&policy, Step::FastForward);
            prop_assert_eq!(run(), run(), "{}", policy.name);
        }
    }

    /// No job is lost, runs twice at a time or finishes early; a cancelled job does no more than
    /// its iterations.
    #[test]
    fn jobs_do_their_work_once(world in worlds(60)) {
        for policy in policies() {
            let report = world.run(&policy, Step::FastForward);
            prop_assert_eq!(report.jobs.len(), world.arrivals.len());
            for (record, arrival) in report.jobs.iter().zip(&world.arrivals) {
                let Some((left, end)) = record.left else {
                    return Err(TestCaseError::fail(format!("{}: {} was lost", policy.name, record.id)));
                };
                match end {
                    End::Finished => prop_assert_eq!(record.iterations, arrival.job.iterations),
                    End::Cancelled => prop_assert!(record.iterations <= arrival.job.iterations),
                }
                let least = world.extremes(&arrival.job).0 * record.iterations as u32;
                let started = record.started.unwrap_or(left);
                prop_assert!(started >= record.arrived && left.checked_sub(started).unwrap() >= least, "{}: early", policy.name);
            }
            for of_job in by(&report.segments, |segment| vec![segment.job.0]).values() {
                prop_assert!(of_job.windows(2).all(|pair| pair[0].to <= pair[1].from), "{}", policy.name);
            }
        }
    }

    /// A GPU holds one job, or one and another that was placed beside it.
    #[test]
    fn a_gpu_holds_no_more_than_it_has(world in worlds(60)) {
        for policy in policies() {
            let report = world.run(&policy, Step::FastForward);
            let on_gpu = |segment: &Segment| segment.gpus.iter().map(|gpu| u64::from(gpu.0)).collect();
            for segments in by(&report.segments, on_gpu).values() {
                for (index, one) in segments.iter().enumerate() {
                    let others: Vec<_> =
                        segments[index + 1..].iter().filter(|other| other.from < one.to).collect();
                    for other in &others {
                        let shares = one.beside == Some(other.job) || other.beside == Some(one.job);
                        prop_assert!(shares && policy.sharing != Sharing::None, "{}: {one:?} {other:?}", policy.name);
                    }
                    let at_once = |at: Duration| others.iter().filter(move |other| other.from <= at && at < other.to);
                    prop_assert!(others.iter().all(|other| at_once(other.from).count() <= 1), "{}", policy.name);
                }
            }
        }
    }

    /// While GPUs are free for longer than stopping can take, no waiting job fits on them; and the
    /// held time equals the run time. Wide jobs wait until the last of their GPUs is free, and the
    /// plan may change meanwhile.
    #[test]
    fn work_is_conserved(mut world in worlds(40)) {
        world.disturbances.clear();
        for policy in policies().into_iter().filter(|policy| !policy.blocking && policy.sharing == Sharing::None) {
            let report = world.run(&policy, Step::FastForward);
            let held: Duration = report.segments.iter().map(|s| s.to.checked_sub(s.from).unwrap() * s.gpus.len() as u32).sum();
            prop_assert_eq!(held, report.held);
            let stopping = world.arrivals.iter().map(|arrival| world.extremes(&arrival.job).1).max().unwrap() * 3;
            for (record, arrival) in report.jobs.iter().zip(&world.arrivals) {
                let mine: Vec<_> = report.segments.iter().filter(|segment| segment.job == record.id).collect();
                let ends = mine.iter().map(|segment| segment.to);
                let begins = mine.iter().map(|segment| segment.from);
                for (from, to) in std::iter::once(record.arrived).chain(ends).zip(begins) {
                    let Some(from) = to.checked_sub(stopping).filter(|&at| at > from) else { continue };
                    prop_assert!(!fits(&world, &report, from, to, arrival.job.gpus), "{}: {arrival:?} waits until {to:?}", policy.name);
                }
            }
        }
    }

    /// Under a fair policy, every waiting job eventually gets its part of the cluster.
    #[test]
    fn nobody_starves_under_fair_policies(mut world in worlds(40)) {
        world.disturbances.clear();
        world.arrivals.iter_mut().for_each(|arrival| arrival.job.weight = 1.0);
        for policy in policies() {
            let Order::Fair(fair) = policy.order else { continue };
            let report = world.run(&policy, Step::FastForward);
            for (record, arrival) in report.jobs.iter().zip(&world.arrivals) {
                let (at, slowest) = (record.arrived, world.extremes(&arrival.job).1);
                let left = record.left.unwrap().0;
                let others = report.jobs.iter().filter(|other| other.arrived < left && other.left.unwrap().0 > at);
                let (others, gpus) = (others.count() as f64, world.cluster.gpus_of(cluster_scheduler::GpuType(0)) as f64);
                let share = (gpus / (others * record.gpus as f64)).min(1.0);
                let fair_time = slowest.as_secs_f64() * arrival.job.iterations as f64 / share;
                let turns = others * record.gpus as f64 * (fair.round.as_secs_f64() + 2.0 * 6.0);
                let took = left.checked_sub(at).unwrap().as_secs_f64();
                prop_assert!(took <= 2.0 * fair_time + turns, "{}: {took} s, fair: {fair_time} s and {turns} s", policy.name);
            }
        }
    }

    #[test]
    fn fifo_starts_in_order(mut world in worlds(60)) {
        world.disturbances.clear();
        let report = world.run(&Policy::fifo(), Step::FastForward);
        prop_assert!(report.jobs.is_sorted_by_key(|record| record.started));
    }
}

/// Groups segments by key, each group in order of start.
fn by(segments: &[Segment], keys: impl Fn(&Segment) -> Vec<u64>) -> BTreeMap<u64, Vec<&Segment>> {
    let mut found: BTreeMap<u64, Vec<&Segment>> = BTreeMap::new();
    for segment in segments {
        for key in keys(segment) {
            found.entry(key).or_default().push(segment);
        }
    }
    found
}

/// Returns whether this number of GPUs of one type is free in an interval.
fn fits(world: &World, report: &Report, from: Duration, to: Duration, gpus: usize) -> bool {
    let mut free = vec![0; world.cluster.types().len()];
    for gpu in (0..world.cluster.gpus() as u32).map(cluster_scheduler::GpuId) {
        let is_held = |s: &&Segment| s.gpus.contains(&gpu) && s.from < to && s.to > from;
        if !report.segments.iter().any(|segment| is_held(&segment)) {
            free[usize::from(world.cluster.type_of(gpu).0)] += 1;
        }
    }
    free.iter().any(|&free| free >= gpus)
}
