//! Virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::nanos::{duration, nanos};
use crate::report::{End, Held, JobRecord, Report, Segment};
use crate::{
    Allocation, Arrival, Cluster, Command, Error, Event, GpuType, JobId, Mode, Placement, Policy, Scheduler,
    Table,
};

/// What happens to a job besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disturbance {
    /// It fails: what it has done of its iteration is lost. Nothing happens if it does not run.
    Failure(JobId),
    /// It is no longer wanted. Nothing happens if it is not in the cluster.
    Cancel(JobId),
}

/// How far virtual time is advanced at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Step {
    /// To the next event on which a decision depends: iterations in between are counted, not gone through.
    #[default]
    FastForward,
    /// From the end of one iteration to the next. The report is the same, to the bit, but for the number of events.
    EveryIteration,
}

/// How to simulate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SimulationOptions {
    /// How far virtual time is advanced at once.
    pub step: Step,
    /// Whether to record who ran where and when.
    pub record: bool,
    /// What happens to jobs besides, each at a time.
    pub disturbances: Vec<(Duration, Disturbance)>,
}

/// Simulates a cluster whose jobs arrive as in a trace, until all have left.
///
/// Iterations take what the table says, preempting a job and moving it takes nothing, and jobs are
/// preempted at the ends of iterations. All times are whole nanoseconds, and exact.
///
/// Takes a decision's time for each arrival, end and change of priority, and nothing for the iterations in between.
///
/// # Errors
///
/// For a job that could never run, and where a fair policy's solver gives up.
pub fn simulate(
    cluster: &Cluster,
    table: &Table,
    policy: &Policy,
    arrivals: &[Arrival],
    options: &SimulationOptions,
) -> Result<Report, Error> {
    let mut world = World::new(cluster, table, policy, options)?;
    let mut events: Vec<(u64, Outside)> = arrivals
        .iter()
        .map(|arrival| (nanos(arrival.at), Outside::Arrival(arrival)))
        .chain(options.disturbances.iter().map(|(at, what)| (nanos(*at), Outside::Disturbance(*what))))
        .collect();
    events.sort_by_key(|(at, _)| *at);
    let mut events = events.into_iter().peekable();
    while let Some(now) = world.next(events.peek().map(|(at, _)| *at)) {
        world.advance(now)?;
        while let Some((_, event)) = events.next_if(|(at, _)| *at == now) {
            world.happen(event)?;
        }
        world.decide()?;
    }
    Ok(world.report())
}

#[derive(Clone, Copy)]
enum Outside<'a> {
    Arrival(&'a Arrival),
    Disturbance(Disturbance),
}

/// A placement that is carried out.
struct Run {
    placement: Placement,
    iteration: u64,
    /// When the iteration began that it is in.
    from: u64,
    /// The iterations that it does from then on.
    left: u64,
    /// When it was placed.
    placed: u64,
    /// By which an end in the queue is known to be out of date.
    number: u64,
}

struct World<'a> {
    cluster: &'a Cluster,
    table: &'a Table,
    options: &'a SimulationOptions,
    scheduler: Scheduler<'a>,
    now: u64,
    runs: FxHashMap<JobId, Run>,
    ends: BinaryHeap<Reverse<(u64, JobId, u64)>>,
    numbers: u64,
    records: Vec<JobRecord>,
    by_id: FxHashMap<JobId, usize>,
    held: Held,
    in_system: u64,
    jobs_in_system: u128,
    events: u64,
    segments: Vec<Segment>,
    makespan: u64,
}

impl<'a> World<'a> {
    fn new(
        cluster: &'a Cluster,
        table: &'a Table,
        policy: &Policy,
        options: &'a SimulationOptions,
    ) -> Result<Self, Error> {
        Ok(Self {
            cluster,
            table,
            options,
            scheduler: Scheduler::new(cluster, table, policy.clone())?,
            now: 0,
            runs: FxHashMap::default(),
            ends: BinaryHeap::new(),
            numbers: 0,
            records: Vec::new(),
            by_id: FxHashMap::default(),
            held: Held::new(cluster.gpus()),
            in_system: 0,
            jobs_in_system: 0,
            events: 0,
            segments: Vec::new(),
            makespan: 0,
        })
    }

    /// The time of the next event, if there will be one.
    fn next(&mut self, outside: Option<u64>) -> Option<u64> {
        while let Some(Reverse((_, job, number))) = self.ends.peek() {
            if self.runs.get(job).is_some_and(|run| run.number == *number) {
                break;
            }
            self.ends.pop();
        }
        let end = self.ends.peek().map(|Reverse((at, ..))| *at);
        let wake = self.scheduler.wake_at().map(|at| nanos(at).max(self.now));
        [outside, end, wake].into_iter().flatten().min()
    }

    /// Goes to a time, and tells the scheduler what ends then.
    fn advance(&mut self, now: u64) -> Result<(), Error> {
        self.jobs_in_system += u128::from(self.in_system) * u128::from(now - self.now);
        self.now = now;
        while let Some(Reverse((_, job, number))) = self.ends.peek().copied().filter(|end| end.0.0 == now) {
            self.ends.pop();
            if self.runs.get(&job).is_some_and(|run| run.number == number) {
                self.catch_up(job)?;
            }
        }
        if self.scheduler.wake_at().is_some_and(|at| nanos(at) <= now) {
            self.tell(Event::Woke)?;
        }
        Ok(())
    }

