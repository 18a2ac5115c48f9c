//! Properties of every policy, for random worlds with failures and cancellations.

use std::collections::BTreeMap;
use std::time::Duration;

use cluster_scheduler::{Departure, Granularity, Order, Policy, Report, Segment, Sharing};
use proptest::prelude::*;

use crate::worlds::{World, policies, worlds};

fn cases() -> u32 {
    std::env::var("CLUSTER_SCHEDULER_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn fast_forward_matches_single_iterations(world in worlds(100)) {
        for policy in policies() {
            let fast = world.run(&policy, Granularity::FastForward);
            let slow = world.run(&policy, Granularity::EveryIteration);
            prop_assert!(fast.events <= slow.events);
            prop_assert_eq!(Report { events: 0, ..fast }, Report { events: 0, ..slow }, "{}", policy.name);
        }
    }

    #[test]
    fn the_same_events_give_the_same_placements(world in worlds(60)) {
        for policy in policies() {
            let run = || world.run(&policy, Granularity::FastForward);
            prop_assert_eq!(run(), run(), "{}", policy.name);
        }
    }

    /// No job is lost, runs twice at a time or finishes early; a cancelled job does no more than
    /// its iterations.
    #[test]
    fn every_job_executes_its_iterations_once(world in worlds(60)) {
        for policy in policies() {
            let report = world.run(&policy, Granularity::FastForward);
            prop_assert_eq!(report.jobs.len(), world.arrivals.len());
            for (record, arrival) in report.jobs.iter().zip(&world.arrivals) {
                let Some((left, end)) = record.departure else {
                    return Err(TestCaseError::fail(format!("{}: {} was lost", policy.name, record.id)));
                };
                match end {
                    Departure::Finished => prop_assert_eq!(record.iterations, arrival.job.iterations),
                    Departure::Cancelled => prop_assert!(record.iterations <= arrival.job.iterations),
                }
                let min_time = world.extremes(&arrival.job).0 * record.iterations as u32;
                let started = record.started.unwrap_or(left);
                let took = left.checked_sub(started).unwrap();
                prop_assert!(started >= record.arrived && took >= min_time, "{}: early", policy.name);
            }
            for of_job in by(&report.segments, |segment| vec![segment.job.0]).values() {
                prop_assert!(of_job.windows(2).all(|pair| pair[0].to <= pair[1].from), "{}", policy.name);
            }
        }
    }

    /// A GPU holds one job, or one and another that was placed beside it.
    #[test]
    fn a_gpu_holds_at_most_two_jobs(world in worlds(60)) {
        for policy in policies() {
            let report = world.run(&policy, Granularity::FastForward);
            let on_gpu = |segment: &Segment| segment.gpus.iter().map(|gpu| u64::from(gpu.0)).collect();
            for segments in by(&report.segments, on_gpu).values() {
                for (index, one) in segments.iter().enumerate() {
                    let others: Vec<_> =
                        segments[index + 1..].iter().filter(|other| other.from < one.to).collect();
                    for other in &others {
                        let shares = one.beside == Some(other.job) || other.beside == Some(one.job);
                        let is_shared = shares && policy.sharing != Sharing::None;
                        prop_assert!(is_shared, "{}: {one:?} {other:?}", policy.name);
                    }
                    let at_once = |at: Duration| {
                        others.iter().filter(move |other| other.from <= at && at < other.to).count()
                    };
                    let at_most_one = others.iter().all(|other| at_once(other.from) <= 1);
                    prop_assert!(at_most_one, "{}", policy.name);
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
        let is_conserving = |policy: &Policy| !policy.blocking && policy.sharing == Sharing::None;
        for policy in policies().into_iter().filter(is_conserving) {
            let report = world.run(&policy, Granularity::FastForward);
            let gpu_time = |s: &Segment| s.to.checked_sub(s.from).unwrap() * s.gpus.len() as u32;
            let held: Duration = report.segments.iter().map(gpu_time).sum();
            prop_assert_eq!(held, report.held);
            let slowest = world.arrivals.iter().map(|arrival| world.extremes(&arrival.job).1);
            let stopping = slowest.max().unwrap() * 3;
            for (record, arrival) in report.jobs.iter().zip(&world.arrivals) {
                let is_mine = |segment: &&Segment| segment.job == record.id;
                let mine: Vec<_> = report.segments.iter().filter(is_mine).collect();
                let ends = mine.iter().map(|segment| segment.to);
                let begins = mine.iter().map(|segment| segment.from);
                for (from, to) in std::iter::once(record.arrived).chain(ends).zip(begins) {
                    let Some(from) = to.checked_sub(stopping).filter(|&at| at > from) else { continue };
                    let fits = fits(&world, &report, from, to, arrival.job.gpus);
                    prop_assert!(!fits, "{}: {arrival:?} waits until {to:?}", policy.name);
                }
            }
        }
    }

    /// Under a fair policy, every waiting job eventually gets its part of the cluster.
    #[test]
    fn no_job_starves_under_fair_policies(mut world in worlds(40)) {
        world.disturbances.clear();
        world.arrivals.iter_mut().for_each(|arrival| arrival.job.weight = 1.0);
        for policy in policies() {
            let Order::Fair(fair) = policy.order else { continue };
            let report = world.run(&policy, Granularity::FastForward);
            for (record, arrival) in report.jobs.iter().zip(&world.arrivals) {
                let (at, slowest) = (record.arrived, world.extremes(&arrival.job).1);
                let left = record.departure.unwrap().0;
                let overlaps = |other: &&cluster_scheduler::JobRecord| {
                    other.arrived < left && other.departure.unwrap().0 > at
                };
                let others = report.jobs.iter().filter(overlaps).count() as f64;
                let gpus = world.cluster.gpus_of(cluster_scheduler::GpuType(0)) as f64;
                let share = (gpus / (others * record.gpus as f64)).min(1.0);
                let fair_time = slowest.as_secs_f64() * arrival.job.iterations as f64 / share;
                let turns = others * record.gpus as f64 * (fair.round.as_secs_f64() + 2.0 * 6.0);
                let took = left.checked_sub(at).unwrap().as_secs_f64();
                let bound = 2.0 * fair_time + turns;
                prop_assert!(took <= bound, "{}: {took} s, bound: {bound} s", policy.name);
            }
        }
    }

    #[test]
    fn fifo_starts_in_order(mut world in worlds(60)) {
        world.disturbances.clear();
        let report = world.run(&Policy::fifo(), Granularity::FastForward);
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
