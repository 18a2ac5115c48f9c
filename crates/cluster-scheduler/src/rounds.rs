//! A simulator of Gavel's scheduling rounds (Narayanan et al., OSDI 2020, section 5) with the rules
//! of Gavel's own simulator, for comparison with it:
//! <https://github.com/stanford-futuredata/gavel>.
//!
//! A round is nominally 360 s. Jobs join at the beginning of a round, hold their GPUs until its
//! end, and execute whole steps. Shares are recomputed when jobs have arrived or left and 1,920 s
//! have passed. The job with the largest deficit to its share runs first. Preempting and moving
//! jobs takes no time, and placement has no effect. Faults of Gavel's simulator are reproduced or
//! optional.
//!
//! A *share* of a job on a type of GPU is the fraction of time in which it is to run there. A job's
//! *deficit* is the time that it has received less than its share.

mod fifo;
mod shares;

use std::collections::BTreeMap;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::Error;
use crate::report::quantile_of;
use fifo::Fifo;
pub use fifo::FifoFaults;
use shares::Shares;

/// Policy that assigns shares of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoundsPolicy {
    /// Jobs in order while they fit; the first one that does not fit blocks the others. Optionally
    /// with the faults of Gavel's simulator.
    Fifo(FifoFaults),
    /// [`fair::max_min`](crate::fair::max_min), independent of the jobs' speeds.
    MaxMinFairness,
    /// [`fair::finish_time`](crate::fair::finish_time) with the cone-program solver, also on one
    /// type of GPU, and with the first type's speeds on all types, as Gavel's variant without the
    /// suffix `_perf`.
    FinishTimeFairness,
}

/// Options of the rounds.
#[derive(Debug, Clone, PartialEq)]
pub struct RoundsOptions {
    /// Nominal length of a round in seconds.
    pub round: f64,
    /// Minimum time between two computations of shares, in seconds.
    pub between_shares: f64,
    /// Whether the order in which GPU types are filled is shuffled in each round.
    pub shuffle_types: bool,
    /// Seed of the random generator for the order of types and for [`FifoFaults::misplaces`].
    pub seed: u64,
}

impl Default for RoundsOptions {
    /// Rounds of 360 s, and 1,920 s between computations of shares, as in Gavel's experiments.
    fn default() -> Self {
        Self { round: 360.0, between_shares: 1920.0, shuffle_types: true, seed: 0 }
    }
}

/// Job for the simulation of rounds.
#[derive(Debug, Clone, PartialEq)]
pub struct RoundsJob {
    /// Arrival time in seconds from the start. Jobs are given in order of arrival.
    pub arrival: f64,
    /// Number of GPUs on which the job runs.
    pub gpus: usize,
    /// Number of steps after which the job is done, summed over its GPUs. Gavel counts the batch of
    /// each GPU as a step, so that an iteration on n GPUs counts as n steps.
    pub steps: u64,
    /// Steps per second, summed over its GPUs, on each type of GPU, in the order of the cluster's
    /// types; 0 if it does not run there.
    pub speeds: Vec<f64>,
}

/// Results of the simulation.
#[derive(Debug, Clone, PartialEq)]
pub struct RoundsReport {
    /// Time of each job from its arrival to its completion in seconds, in the order of the jobs.
    pub completions: Vec<f64>,
    /// End of the last round, in seconds from the start.
    pub makespan: f64,
    /// Fraction of the GPU time, over all GPUs and until `makespan`, that was given to jobs.
    pub utilization: f64,
    /// Number of times that shares were computed.
    pub allocations: usize,
}

impl RoundsReport {
    /// Returns the mean of the [`completions`](Self::completions) in seconds; NaN without jobs.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.completions.iter().sum::<f64>() / self.completions.len() as f64
    }

    /// Returns the 99th percentile of the [`completions`](Self::completions) in seconds,
    /// interpolated; NaN without jobs.
    pub fn p99(&self) -> f64 {
        let mut sorted = self.completions.clone();
        sorted.sort_by(f64::total_cmp);
        quantile_of(&sorted, 0.99)
    }
}

