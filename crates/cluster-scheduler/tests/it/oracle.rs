//! A direct implementation of FIFO and SRTF: time advances from one end of an iteration to the
//! next, and everything is re-evaluated.

use std::time::Duration;

use cluster_scheduler::{Allocation, GpuType, Granularity, Mode, Policy};
use proptest::prelude::*;

use crate::worlds::{World, worlds};

struct OracleJob {
    arrival: Duration,
    iteration: Duration,
    gpus: usize,
    left: u64,
    /// The GPUs assigned to it.
    wants: Option<Vec<usize>>,
    /// The GPUs on which it runs, and the end of the iteration.
    runs: Option<(Vec<usize>, Duration)>,
    end: Option<Duration>,
}

/// Returns the completion time of each job on one host.
fn ends(world: &World, is_srtf: bool) -> Vec<Option<Duration>> {
    let mut jobs: Vec<OracleJob> = world
        .arrivals
        .iter()
        .map(|arrival| {
            let allocation = Allocation { gpu_type: GpuType(0), gpus: arrival.job.gpus, spread: false };
            let execution = world.table.execution(arrival.job.kind, allocation, Mode::DataParallel);
            OracleJob {
                arrival: arrival.at,
                iteration: execution.unwrap().iteration(),
                gpus: arrival.job.gpus,
                left: arrival.job.iterations,
                wants: None,
                runs: None,
                end: None,
            }
        })
        .collect();
    let total = world.cluster.gpus();
    let mut before = None;
    loop {
        let events = jobs.iter().flat_map(|job| {
            let arrival = Some(job.arrival).filter(|&at| before.is_none_or(|before| at > before));
            [arrival, job.runs.as_ref().map(|(_, end)| *end)]
        });
        let Some(now) = events.flatten().min() else { break };
        let mut changes = jobs.iter().any(|job| job.arrival == now);
        for job in &mut jobs {
            if job.runs.as_ref().is_some_and(|(_, end)| *end == now) {
                job.runs = None;
                job.left -= 1;
                if job.left == 0 {
                    (job.end, job.wants, changes) = (Some(now), None, true);
                }
            }
        }
        if changes {
            choose(&mut jobs, now, total, is_srtf);
        }
        for index in 0..jobs.len() {
            let Some(wants) = jobs[index].wants.clone() else { continue };
            let is_held = |gpu: &usize| {
                jobs.iter().any(|other| other.runs.as_ref().is_some_and(|(gpus, _)| gpus.contains(gpu)))
            };
            if jobs[index].runs.is_none() && !wants.iter().any(is_held) {
                jobs[index].runs = Some((wants, now + jobs[index].iteration));
            }
        }
        before = Some(now);
    }
    jobs.into_iter().map(|job| job.end).collect()
}

/// Assigns GPUs to the jobs that go first. A job that has GPUs and stays keeps them; the others get
/// the lowest numbers, wide jobs first.
fn choose(jobs: &mut [OracleJob], now: Duration, total: usize, is_srtf: bool) {
    let mut order: Vec<usize> =
        (0..jobs.len()).filter(|&job| jobs[job].arrival <= now && jobs[job].end.is_none()).collect();
    if is_srtf {
        order.sort_by_key(|&job| jobs[job].iteration * jobs[job].left as u32);
    }
    let (mut chosen, mut free) = (Vec::new(), total);
    for &job in &order {
        if jobs[job].gpus <= free {
            free -= jobs[job].gpus;
            chosen.push(job);
        } else if !is_srtf {
            break;
        }
    }
    for job in order {
        if !chosen.contains(&job) {
            jobs[job].wants = None;
        }
    }
    chosen.sort_by_key(|&job| std::cmp::Reverse(jobs[job].gpus));
    for job in chosen {
        if jobs[job].wants.is_none() {
            let is_wanted = |gpu: &usize| jobs.iter().any(|job| job.wants.iter().flatten().any(|g| g == gpu));
            let gpus = (0..total).filter(|gpu| !is_wanted(gpu)).take(jobs[job].gpus).collect();
            jobs[job].wants = Some(gpus);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn fifo_and_srtf_match_the_oracle(mut world in worlds(40)) {
        world.disturbances.clear();
        world.cluster = cluster_scheduler::Cluster::uniform("a", 1, 8).unwrap();
        for (policy, is_srtf) in [(Policy::fifo(), false), (Policy::srtf(), true)] {
            let report = world.run(&policy, Granularity::FastForward);
            let found: Vec<_> = report.jobs.iter().map(|record| record.departure.map(|(at, _)| at)).collect();
            prop_assert_eq!(found, ends(&world, is_srtf), "{}", policy.name);
        }
    }
}
