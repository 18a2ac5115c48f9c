//! The simulation driver: a scheduler in virtual time. Time 0 is the start of the trace. A job is
//! *in the cluster* from its arrival until it has completed or was cancelled.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::nanos::{duration, nanos};
use crate::report::{Departure, HeldTime, JobRecord, Report, Segment};
use crate::{
    Allocation, Arrival, Cluster, Command, Error, Event, GpuType, JobId, Mode, Placement, Policy, Scheduler,
    Table,
};

/// External event that affects a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disturbance {
    /// The job fails, and its unfinished iteration is lost. Ignored if the job does not run.
    Failure(JobId),
    /// The job is cancelled. Ignored if it is not in the cluster.
    Cancel(JobId),
}

/// Granularity of the simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Granularity {
    /// Advances to the next event on which a decision depends. Iterations in between are counted,
    /// not simulated one by one.
    #[default]
    FastForward,
    /// Advances from the end of one iteration to the next. The report is identical except for the
    /// number of events.
    EveryIteration,
}

/// Options of a simulation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SimulationOptions {
    /// Granularity of the simulation.
    pub granularity: Granularity,
    /// Whether the placements over time are recorded in the report.
    pub record: bool,
    /// Failures and cancellations, each with its time from the start of the trace.
    pub disturbances: Vec<(Duration, Disturbance)>,
}

/// Simulates a cluster whose jobs arrive at the times of `arrivals`, until all jobs have completed
/// or were cancelled.
///
/// Iterations take the times of the table. Preempting and moving a job takes no time, and jobs are
/// preempted at the ends of iterations. All times are exact, in whole nanoseconds.
///
/// It takes one decision for each arrival, end and change of priority, independent of the number of
/// iterations in between.
///
/// # Errors
///
/// [`Error::Impossible`] for a job that can never run, [`Error::OutOfRange`] for jobs that end or
/// arrive after 584 years, [`Error::Unsolved`] if the solver of a fair policy fails.
pub fn simulate(
    cluster: &Cluster,
    table: &Table,
    policy: &Policy,
    arrivals: &[Arrival],
    options: &SimulationOptions,
) -> Result<Report, Error> {
    let mut simulation = Simulation::new(cluster, table, policy, options)?;
    let mut events: Vec<(u64, ExternalEvent)> = arrivals
        .iter()
        .map(|arrival| (nanos(arrival.at), ExternalEvent::Arrival(arrival)))
        .chain(options.disturbances.iter().map(|(at, what)| (nanos(*at), ExternalEvent::Disturbance(*what))))
        .collect();
    events.sort_by_key(|(at, _)| *at);
    let mut events = events.into_iter().peekable();
    while let Some(now) = simulation.next(events.peek().map(|(at, _)| *at)) {
        if now == u64::MAX {
            let (name, expected) = ("the virtual time of the simulation", "at most 584 years");
            return Err(Error::OutOfRange { name, value: "longer".into(), expected });
        }
        simulation.advance(now)?;
        while let Some((_, event)) = events.next_if(|(at, _)| *at == now) {
            simulation.apply(event)?;
        }
        simulation.decide()?;
    }
    Ok(simulation.report())
}

#[derive(Clone, Copy)]
enum ExternalEvent<'a> {
    Arrival(&'a Arrival),
    Disturbance(Disturbance),
}

/// A placement in execution.
struct ActiveRun {
    placement: Placement,
    iteration: u64,
    /// Start of the current iteration.
    from: u64,
    /// Number of iterations left from then on.
    left: u64,
    /// Time at which it was placed.
    placed: u64,
    /// Identifies the entry in the queue of ends; entries with other numbers are outdated.
    number: u64,
}

struct Simulation<'a> {
    cluster: &'a Cluster,
    table: &'a Table,
    options: &'a SimulationOptions,
    scheduler: Scheduler<'a>,
    now: u64,
    runs: FxHashMap<JobId, ActiveRun>,
    ends: BinaryHeap<Reverse<(u64, JobId, u64)>>,
    numbers: u64,
    records: Vec<JobRecord>,
    by_id: FxHashMap<JobId, usize>,
    held: HeldTime,
    in_system: u64,
    jobs_in_system: u128,
    events: u64,
    segments: Vec<Segment>,
    makespan: u64,
}