/// Simulates jobs on `gpus[t]` GPUs of each type t, round by round, until all jobs have ended.
///
/// # Errors
///
/// [`Error::OutOfRange`] for jobs that are not in order of arrival, fit on no type of GPU, or have
/// no steps; [`Error::Unsolved`] if the solver fails.
pub fn simulate(
    jobs: &[RoundsJob],
    gpus: &[usize],
    policy: RoundsPolicy,
    options: &RoundsOptions,
) -> Result<RoundsReport, Error> {
    check(jobs, gpus, options)?;
    let mut rounds = Rounds::new(jobs, gpus, policy, options);
    while rounds.completions.iter().any(Option::is_none) {
        rounds.round()?;
    }
    let time: f64 = gpus.iter().sum::<usize>() as f64 * rounds.now;
    Ok(RoundsReport {
        completions: rounds.completions.into_iter().flatten().collect(),
        makespan: rounds.now,
        utilization: rounds.given / time,
        allocations: rounds.allocations,
    })
}

fn check(jobs: &[RoundsJob], gpus: &[usize], options: &RoundsOptions) -> Result<(), Error> {
    let bad = |name, value: String, expected| Err(Error::OutOfRange { name, value, expected });
    if !jobs.is_sorted_by(|a, b| a.arrival <= b.arrival) {
        return bad("arrivals of jobs", "out of order".into(), "rising times");
    }
    if !(options.round > 0.0 && options.between_shares >= 0.0) {
        return bad("a round", options.round.to_string(), "more than 0 s");
    }
    for job in jobs {
        let runs =
            |of_type: usize| job.speeds.get(of_type).is_some_and(|&speed| speed * options.round >= 1.0);
        if job.gpus == 0 || !(0..gpus.len()).any(|of_type| job.gpus <= gpus[of_type] && runs(of_type)) {
            return bad("GPUs of a job", job.gpus.to_string(), "as many as a type has on which it runs");
        }
        if job.steps == 0 || job.speeds.len() != gpus.len() {
            return bad("steps of a job", job.steps.to_string(), "at least 1, with a speed for each type");
        }
    }
    Ok(())
}

/// GPU time of a job since the last computation of shares, and its deficits, by type of GPU.
#[derive(Debug, Clone)]
struct JobAccount {
    had: Vec<f64>,
    deficits: Vec<f64>,
}

struct Rounds<'a> {
    jobs: &'a [RoundsJob],
    gpus: &'a [usize],
    options: &'a RoundsOptions,
    policy: RoundsPolicy,
    fifo: Fifo,
    shares: Shares,
    random: ChaCha8Rng,
    types: Vec<usize>,
    now: f64,
    /// Start of the current round.
    began: f64,
    ended: Option<f64>,
    next_arrival: usize,
    remaining: Vec<u64>,
    completions: Vec<Option<f64>>,
    /// The jobs that have arrived and not ended.
    accounts: BTreeMap<usize, JobAccount>,
    /// The current shares.
    allocation: BTreeMap<usize, Vec<f64>>,
    is_outdated: bool,
    found_at: f64,
    allocations: usize,
    given: f64,
}

impl<'a> Rounds<'a> {
    fn new(
        jobs: &'a [RoundsJob],
        gpus: &'a [usize],
        policy: RoundsPolicy,
        options: &'a RoundsOptions,
    ) -> Self {
        Self {
            jobs,
            gpus,
            options,
            policy,
            fifo: Fifo::new(options.seed),
            shares: Shares::default(),
            random: ChaCha8Rng::seed_from_u64(options.seed),
            types: (0..gpus.len()).collect(),
            now: 0.0,
            began: 0.0,
            ended: None,
            next_arrival: 0,
            remaining: jobs.iter().map(|job| job.steps).collect(),
            completions: vec![None; jobs.len()],
            accounts: BTreeMap::new(),
            allocation: BTreeMap::new(),
            is_outdated: false,
            found_at: 0.0,
            allocations: 0,
            given: 0.0,
        }
    }

    /// Processes arrivals, shares, a round and its ends, or jumps to the next arrival.
    fn round(&mut self) -> Result<(), Error> {
        self.arrive();
        let waited = self.now - self.found_at >= self.options.between_shares || self.found_at == 0.0;
        if self.is_outdated && waited {
            self.find_shares()?;
        }
        let mut running = self.select();
        if running.is_empty() && self.next_arrival == self.jobs.len() {
            self.find_shares()?;
            running = self.select();
        }
        if running.is_empty() {
            // Every job fits on an empty cluster, so in an empty round no job is present or no job
            // has a share yet.
            match self.jobs.get(self.next_arrival) {
                Some(next) => self.now = next.arrival,
                None => {
                    return Err(Error::Unsolved { jobs: self.accounts.len(), status: "nothing runs".into() });
                }
            }
            return Ok(());
        }
        self.run(&running);
        Ok(())
    }

