//! The scheduler's state machine. Its *plan* is the set of target placements of all jobs, which an
//! event may make outdated.

mod entry;
mod fair_shares;
mod gpus;
mod places;
mod prices;
mod select;

use std::collections::BTreeSet;
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::nanos::nanos;
use crate::policy::Order;
use crate::{Cluster, Command, Error, Event, GpuId, Job, JobId, Policy, Table};
use entry::{Assignment, Entry, Run};
use fair_shares::FairShares;
use gpus::Gpus;

/// State machine that decides which job's iterations run where, according to a [`Policy`]: events
/// in, commands out.
///
/// It knows no clock, process or network. A driver, in virtual time or for real jobs, reports
/// events ([`handle`](Self::handle)) and executes commands ([`decide`](Self::decide)). The same
/// events give the same commands. Between two events a running job continues up to the number of
/// iterations in its [`Placement`](crate::Placement).
///
/// A decision takes O(n log n + g) time for n active jobs and g GPUs, plus the solver's time for
/// fair policies when jobs have arrived or left.
#[derive(Debug)]
pub struct Scheduler<'a> {
    cluster: &'a Cluster,
    table: &'a Table,
    policy: Policy,
    now: u64,
    entries: Vec<Entry>,
    by_id: FxHashMap<JobId, usize>,
    /// Jobs that have not left, in order of arrival.
    active: Vec<usize>,
    /// Active jobs that have a target, do not run, and may be able to start.
    ready: BTreeSet<usize>,
    /// Jobs that wait for a GPU to be released, by GPU, until there is a new plan.
    blocked: Vec<Vec<usize>>,
    gpus: Gpus,
    fair_shares: Option<FairShares>,
    /// Whether an event since the last plan may allow a better plan.
    outdated: bool,
    wake_at: Option<u64>,
    /// Cache of the durations of executions that share GPUs.
    pairs: places::PairCache,
}

impl<'a> Scheduler<'a> {
    /// Creates a scheduler for a cluster, without jobs. `table` has the execution times of all
    /// jobs.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a policy with values outside their range.
    pub fn new(cluster: &'a Cluster, table: &'a Table, policy: Policy) -> Result<Self, Error> {
        policy.check()?;
        let fair_shares = match policy.order {
            Order::Fair(fair) => Some(FairShares::new(fair, cluster)),
            _ => None,
        };
        Ok(Self {
            cluster,
            table,
            policy,
            now: 0,
            entries: Vec::new(),
            by_id: FxHashMap::default(),
            active: Vec::new(),
            ready: BTreeSet::new(),
            blocked: vec![Vec::new(); cluster.gpus()],
            gpus: Gpus::new(cluster),
            fair_shares,
            outdated: false,
            wake_at: None,
            pairs: places::PairCache::default(),
        })
    }

    /// Records an event that happened at `now`, measured from an epoch that the driver chooses.
    /// Commands follow from [`decide`](Self::decide).
    ///
    /// # Errors
    ///
    /// If the event is inconsistent with the state, as the variants of [`Error`] describe. A
    /// refused event changes nothing.
    pub fn handle(&mut self, now: Duration, event: Event) -> Result<(), Error> {
        let time = nanos(now);
        if time < self.now {
            return Err(Error::TimeWentBack { now, last: Duration::from_nanos(self.now) });
        }
        match event {
            Event::Arrived(id, job) => self.arrive(id, job, time)?,
            Event::Progressed(id, iterations) => {
                let index = self.check(id, iterations, 1)?;
                self.account(index, iterations);
            }
            Event::Ended(id, iterations) => {
                let index = self.check(id, iterations, 0)?;
                self.account(index, iterations);
                self.release(index);
                if self.entries[index].remaining == 0 {
                    self.leave(index);
                }
            }
            Event::Failed(id, iterations) => {
                let index = self.check(id, iterations, 1)?;
                self.account(index, iterations);
                self.release(index);
            }
            Event::Cancelled(id) => {
                let index = self.find(id)?;
                self.release(index);
                self.leave(index);
            }
            Event::TimerExpired => {
                if self.wake_at.is_some_and(|at| at <= time) {
                    self.wake_at = None;
                    self.outdated = true;
                }
            }
        }
        self.now = time;
        Ok(())
    }

    /// Returns the commands to execute now, after all events have been [handled](Self::handle).
    ///
    /// # Errors
    ///
    /// [`Error::Unsolved`] if the solver of a fair policy fails.
    pub fn decide(&mut self) -> Result<Vec<Command>, Error> {
        let mut commands = Vec::new();
        if std::mem::take(&mut self.outdated) {
            self.replan()?;
            self.ready.clear();
            self.blocked.iter_mut().for_each(Vec::clear);
            for &index in &self.active {
                let entry = &mut self.entries[index];
                let Some(run) = &mut entry.run else {
                    if entry.target.is_some() {
                        self.ready.insert(index);
                    }
                    continue;
                };
                if !run.stopping && entry.target.as_ref() != Some(&run.assignment) {
                    run.stopping = true;
                    commands.push(Command::Stop(entry.id));
                }
            }
        }
        for index in std::mem::take(&mut self.ready) {
            let entry = &self.entries[index];
            let (Some(assignment), None) = (&entry.target, &entry.run) else { continue };
            if let Some(gpu) = self.blocking(index, assignment) {
                self.blocked[gpu.index()].push(index);
            } else {
                self.gpus.hold(&assignment.gpus, index);
                let left = self.entries[index].iterations_of_this_priority(&self.policy.order);
                let beside = assignment.beside.map(|owner| self.entries[owner].id);
                let assignment = assignment.clone();
                self.entries[index].run = Some(Run { assignment, left, stopping: false });
                commands.extend(self.entries[index].placement(beside).map(Command::Run));
            }
        }
        Ok(commands)
    }

