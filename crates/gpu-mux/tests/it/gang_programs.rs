//! Random distributed background jobs beside random foregrounds, in virtual time.

use std::time::Duration;

use gpu_mux::{GangEvent, GangId, Gangs};
use proptest::prelude::*;

/// A foreground that computes and is idle in turn, then ends.
#[derive(Debug, Clone)]
struct Foreground {
    /// Times of computing and of the idle period after it, in microseconds.
    periods: Vec<(u64, u64)>,
    /// Error of the predicted end of each idle period, in microseconds.
    misprediction: i64,
}

/// The foreground computes, or the collective does not fit.
struct NoGrant;

impl Foreground {
    /// Returns whether the foreground computes at a time, and when that changes; `None` after its
    /// end.
    fn state(&self, at: u64) -> (bool, Option<u64>) {
        let mut end = 0;
        for &(computing, idle) in &self.periods {
            for (busy, length) in [(true, computing), (false, idle)] {
                end += length;
                if at < end {
                    return (busy, Some(end));
                }
            }
        }
        (false, None)
    }

    /// Returns the latest start of a collective that is predicted to fit; `None` if no end is
    /// predicted.
    ///
    /// # Errors
    /// [`NoGrant`] if it does not fit.
    fn grant(&self, at: u64, takes: u64) -> Result<Option<u64>, NoGrant> {
        match self.state(at) {
            (true, _) => Err(NoGrant),
            (false, None) => Ok(None),
            (false, Some(end)) => {
                let predicted = end.saturating_add_signed(self.misprediction).max(at);
                if at + takes <= predicted { Ok(Some(predicted - takes)) } else { Err(NoGrant) }
            }
        }
    }
}

/// A distributed background job: its members, and the time to compute and then to communicate of
/// each of its collectives, in microseconds.
#[derive(Debug, Clone)]
struct Job {
    members: Vec<usize>,
    collectives: Vec<(u64, u64)>,
}

fn foreground() -> impl Strategy<Value = Foreground> {
    (prop::collection::vec((1..300u64, 1..300u64), 0..12), -50..50i64)
        .prop_map(|(periods, misprediction)| Foreground { periods, misprediction })
}

fn program() -> impl Strategy<Value = (Vec<Foreground>, Vec<Job>)> {
    (1..6usize).prop_flat_map(|ranks| {
        let members = prop::sample::subsequence((0..ranks).collect::<Vec<_>>(), 1..=ranks);
        let collectives = prop::collection::vec((0..100u64, 1..200u64), 1..8);
        let job = (members, collectives).prop_map(|(members, collectives)| Job { members, collectives });
        (prop::collection::vec(foreground(), ranks), prop::collection::vec(job, 1..5))
    })
}

/// Runs the jobs to their end, and returns it. Time advances from event to event.
fn run(foregrounds: &[Foreground], jobs: &[Job]) -> u64 {
    let us = Duration::from_micros;
    let mut gangs = Gangs::new(foregrounds.len());
    let ids: Vec<GangId> = jobs.iter().map(|job| gangs.add(job.members.clone()).unwrap()).collect();
    let mut done = vec![0; jobs.len()];
    // Times of the next arrival of each job at a collective, and of the end of the running one.
    let mut arrives: Vec<Option<u64>> = jobs.iter().map(|job| Some(job.collectives[0].0)).collect();
    let mut ends: Vec<Option<u64>> = vec![None; jobs.len()];
    let mut granted = vec![vec![false; foregrounds.len()]; jobs.len()];
    let mut on_rank: Vec<Option<usize>> = vec![None; foregrounds.len()];
    let mut now = 0;
    loop {
        for (job, id) in ids.iter().enumerate() {
            if ends[job] == Some(now) {
                ends[job] = None;
                done[job] += 1;
                for &rank in &jobs[job].members {
                    gangs.handle(us(now), GangEvent::Finish { gang: *id, rank }).unwrap();
                    assert_eq!(on_rank[rank].take(), Some(job));
                }
                arrives[job] = jobs[job].collectives.get(done[job]).map(|(compute, _)| now + compute);
            }
            if arrives[job] == Some(now) {
                arrives[job] = None;
                for &rank in &jobs[job].members {
                    gangs.handle(us(now), GangEvent::Arrive { gang: *id, rank }).unwrap();
                }
            }
        }
        for rank in 0..foregrounds.len() {
            gangs.handle(us(now), GangEvent::Withdraw { rank }).unwrap();
            for of_job in &mut granted {
                of_job[rank] = false;
            }
        }
        for (job, &gang) in
            ids.iter().enumerate().filter(|&(_, &gang)| gangs.awaits_grants(gang)).collect::<Vec<_>>()
        {
            for &rank in &jobs[job].members {
                let grant = foregrounds[rank].grant(now, jobs[job].collectives[done[job]].1);
                granted[job][rank] = grant.is_ok();
                if let Ok(until) = grant {
                    let until = until.map(us);
                    gangs.handle(us(now), GangEvent::Grant { gang, rank, until }).unwrap();
                }
            }
        }
        while let Some(gang) = gangs.poll_launch() {
            let job = gang.0;
            for &rank in &jobs[job].members {
                assert!(!foregrounds[rank].state(now).0, "a collective was launched beside the foreground");
                assert!(granted[job][rank], "rank {rank} has not granted the collective");
                assert_eq!(on_rank[rank].replace(job), None, "two collectives run on rank {rank}");
            }
            ends[job] = Some(now + jobs[job].collectives[done[job]].1);
        }
        if done.iter().zip(jobs).all(|(&done, job)| done == job.collectives.len()) {
            return now;
        }
        let changes = foregrounds.iter().filter_map(|foreground| foreground.state(now).1);
        let next = arrives.iter().chain(&ends).filter_map(|at| *at).chain(changes).min();
        now = next.expect("nothing will happen any more, and a job has not ended");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Every program ends, at the latest when the jobs run one after another once all foregrounds
    /// have ended.
    #[test]
    fn every_program_of_gangs_ends((foregrounds, jobs) in program()) {
        let end = run(&foregrounds, &jobs);
        let of_foreground =
            |foreground: &Foreground| foreground.periods.iter().map(|(busy, idle)| busy + idle).sum::<u64>();
        let last = foregrounds.iter().map(of_foreground).max().unwrap_or_default();
        let one_by_one: u64 =
            jobs.iter().flat_map(|job| &job.collectives).map(|(compute, takes)| compute + takes).sum();
        prop_assert!(end <= last + one_by_one, "{end} us, expected at most {last} + {one_by_one} us");
    }
}