    fn arrive(&mut self) {
        while let Some(job) = self.jobs.get(self.next_arrival).filter(|job| job.arrival <= self.now) {
            let had = vec![self.options.round / 2.0; job.speeds.len()];
            let deficits = vec![0.0; job.speeds.len()];
            self.accounts.insert(self.next_arrival, JobAccount { had, deficits });
            self.next_arrival += 1;
            self.is_outdated = true;
        }
    }

    fn find_shares(&mut self) -> Result<(), Error> {
        let (start, elapsed) = (self.options.round / 2.0, self.now - self.found_at);
        for (job, account) in &mut self.accounts {
            for of_type in 0..self.gpus.len() {
                let share = self.allocation.get(job).map_or(0.0, |shares| shares[of_type]);
                account.deficits[of_type] += share * elapsed - (account.had[of_type] - start);
                account.had[of_type] = start;
            }
        }
        self.found_at = self.now;
        self.is_outdated = false;
        self.allocations += 1;
        let present: Vec<usize> = self.accounts.keys().copied().collect();
        self.allocation = match self.policy {
            RoundsPolicy::Fifo(faults) => self.fifo.allocation(&present, self.jobs, self.gpus, faults),
            RoundsPolicy::MaxMinFairness => Shares::max_min(&present, self.jobs, self.gpus)?,
            RoundsPolicy::FinishTimeFairness => {
                self.shares.finish_time(self.now, &present, self.jobs, &self.remaining, self.gpus)?
            }
        };
        Ok(())
    }

    /// Returns the jobs that run in the next round, with the type of GPU of each.
    fn select(&mut self) -> Vec<(usize, usize)> {
        if self.options.shuffle_types {
            for last in (1..self.types.len()).rev() {
                let other = self.random.next_u64() as usize % (last + 1);
                self.types.swap(last, other);
            }
        }
        let mut running = Vec::new();
        let mut is_placed = vec![false; self.jobs.len()];
        for &of_type in &self.types {
            let mut queue: Vec<(f64, f64, f64, usize)> = self
                .accounts
                .iter()
                .map(|(&job, account)| {
                    let share = self.allocation.get(&job).map_or(0.0, |shares| shares[of_type]);
                    (share / account.had[of_type], account.deficits[of_type], share, job)
                })
                .collect();
            queue.sort_by(|a, b| {
                b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1)).then(b.2.total_cmp(&a.2)).then(a.3.cmp(&b.3))
            });
            let mut left = self.gpus[of_type];
            for (priority, _, _, job) in queue {
                let RoundsJob { gpus, speeds, .. } = &self.jobs[job];
                let is_held_back = matches!(self.policy, RoundsPolicy::Fifo(_)) && priority <= 0.0;
                if *gpus > left || is_placed[job] || is_held_back || speeds[of_type] <= 0.0 {
                    continue;
                }
                left -= gpus;
                is_placed[job] = true;
                // A job without a share occupies GPUs and does not run.
                if self.allocation.contains_key(&job) {
                    running.push((job, of_type));
                }
            }
        }
        running
    }

    fn run(&mut self, running: &[(usize, usize)]) {
        if let Some(ended) = self.ended {
            self.began = ended;
        }
        let start = self.now;
        let done = |&(job, of_type): &(usize, usize)| {
            let speed = self.jobs[job].speeds[of_type];
            let steps = ((speed * self.options.round) as u64).min(self.remaining[job]);
            (job, of_type, steps, start + steps as f64 / speed)
        };
        let done: Vec<(usize, usize, u64, f64)> = running.iter().map(done).collect();
        let end = done.iter().map(|&(.., end)| end).fold(start, f64::max);
        for (job, of_type, steps, job_end) in done {
            self.remaining[job] -= steps;
            let time = job_end - self.began;
            self.given += time * self.jobs[job].gpus as f64;
            if self.remaining[job] == 0 {
                self.completions[job] = Some(job_end - self.jobs[job].arrival);
                self.accounts.remove(&job);
                self.is_outdated = true;
            } else if let Some(account) = self.accounts.get_mut(&job) {
                account.had[of_type] += time;
            }
        }
        self.ended = Some(end);
        self.now = end;
    }
}
