//! The common virtual time of the jobs of a cluster, and the transfers of their collectives on
//! shared links.

use std::collections::BTreeMap;
use std::time::Duration;

use collectives::{ClusterLinks, Flow, FlowId, FlowNetwork};

use super::timeline::ClusterTimeline;
use super::{ClusterJob, ClusterSimulation, LevelUse, PreparedJob, SharedJob};
use crate::Error;
use crate::program::CollectiveId;
use crate::simulate::Simulation;
use crate::simulate::rank::Rank;
use crate::simulate::simulated_ranks::{SimulatedRanks, Window};

/// The jobs of a cluster and its links, in virtual time.
pub(super) struct ClusterRun<'a> {
    links: &'a ClusterLinks,
    network: FlowNetwork,
    jobs: Vec<RunningJob<'a>>,
    /// Job and collective of each active flow.
    flows: BTreeMap<FlowId, (usize, CollectiveId)>,
    /// Number of jobs that have not run their number of iterations.
    unfinished: usize,
    keeps_steps: bool,
}

/// A job with its simulated ranks, whose virtual time begins with the job.
struct RunningJob<'a> {
    simulated: SimulatedRanks<'a>,
    flows: &'a [Flow],
    start: Duration,
    phase: Phase,
    /// Time of the next event of its devices, in the virtual time of the cluster.
    next: Option<Duration>,
    /// Number of iterations of the warm-up, and of the options.
    warm_up: u32,
    iterations: u32,
    /// Number of iterations that the ranks may begin.
    allowed: u32,
    /// Whether the job may run more iterations while others run: they take time.
    repeats: bool,
}

/// Progress of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It has not started.
    Pending,
    /// It runs the iterations that are not measured.
    WarmUp,
    /// It runs measured iterations.
    Measured,
    /// It has run its number of iterations.
    Finished,
}