    /// Returns whether the next [decision](Self::decide) replans all placements, for which the
    /// driver should first report the [progress](Event::Progressed) of running jobs. Otherwise it
    /// continues the last plan.
    #[must_use]
    pub fn wants_progress(&self) -> bool {
        self.outdated
    }

    /// Returns the time since the driver's epoch at which the scheduler must be
    /// [woken](Event::TimerExpired) if no other event happens before; `None` if it need not be.
    pub fn wake_at(&self) -> Option<Duration> {
        self.wake_at.map(Duration::from_nanos)
    }

    /// Returns the number of remaining iterations of a job, as reported, or `None` if it has left
    /// or never arrived.
    #[must_use]
    pub fn remaining(&self, job: JobId) -> Option<u64> {
        self.find(job).ok().map(|index| self.entries[index].remaining)
    }

    /// Returns the number of jobs that have arrived and not left.
    #[must_use]
    pub fn active(&self) -> usize {
        self.active.len()
    }

    /// Returns a GPU of `assignment` that is held by a job that does not share it, if there is one.
    ///
    /// A job that has been told to stop holds its GPUs until the end of its iteration. It blocks
    /// all jobs except the owner or the guest with which it shares them.
    fn blocking(&self, job: usize, assignment: &Assignment) -> Option<GpuId> {
        assignment.gpus.iter().copied().find(|&gpu| {
            let holders = self.gpus.holders(gpu);
            let waits_for = |&holder: &usize| {
                let run = self.entries[holder].run.as_ref();
                let shares =
                    |run: &Run| run.assignment.beside == Some(job) || assignment.beside == Some(holder);
                run.is_some_and(|run| run.stopping && !shares(run))
            };
            !holders.contains(&None) || holders.iter().flatten().any(waits_for)
        })
    }

    fn arrive(&mut self, id: JobId, job: Job, now: u64) -> Result<(), Error> {
        if self.by_id.contains_key(&id) {
            return Err(Error::DuplicateJob(id));
        }
        let entry = Entry::new(id, job, now, self.cluster, self.table, &self.policy)?;
        let index = self.entries.len();
        if let Some(fair_shares) = &mut self.fair_shares {
            fair_shares.arrive(index);
        }
        self.entries.push(entry);
        self.by_id.insert(id, index);
        self.active.push(index);
        self.outdated = true;
        Ok(())
    }

    fn find(&self, id: JobId) -> Result<usize, Error> {
        let index = self.by_id.get(&id).copied().filter(|&index| self.entries[index].is_active);
        index.ok_or(Error::UnknownJob(id))
    }

    /// Returns the index of a job that can have completed this number of iterations with at least
    /// `at_least` iterations left.
    fn check(&self, id: JobId, iterations: u64, at_least: u64) -> Result<usize, Error> {
        let index = self.find(id)?;
        let given = self.entries[index].run.as_ref().map_or(0, |run| run.left);
        let runs = self.entries[index].run.is_some();
        if runs && iterations.saturating_add(at_least) <= given {
            return Ok(index);
        }
        Err(Error::TooManyIterations { job: id, reported: iterations, given })
    }

    fn account(&mut self, index: usize, iterations: u64) {
        let entry = &mut self.entries[index];
        let Some(run) = &mut entry.run else { return };
        run.left -= iterations;
        if let Some(fair_shares) = &mut self.fair_shares {
            fair_shares.account(
                index,
                run.assignment.gpu_type,
                iterations.saturating_mul(run.assignment.iteration),
            );
        }
        entry.remaining -= iterations;
        self.outdated |= entry.update_level(&self.policy.order);
    }

    /// Releases the GPUs of a job that no longer runs.
    fn release(&mut self, index: usize) {
        if let Some(run) = self.entries[index].run.take() {
            self.gpus.release(&run.assignment.gpus, index);
            for gpu in &run.assignment.gpus {
                self.ready.extend(self.blocked[gpu.index()].drain(..));
            }
            if self.entries[index].target.is_some() {
                self.ready.insert(index);
            }
        }
    }

    fn leave(&mut self, index: usize) {
        let entry = &mut self.entries[index];
        entry.is_active = false;
        entry.target = None;
        entry.options = Vec::new();
        self.active.retain(|&other| other != index);
        self.ready.remove(&index);
        if let Some(fair_shares) = &mut self.fair_shares {
            fair_shares.leave(index);
        }
        self.outdated = true;
    }
}