    /// Tells the scheduler what a job has done until now.
    fn catch_up(&mut self, job: JobId) -> Result<(), Error> {
        let Some(run) = self.runs.get_mut(&job) else { return Ok(()) };
        let iterations = ((self.now - run.from) / run.iteration).min(run.left);
        if iterations == 0 {
            return Ok(());
        }
        run.from += iterations * run.iteration;
        run.left -= iterations;
        let at_end = run.from == self.now;
        self.records[self.by_id[&job]].iterations += iterations;
        if at_end {
            self.stop(job);
            self.tell(Event::Ended(job, iterations))?;
            if self.scheduler.remaining(job).is_none() {
                self.leave(job, End::Finished);
            }
            Ok(())
        } else {
            self.tell(Event::Progressed(job, iterations))
        }
    }

    fn happen(&mut self, event: Outside<'_>) -> Result<(), Error> {
        match event {
            Outside::Arrival(Arrival { at, id, job }) => {
                self.tell(Event::Arrived(*id, job.clone()))?;
                let fastest = (0..self.cluster.types().len() as u16).filter_map(|of_type| {
                    let allocation = Allocation { gpu_type: GpuType(of_type), gpus: job.gpus, spread: false };
                    (job.gpus <= self.cluster.gpus_of(GpuType(of_type))).then_some(())?;
                    self.table.execution(job.kind, allocation, Mode::DataParallel)
                });
                let iteration = fastest.map(|execution| execution.iteration).min().unwrap_or(0);
                self.by_id.insert(*id, self.records.len());
                self.records.push(JobRecord {
                    id: *id,
                    arrived: *at,
                    started: None,
                    left: None,
                    iterations: 0,
                    gpus: job.gpus,
                    alone: duration(u128::from(iteration) * u128::from(job.iterations)),
                });
                self.in_system += 1;
            }
            Outside::Disturbance(Disturbance::Failure(job)) => {
                self.catch_up(job)?;
                if self.runs.contains_key(&job) {
                    self.stop(job);
                    self.tell(Event::Failed(job, 0))?;
                }
            }
            Outside::Disturbance(Disturbance::Cancel(job)) => {
                self.catch_up(job)?;
                let index = self.by_id.get(&job).copied();
                if index.is_some_and(|index| self.records[index].left.is_none()) {
                    self.stop(job);
                    self.tell(Event::Cancelled(job))?;
                    self.leave(job, End::Cancelled);
                }
            }
        }
        Ok(())
    }

    fn decide(&mut self) -> Result<(), Error> {
        if self.scheduler.wants_progress() {
            let mut running: Vec<JobId> = self.runs.keys().copied().collect();
            running.sort_unstable();
            running.into_iter().try_for_each(|job| self.catch_up(job))?;
        }
        for command in self.scheduler.decide()? {
            match command {
                Command::Run(placement) => self.start(placement),
                Command::Stop(job) => {
                    if let Some(run) = self.runs.get_mut(&job) {
                        run.left = 1;
                        self.numbers += 1;
                        run.number = self.numbers;
                        self.ends.push(Reverse((run.from.saturating_add(run.iteration), job, run.number)));
                    }
                }
            }
        }
        Ok(())
    }

    fn start(&mut self, placement: Placement) {
        let iteration = nanos(placement.iteration);
        let left = match self.options.step {
            Step::FastForward => placement.iterations,
            Step::EveryIteration => 1,
        };
        let job = placement.job;
        self.records[self.by_id[&job]].started.get_or_insert(Duration::from_nanos(self.now));
        self.held.take(self.now, &placement.gpus);
        self.numbers += 1;
        let (from, number) = (self.now, self.numbers);
        self.ends.push(Reverse((from.saturating_add(left.saturating_mul(iteration)), job, number)));
        self.runs.insert(job, Run { placement, iteration, from, left, placed: from, number });
    }

    /// The job no longer runs.
    fn stop(&mut self, job: JobId) {
        let Some(run) = self.runs.remove(&job) else { return };
        self.held.give(self.now, &run.placement.gpus);
        if self.options.record {
            self.record(run);
        }
    }

    /// What goes on where it was is one segment.
    fn record(&mut self, run: Run) {
        let Placement { job, gpus, beside, .. } = run.placement;
        let (from, to) = (Duration::from_nanos(run.placed), Duration::from_nanos(self.now));
        let last = self.segments.iter_mut().rev().find(|segment| segment.job == job);
        match last {
            Some(last) if last.to == from && last.gpus == gpus && last.beside == beside => last.to = to,
            _ => self.segments.push(Segment { job, gpus, beside, from, to }),
        }
    }

    fn leave(&mut self, job: JobId, how: End) {
        self.records[self.by_id[&job]].left = Some((Duration::from_nanos(self.now), how));
        self.in_system -= 1;
        self.makespan = self.makespan.max(self.now);
    }

    fn tell(&mut self, event: Event) -> Result<(), Error> {
        self.events += 1;
        self.scheduler.handle(Duration::from_nanos(self.now), event)
    }

    fn report(mut self) -> Report {
        self.segments.sort_by_key(|segment| (segment.from, segment.job));
        Report {
            jobs: self.records,
            makespan: Duration::from_nanos(self.makespan),
            gpus: self.cluster.gpus(),
            held: self.held.total(),
            jobs_in_system: duration(self.jobs_in_system),
            events: self.events,
            segments: self.segments,
        }
    }
}
