//! The state machine.

mod entry;
mod gpus;
mod places;
mod prices;
mod select;
mod turns;

use std::collections::BTreeSet;
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::nanos::nanos;
use crate::policy::Order;
use crate::{Cluster, Command, Error, Event, GpuId, Job, JobId, Policy, Table};
use entry::{Entry, Run, Seat};
use gpus::Gpus;
use turns::Turns;

/// Decides which job's iterations run where, by a [`Policy`]: events in, commands out.
///
/// It knows no clock, no process and no network: whoever drives it, in virtual time or for real, tells it what has happened
/// ([`handle`](Self::handle)) and carries out what it then wants ([`decide`](Self::decide)). The same events give the same
/// commands. Between two events a running job just goes on: what it may do by itself is part of its
/// [`Placement`](crate::Placement).
///
/// A decision looks at every job that has not ended: with n of them and g GPUs it takes O(n log n + g), and for the fair policies when
/// jobs have come or gone a solver's time.
#[derive(Debug)]
pub struct Scheduler<'a> {
    cluster: &'a Cluster,
    table: &'a Table,
    policy: Policy,
    now: u64,
    entries: Vec<Entry>,
    by_id: FxHashMap<JobId, usize>,
    /// Jobs that have not left, in the order in which they came.
    active: Vec<usize>,
    /// Of these, those that have a place, do not run, and may start.
    ready: BTreeSet<usize>,
    /// Those that cannot, by the GPU that they wait for: until that is released, or there is another plan.
    blocked: Vec<Vec<usize>>,
    gpus: Gpus,
    turns: Option<Turns>,
    /// Something has happened since the last plan by which another one may be better.
    outdated: bool,
    wake_at: Option<u64>,
    /// What becomes of two executions that share GPUs.
    pairs: places::Pairs,
}

impl<'a> Scheduler<'a> {
    /// A scheduler of a cluster without jobs.
    ///
    /// # Errors
    ///
    /// [`Error::BadFigure`] for a policy with figures out of their range.
    pub fn new(cluster: &'a Cluster, table: &'a Table, policy: Policy) -> Result<Self, Error> {
        policy.check()?;
        let turns = match policy.order {
            Order::Fair(fair) => Some(Turns::new(fair, cluster)),
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
            turns,
            outdated: false,
            wake_at: None,
            pairs: places::Pairs::default(),
        })
    }

    /// Takes note of what has happened at a time.
    ///
    /// # Errors
    ///
    /// Where the event cannot have happened; it has then changed nothing.
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
            Event::Woke => {
                if self.wake_at.is_some_and(|at| at <= time) {
                    self.wake_at = None;
                    self.outdated = true;
                }
            }
        }
        self.now = time;
        Ok(())
    }

    /// What is to be done now, after all that has been [handled](Self::handle).
    ///
    /// # Errors
    ///
    /// [`Error::Unsolved`] where a fair policy's solver gives up.
    pub fn decide(&mut self) -> Result<Vec<Command>, Error> {
        let mut commands = Vec::new();
        if std::mem::take(&mut self.outdated) {
            self.plan()?;
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
                if !run.stopping && entry.target.as_ref() != Some(&run.seat) {
                    run.stopping = true;
                    commands.push(Command::Stop(entry.id));
                }
            }
        }
        for index in std::mem::take(&mut self.ready) {
            let entry = &self.entries[index];
            let (Some(seat), None) = (&entry.target, &entry.run) else { continue };
            if let Some(gpu) = self.blocking(index, seat) {
                self.blocked[gpu.index()].push(index);
            } else {
                self.gpus.hold(&seat.gpus, index);
                let left = self.entries[index].iterations_of_this_priority(&self.policy.order);
                let beside = seat.beside.map(|host| self.entries[host].id);
                let seat = seat.clone();
                self.entries[index].run = Some(Run { seat, left, stopping: false });
                commands.extend(self.entries[index].placement(beside).map(Command::Run));
            }
        }
        Ok(commands)
    }

    /// Whether the next [decision](Self::decide) makes a new plan, for which it should know how far running jobs
    /// [are](Event::Progressed). Otherwise it only goes on with the last one.
    #[must_use]
    pub fn wants_progress(&self) -> bool {
        self.outdated
    }

    /// When the scheduler wants to be [woken](Event::Woke), if nothing else happens before.
    pub fn wake_at(&self) -> Option<Duration> {
        self.wake_at.map(Duration::from_nanos)
    }

    /// The iterations that a job has left, if it has not left itself.
    #[must_use]
    pub fn remaining(&self, job: JobId) -> Option<u64> {
        self.find(job).ok().map(|index| self.entries[index].remaining)
    }

    /// How many jobs have come and not left.
    #[must_use]
    pub fn active(&self) -> usize {
        self.active.len()
    }

    /// A GPU of these that somebody holds who does not share it, if there is one.
    ///
    /// Who was told to stop holds them until the end of its iteration, and keeps others waiting, but not its own host or guest: that goes
    /// on where it is.
    fn blocking(&self, job: usize, seat: &Seat) -> Option<GpuId> {
        seat.gpus.iter().copied().find(|&gpu| {
            let holders = self.gpus.holders(gpu);
            let waits_for = |&holder: &usize| {
                let run = self.entries[holder].run.as_ref();
                let shares = |run: &Run| run.seat.beside == Some(job) || seat.beside == Some(holder);
                run.is_some_and(|run| run.stopping && !shares(run))
            };
            !holders.contains(&None) || holders.iter().flatten().any(waits_for)
        })
    }

    fn arrive(&mut self, id: JobId, job: Job, now: u64) -> Result<(), Error> {
        if self.by_id.contains_key(&id) {
            return Err(Error::Twice(id));
        }
        let entry = Entry::new(id, job, now, self.cluster, self.table, &self.policy)?;
        let index = self.entries.len();
        if let Some(turns) = &mut self.turns {
            turns.arrive(index);
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

    /// The job, if it can have done so many iterations with at least so many left.
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
        if let Some(turns) = &mut self.turns {
            turns.account(index, run.seat.gpu_type, iterations.saturating_mul(run.seat.iteration));
        }
        entry.remaining -= iterations;
        self.outdated |= entry.rise(&self.policy.order);
    }

    /// The job no longer runs.
    fn release(&mut self, index: usize) {
        if let Some(run) = self.entries[index].run.take() {
            self.gpus.release(&run.seat.gpus, index);
            for gpu in &run.seat.gpus {
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
        if let Some(turns) = &mut self.turns {
            turns.leave(index);
        }
        self.outdated = true;
    }
}