impl<'a> ClusterRun<'a> {
    /// Creates the jobs before their starts. `keeps_steps` is whether a timeline is wanted.
    ///
    /// # Errors
    /// [`Error::Mux`] for invalid device parameters.
    pub(super) fn new(
        links: &'a ClusterLinks,
        jobs: &'a [ClusterJob<'a>],
        prepared: &'a [PreparedJob<'a>],
        keeps_steps: bool,
    ) -> Result<Self, Error> {
        let running = jobs.iter().zip(prepared).map(|(job, of_job)| {
            let PreparedJob { classes, options, flows, alone } = of_job;
            let mut simulated = SimulatedRanks::new(job.program, classes, options)?.with_shared_links();
            if keeps_steps {
                simulated.ranks.iter_mut().for_each(|rank| rank.jobs.keep_steps());
            }
            Ok(RunningJob {
                simulated,
                flows,
                start: job.start,
                phase: Phase::Pending,
                next: Some(job.start),
                warm_up: options.warm_up(),
                iterations: options.iterations(),
                allowed: options.iterations(),
                repeats: !alone.iteration.is_zero(),
            })
        });
        let jobs = running.collect::<Result<Vec<_>, Error>>()?;
        let network = links.network()?;
        Ok(Self { links, network, unfinished: jobs.len(), jobs, flows: BTreeMap::new(), keeps_steps })
    }

    /// Runs all jobs until each has run its number of iterations.
    ///
    /// # Errors
    /// [`Error::Mux`] if no job can continue.
    pub(super) fn run(&mut self) -> Result<(), Error> {
        while self.unfinished > 0 {
            let events = self.jobs.iter().enumerate();
            let device = events.filter_map(|(index, job)| Some((job.next?, index))).min();
            match (self.network.next_end(), device) {
                // A transfer that ends together with those of the devices ends first: the last of
                // the devices then ends the collective.
                (Some(end), device) if device.is_none_or(|(event, _)| end <= event) => {
                    for (at, flow) in self.network.advance(end) {
                        let Some((index, collective)) = self.flows.remove(&flow) else { continue };
                        let job = &mut self.jobs[index];
                        job.simulated.end_transfer(collective, at.saturating_sub(job.start))?;
                        self.after_event(index)?;
                    }
                }
                (_, Some((_, index))) => {
                    let job = &mut self.jobs[index];
                    if job.phase == Phase::Pending {
                        job.phase = Phase::WarmUp;
                        job.simulated.begin_iterations()?;
                    } else {
                        job.simulated.process_next_event()?;
                    }
                    self.after_event(index)?;
                }
                (_, None) => return Err(gpu_mux::Error::Stalled.into()),
            }
        }
        for job in &mut self.jobs {
            let end = job.simulated.end_of(job.measured());
            job.simulated.advance_idle_ranks(end)?;
        }
        Ok(())
    }

    /// Starts the transfers that a job has begun, and records the iterations that it has ended.
    fn after_event(&mut self, index: usize) -> Result<(), Error> {
        let job = &mut self.jobs[index];
        while let Some((collective, at)) = job.simulated.begun_transfer() {
            let flow = job.flows[collective.0].clone();
            let flow = self.network.start(at.saturating_add(job.start), flow)?;
            self.flows.insert(flow, (index, collective));
        }
        if job.phase == Phase::WarmUp && job.simulated.have_ended(job.warm_up) {
            job.phase = Phase::Measured;
            let end = job.simulated.end_of(job.warm_up);
            job.simulated.advance_idle_ranks(end)?;
            job.simulated.ranks.iter_mut().for_each(Rank::end_warm_up);
        }
        if job.phase == Phase::Measured && job.simulated.have_ended(job.iterations) {
            job.phase = Phase::Finished;
            self.unfinished -= 1;
        }
        let others_run = self.unfinished > usize::from(job.phase != Phase::Finished);
        if others_run && job.repeats {
            // The last allowed iteration has begun on the first rank.
            let ended = |rank: &Rank<'_>| rank.jobs.ends().len();
            let ended = job.simulated.ranks.iter().map(ended).max().unwrap_or_default();
            while ended + 1 >= job.allowed as usize {
                job.allowed += 1;
                job.simulated.ranks.iter_mut().for_each(|rank| rank.jobs.add_iteration());
            }
        }
        job.next = job.simulated.next_event().map(|at| at.saturating_add(job.start));
        Ok(())
    }

    /// Returns the results of the jobs and of the links.
    pub(super) fn result(
        mut self,
        jobs: &[ClusterJob<'_>],
        prepared: &[PreparedJob<'_>],
    ) -> ClusterSimulation {
        let mut results = Vec::with_capacity(jobs.len());
        for ((running, job), of_job) in self.jobs.iter_mut().zip(jobs).zip(prepared) {
            let iterations = running.measured();
            running.simulated.ranks.iter_mut().for_each(|rank| rank.jobs.measure_until(iterations));
            let start = running.simulated.end_of(running.warm_up);
            let end = running.simulated.end_of(iterations);
            let window = Window { start, end, iterations: iterations - running.warm_up.min(iterations) };
            results.push(SharedJob {
                name: job.name.clone(),
                gpus: job.gpus.clone(),
                start: job.start,
                alone: of_job.alone.clone(),
                beside: Simulation::new(
                    job.program,
                    &of_job.options,
                    &running.simulated.ranks,
                    window,
                    Vec::new(),
                ),
            });
        }
        let duration = self.network.now();
        let levels = (0..self.links.levels()).filter_map(|level| self.level_use(level, duration)).collect();
        let timeline = self.keeps_steps.then(|| self.timeline(jobs, duration));
        ClusterSimulation { jobs: results, levels, duration, timeline }
    }

    fn level_use(&self, level: usize, duration: Duration) -> Option<LevelUse> {
        let seconds = duration.as_secs_f64().max(f64::MIN_POSITIVE);
        let capacity = self.links.capacity(level)?;
        let busy = |link: usize| self.network.carried_bytes(link) / (capacity * seconds);
        let of_links = self.links.of_level(level).map(|link| (link, busy(link)));
        let (busiest, max) = of_links.clone().max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))?;
        let used = of_links.clone().filter(|&(_, busy)| busy > 0.0).count();
        let total: f64 = of_links.map(|(_, busy)| busy).sum();
        Some(LevelUse {
            level,
            links: self.links.of_level(level).len(),
            used_links: used,
            bytes_per_s: capacity,
            mean_busy: if used > 0 { total / used as f64 } else { 0.0 },
            busiest: self.links.get(busiest)?,
            max_busy: max,
        })
    }

    /// Returns the timeline of the last iteration of the job with the longest iterations.
    fn timeline(&self, jobs: &[ClusterJob<'_>], end: Duration) -> ClusterTimeline {
        let length = self.jobs.iter().map(|job| {
            let iterations = job.measured();
            let before =
                iterations.checked_sub(1).map_or(Duration::ZERO, |before| job.simulated.end_of(before));
            job.simulated.end_of(iterations).saturating_sub(before)
        });
        let begin = end.saturating_sub(length.max().unwrap_or_default());
        let mut timeline = ClusterTimeline::new(begin, end);
        for (running, job) in self.jobs.iter().zip(jobs) {
            timeline.add_job(job, &running.simulated.ranks, running.flows);
        }
        timeline
    }
}

impl RunningJob<'_> {
    /// Returns the number of iterations that all ranks have ended.
    fn measured(&self) -> u32 {
        let with_steps = self.simulated.ranks.iter().filter(|rank| !rank.jobs.is_without_steps());
        let ended = with_steps.map(|rank| rank.jobs.ends().len()).min();
        ended.map_or(self.iterations, |ended| u32::try_from(ended).unwrap_or(u32::MAX))
    }
}