impl<'a> Simulation<'a> {
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
            held: HeldTime::new(cluster.gpus()),
            in_system: 0,
            jobs_in_system: 0,
            events: 0,
            segments: Vec::new(),
            makespan: 0,
        })
    }

    /// Returns the time of the next event, or `None` if there is none.
    fn next(&mut self, external: Option<u64>) -> Option<u64> {
        while let Some(Reverse((_, job, number))) = self.ends.peek() {
            if self.runs.get(job).is_some_and(|run| run.number == *number) {
                break;
            }
            self.ends.pop();
        }
        let end = self.ends.peek().map(|Reverse((at, ..))| *at);
        let wake = self.scheduler.wake_at().map(|at| nanos(at).max(self.now));
        [external, end, wake].into_iter().flatten().min()
    }

    /// Advances to a time and reports the ends of iterations at that time to the scheduler.
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
            self.tell(Event::TimerExpired)?;
        }
        Ok(())
    }

    /// Reports a job's progress until now to the scheduler.
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
                self.leave(job, Departure::Finished);
            }
            Ok(())
        } else {
            self.tell(Event::Progressed(job, iterations))
        }
    }

    fn apply(&mut self, event: ExternalEvent<'_>) -> Result<(), Error> {
        match event {
            ExternalEvent::Arrival(Arrival { at, id, job }) => {
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
                    departure: None,
                    iterations: 0,
                    gpus: job.gpus,
                    alone: duration(u128::from(iteration) * u128::from(job.iterations)),
                });
                self.in_system += 1;
            }
            ExternalEvent::Disturbance(Disturbance::Failure(job)) => {
                self.catch_up(job)?;
                if self.runs.contains_key(&job) {
                    self.stop(job);
                    self.tell(Event::Failed(job, 0))?;
                }
            }
            ExternalEvent::Disturbance(Disturbance::Cancel(job)) => {
                self.catch_up(job)?;
                let index = self.by_id.get(&job).copied();
                if index.is_some_and(|index| self.records[index].departure.is_none()) {
                    self.stop(job);
                    self.tell(Event::Cancelled(job))?;
                    self.leave(job, Departure::Cancelled);
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
        let left = match self.options.granularity {
            Granularity::FastForward => placement.iterations,
            Granularity::EveryIteration => 1,
        };
        let job = placement.job;
        self.records[self.by_id[&job]].started.get_or_insert(Duration::from_nanos(self.now));
        self.held.hold(self.now, &placement.gpus);
        self.numbers += 1;
        let (from, number) = (self.now, self.numbers);
        self.ends.push(Reverse((from.saturating_add(left.saturating_mul(iteration)), job, number)));
        self.runs.insert(job, ActiveRun { placement, iteration, from, left, placed: from, number });
    }

    /// Frees the GPUs of a job that no longer runs.
    fn stop(&mut self, job: JobId) {
        let Some(run) = self.runs.remove(&job) else { return };
        self.held.release(self.now, &run.placement.gpus);
        if self.options.record {
            self.record(run);
        }
    }

    /// Records a run. Consecutive runs of a job at the same place are one segment.
    fn record(&mut self, run: ActiveRun) {
        let Placement { job, gpus, beside, .. } = run.placement;
        let (from, to) = (Duration::from_nanos(run.placed), Duration::from_nanos(self.now));
        let last = self.segments.iter_mut().rev().find(|segment| segment.job == job);
        match last {
            Some(last) if last.to == from && last.gpus == gpus && last.beside == beside => last.to = to,
            _ => self.segments.push(Segment { job, gpus, beside, from, to }),
        }
    }

    fn leave(&mut self, job: JobId, how: Departure) {
        self.records[self.by_id[&job]].departure = Some((Duration::from_nanos(self.now), how));
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
