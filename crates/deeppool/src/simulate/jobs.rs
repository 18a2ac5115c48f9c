//! The foreground and the background job of a rank: the tasklets that they offer to its device, and
//! their progress. One rank is simulated for each class of equal ranks. A run of the program is one
//! iteration, or several with partial backpropagation. The partners of a rank at a collective are
//! the other ranks of the collective.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use gpu_mux::{
    BackgroundHost, Device, Driver, DriverError, Exchange, Finished, ForegroundHost, Host, JobId, Occupancy,
    Tasklet, TaskletId, VirtualDevice, VirtualWork,
};

use super::member::{Arrival, Member, MemberWork};
use super::steps::RankClass;
use super::{BackgroundCosts, SimulateOptions};
use crate::Error;
use crate::program::{CollectiveId, Op, Program, RankProgram, StepId};
use crate::timeline::{TimelineEvent, TimelineWork};

/// An interval of virtual time. Virtual time 0 is the start of the simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Span {
    /// Virtual time of the start.
    pub(super) start: Duration,
    /// Virtual time of the end.
    pub(super) end: Duration,
}

/// Device time and background samples of a rank in an interval of virtual time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RankProgress {
    /// Time of the device by state of the foreground (computing, transferring, waiting or idle),
    /// and the part of it in which the background is on the device.
    pub(super) occupancy: Occupancy,
    /// Number of samples that the background job has processed. A part of an iteration counts.
    pub(super) background_samples: f64,
}

impl RankProgress {
    /// Returns the progress since `earlier`.
    fn since(&self, earlier: &Self) -> Self {
        Self {
            occupancy: self.occupancy.since(&earlier.occupancy),
            background_samples: self.background_samples - earlier.background_samples,
        }
    }

    fn plus(&self, more: &Self) -> Self {
        Self {
            occupancy: self.occupancy + more.occupancy,
            background_samples: self.background_samples + more.background_samples,
        }
    }
}

/// The foreground and the background job of the rank that is simulated for a class. They offer
/// tasklets to its driver and record when they run.
pub(super) struct RankJobs<'a> {
    class: &'a RankClass<'a>,
    foreground: ForegroundHost<'a>,
    background: Option<BackgroundHost>,
    /// The rank's parts of distributed background jobs.
    members: Vec<Member>,
    /// Distributed background jobs whose collectives have ended on the rank, until reported.
    ended_collectives: Vec<usize>,
    /// Number of foreground steps, of all iterations, that were not handed to the driver yet.
    to_offer: u64,
    iterations: u32,
    warm_up: u32,
    /// Progress at the end of each iteration. On a rank without steps, only at the end of the other
    /// ranks' warm-up.
    progress: Vec<RankProgress>,
    /// Start of the latest iteration.
    begin: Duration,
    /// End of each iteration.
    ends: Vec<Duration>,
    /// Latest interval of each step of the iteration.
    spans: Vec<Span>,
    /// End of the latest compute tasklet, of the foreground and of the background.
    computed: [Duration; 2],
    /// End of the latest communication.
    communication_end: Duration,
    /// For each step of the iteration, the time from the end of the previous communication to the
    /// arrival of the last partner.
    partners_after: Vec<Duration>,
    /// Arrivals at collectives, and ends of their transfers, that were not reported yet.
    exchanges: Vec<Exchange>,
    /// Intervals of the background since the iteration began, with its steps, if a timeline is
    /// requested.
    background_spans: Option<Vec<(Span, Range<usize>)>>,
    /// Intervals of all steps of all iterations, by step of the iteration, if they are kept.
    step_log: Option<Vec<(usize, Span)>>,
    /// The same for distributed background jobs: interval, job, label, and whether it is a
    /// collective.
    member_spans: Vec<(Span, usize, String, bool)>,
}

impl<'a> RankJobs<'a> {
    /// Creates the jobs of a class of ranks before their first iteration.
    pub(super) fn new(class: &'a RankClass<'a>, options: &'a SimulateOptions) -> Self {
        let (policy, parameters) = (&options.policy, &options.device);
        let background = |job: &'a BackgroundCosts| BackgroundHost::new(job.iteration(), policy, parameters);
        // The foreground alone has classes with members too, but no background jobs.
        let member_of = |&(job, member): &(usize, usize)| {
            let of_job = options.distributed.get(job)?;
            let work = MemberWork::new(of_job, &of_job.classes[member], policy, parameters);
            Some(Member::new(job, Arc::new(work)))
        };
        let iteration = &class.steps.iteration;
        let count = iteration.steps.len();
        let iterations = options.iterations();
        Self {
            class,
            foreground: ForegroundHost::new(iteration, policy, parameters).with_external_partners(),
            background: options.background_beside(class.memory_bytes()).map(background),
            members: class.members.iter().filter_map(member_of).collect(),
            ended_collectives: Vec::new(),
            to_offer: u64::from(iterations) * count as u64,
            iterations,
            warm_up: options.warm_up(),
            progress: Vec::new(),
            begin: Duration::ZERO,
            ends: Vec::new(),
            spans: vec![Span::default(); count],
            computed: [Duration::ZERO; 2],
            communication_end: Duration::ZERO,
            partners_after: vec![Duration::ZERO; count],
            exchanges: Vec::new(),
            background_spans: options.timeline.then(Vec::new),
            step_log: None,
            member_spans: Vec::new(),
        }
    }

    /// Returns the rank's part of a distributed background job, by the job's index; `None` if the
    /// rank is no member.
    pub(super) fn member_mut(&mut self, job: usize) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.job == job)
    }

    /// Returns the distributed background jobs whose collectives have ended on the rank since the
    /// last call.
    pub(super) fn ended_collectives(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.ended_collectives)
    }

    /// Returns the collectives of distributed background jobs at which the rank has arrived since
    /// the last call, with the index of the job.
    pub(super) fn arrivals(&mut self) -> Vec<(usize, Arrival)> {
        let arrive = |member: &mut Member| Some((member.job, member.arrive()?));
        self.members.iter_mut().filter_map(arrive).collect()
    }

    /// Returns the samples of a distributed background job that the rank has trained on.
    pub(super) fn samples_of(&self, job: usize) -> f64 {
        self.members.iter().find(|member| member.job == job).map_or(0.0, Member::samples)
    }

    /// Records the end of a tasklet of a distributed background job.
    fn finish_member(&mut self, tasklet: TaskletId, span: Span) {
        let Some(member) = self.members.iter_mut().find(|member| member.owns(tasklet)) else { return };
        let (label, is_collective) = member.finish(tasklet);
        if is_collective {
            self.ended_collectives.push(member.job);
        }
        if self.background_spans.is_some() {
            self.member_spans.push((span, member.job, label, is_collective));
        }
    }

    /// Keeps the intervals of all steps from now on.
    pub(super) fn keep_steps(&mut self) {
        self.step_log = Some(Vec::new());
    }

    /// Returns the kept intervals, in the order of their ends, each with its step in the program.
    pub(super) fn kept_steps(&self) -> impl Iterator<Item = (StepId, Span)> {
        let origins = &self.class.steps.origins;
        self.step_log.iter().flatten().map(|&(step, span)| (StepId(origins[step].0), span))
    }

    /// Adds an iteration to those that the rank runs.
    pub(super) fn add_iteration(&mut self) {
        self.iterations += 1;
        self.to_offer += self.spans.len() as u64;
    }

    /// Ends the measurement after the given number of iterations, which have ended, instead of all.
    pub(super) fn measure_until(&mut self, iterations: u32) {
        self.iterations = iterations;
    }

    /// Whether the rank has no steps, so that only the background runs on it.
    pub(super) fn is_without_steps(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns whether the foreground has ended `iterations` runs of the program. Always true for a
    /// rank without steps.
    pub(super) fn has_ended(&self, iterations: u32) -> bool {
        self.is_without_steps() || self.ends.len() >= iterations as usize
    }

    /// Returns the virtual time of the end of run number `iterations` of the program; `None` before
    /// it, for number 0 and on a rank without steps.
    pub(super) fn end_of(&self, iterations: u32) -> Option<Duration> {
        self.ends.get((iterations as usize).checked_sub(1)?).copied()
    }

    /// Returns the time from the end of the previous run of the program to the end of run number
    /// `iterations`; `None` before it and for numbers 0 and 1.
    pub(super) fn duration_of(&self, iterations: u32) -> Option<Duration> {
        let before = self.end_of(iterations.checked_sub(1)?)?;
        Some(self.end_of(iterations)?.saturating_sub(before))
    }

    /// Records the end of run number `iterations` if it has not ended, with the times of the run
    /// before it.
    pub(super) fn repeat_until(&mut self, iterations: u32) {
        if self.has_ended(iterations) {
            return;
        }
        if let ([.., begin, end], [.., before, after]) = (&self.ends[..], &self.progress[..]) {
            let (end, progress) = (*end + end.saturating_sub(*begin), after.plus(&after.since(before)));
            self.ends.push(end);
            self.progress.push(progress);
        }
    }

    /// Records the progress of a rank without steps at the end of the other ranks' warm-up. Has no
    /// effect on other ranks.
    pub(super) fn end_warm_up(&mut self, driver: &Driver<VirtualDevice>) {
        if self.is_without_steps() {
            self.progress.push(self.current_progress(driver));
        }
    }

    fn current_progress(&self, driver: &Driver<VirtualDevice>) -> RankProgress {
        let copy = self.background.as_ref().map_or(0.0, BackgroundHost::samples);
        let background_samples = copy + self.members.iter().map(Member::samples).sum::<f64>();
        RankProgress { occupancy: *driver.device().occupancy(), background_samples }
    }

    /// Returns the rank's arrivals at collectives and the ends of its own transfers since the last
    /// call, oldest first.
    pub(super) fn exchanges(&mut self) -> impl Iterator<Item = (CollectiveId, Exchange)> {
        let (steps, origins) = (self.spans.len().max(1) as u64, &self.class.steps.origins);
        self.exchanges.drain(..).filter_map(move |exchange| {
            let step = (exchange.tasklet.number % steps) as usize;
            Some((origins.get(step)?.1?, exchange))
        })
    }

    /// Returns the step of the iteration that a tasklet is.
    fn step(&self, tasklet: TaskletId) -> usize {
        // A device without steps has no tasklets.
        (tasklet.number % self.spans.len().max(1) as u64) as usize
    }

    /// Records that the collective of a tasklet begins to transfer at time `now`. The last of the
    /// rank's partners arrived at `others_arrived`.
    pub(super) fn begin_collective(&mut self, tasklet: TaskletId, now: Duration, others_arrived: Duration) {
        let step = self.step(tasklet);
        self.spans[step].start = now;
        self.partners_after[step] = others_arrived.saturating_sub(self.communication_end);
    }

    /// Returns the virtual time of the end of each run of the program so far; empty on a rank
    /// without steps.
    pub(super) fn ends(&self) -> &[Duration] {
        &self.ends
    }

    /// Returns for each step of the last run of the program the time from the end of the rank's
    /// previous communication to the arrival of its last partner; 0 for compute steps.
    pub(super) fn partners_after(&self) -> &[Duration] {
        &self.partners_after
    }

    /// Returns the device time and background samples from the rank's own end of the warm-up to its
    /// own end of the last iteration.
    pub(super) fn progress(&self, driver: &Driver<VirtualDevice>) -> RankProgress {
        let at = |iterations: u32| self.progress.get((iterations as usize).checked_sub(1)?).copied();
        let (before, after) =
            if self.is_without_steps() { (at(1), None) } else { (at(self.warm_up), at(self.iterations)) };
        after.unwrap_or_else(|| self.current_progress(driver)).since(&before.unwrap_or_default())
    }

    /// Returns the virtual time of the start of the latest run of the program.
    pub(super) fn begin(&self) -> Duration {
        self.begin
    }

    /// Returns the latest interval of each step of a program. A step without duration runs as soon
    /// as the steps before it have ended.
    fn program_spans(&self, program: &RankProgram) -> Vec<Span> {
        let nothing = Span { start: self.begin, end: self.begin };
        let mut spans = vec![nothing; program.steps.len()];
        let mut timed = self.class.steps.origins.iter().zip(&self.spans).peekable();
        let mut lanes = [self.begin; 2];
        for (index, step) in program.steps.iter().enumerate() {
            let lane = step.lane() as usize;
            spans[index] = if let Some((_, &span)) = timed.next_if(|((origin, _), _)| *origin == index) {
                span
            } else {
                let ended = step.after.iter().map(|after| spans[after.0].end);
                let at = ended.fold(lanes[lane], Duration::max);
                Span { start: at, end: at }
            };
            lanes[lane] = spans[index].end;
        }
        spans
    }

    /// Returns the interval of each step of a program of the class in its last run, and the
    /// duration of that run.
    pub(super) fn last_iteration(&self, program: &RankProgram) -> (Vec<Span>, Duration) {
        let period = self.duration_of(u32::try_from(self.ends.len()).unwrap_or(u32::MAX));
        (self.program_spans(program), period.unwrap_or_default())
    }

    /// Returns each rank of the class with its timeline of the last run of the program, relative to
    /// `origin`: all steps in the program's order, then the background.
    pub(super) fn timelines(
        &self,
        program: &Program,
        options: &SimulateOptions,
        origin: Duration,
    ) -> impl Iterator<Item = (usize, Vec<TimelineEvent>)> {
        self.class.programs.iter().flat_map(move |rank_program| {
            let events = self.timeline(program, rank_program, options, origin);
            let ranks = rank_program.represented_ranks.iter();
            ranks.filter(|rank| self.class.represented_ranks.contains(rank)).map(move |&rank| {
                let of_rank = events.iter().cloned().map(|event| TimelineEvent { rank, ..event });
                (rank, of_rank.collect())
            })
        })
    }

    fn timeline(
        &self,
        program: &Program,
        of_rank: &RankProgram,
        options: &SimulateOptions,
        origin: Duration,
    ) -> Vec<TimelineEvent> {
        let event = |work, step, label, span: Span| {
            // The device may begin before the host has observed the end of the previous iteration.
            let start = span.start.max(origin);
            TimelineEvent {
                rank: of_rank.rank,
                work,
                step,
                label,
                start: start.saturating_sub(origin),
                duration: span.end.saturating_sub(start),
            }
        };
        let steps =
            of_rank.steps.iter().zip(self.program_spans(of_rank)).enumerate().map(|(index, (step, span))| {
                let work = match step.op {
                    Op::Collective(id) => {
                        let collective = &program.collectives[id.0];
                        let ranks = collective.ranks.clone();
                        TimelineWork::Communication { bytes: collective.bytes(), ranks }
                    }
                    _ => TimelineWork::Compute,
                };
                event(work, Some(StepId(index)), step.label.clone(), span)
            });
        let background = options.background.iter().flat_map(|job| {
            self.background_spans.iter().flatten().map(|(span, range)| {
                let label = match &job.iteration().steps[range.clone()] {
                    [] => String::new(),
                    [only] => only.name.clone(),
                    [first, .., last] => format!("{} to {}", first.name, last.name),
                };
                let mut layers = job.step_layers()[range.clone()].to_vec();
                layers.dedup();
                event(TimelineWork::Background { job: job.name().into(), layers }, None, label, *span)
            })
        });
        let members = self.member_spans.iter().map(|(span, job, label, is_collective)| {
            let job = options.distributed[*job].name().into();
            let work = if *is_collective {
                TimelineWork::BackgroundCommunication { job }
            } else {
                let layer = label.split_once(' ').map(|(_, layer)| layer.into());
                TimelineWork::Background { job, layers: layer.into_iter().collect() }
            };
            event(work, None, label.clone(), *span)
        });
        steps.chain(background).chain(members).collect()
    }
}

impl Host<VirtualDevice> for RankJobs<'_> {
    type Error = Error;

    fn offer(&mut self) -> Option<(Tasklet, VirtualWork)> {
        let foreground = if self.to_offer > 0 { self.foreground.offer() } else { None };
        if foreground.is_some() {
            self.to_offer -= 1;
            return foreground;
        }
        let background = self.background.as_mut().and_then(BackgroundHost::offer);
        background.or_else(|| self.members.iter_mut().find_map(Member::offer))
    }

    fn finish(&mut self, finished: Finished, driver: &mut Driver<VirtualDevice>) -> Result<(), Error> {
        let now = driver.device().now();
        let of_foreground = finished.tasklet.job.is_foreground();
        let computed = &mut self.computed[usize::from(!of_foreground)];
        // The host may observe one end late and the next one in time.
        let span = Span { start: now.saturating_sub(finished.took).max(*computed), end: now };
        if !of_foreground && finished.tasklet.job != JobId::BACKGROUND {
            let own = Span { start: now.saturating_sub(finished.took), end: now };
            self.finish_member(finished.tasklet, own);
            return Ok(());
        }
        if !of_foreground {
            *computed = now;
            if let Some(background) = &mut self.background {
                background.finish(finished.tasklet);
                let steps = background.steps(finished.tasklet);
                self.background_spans.iter_mut().for_each(|spans| spans.push((span, steps.clone())));
            }
            return Ok(());
        }
        let step = self.step(finished.tasklet);
        let ended = self.foreground.iterations_ended();
        self.foreground.finish();
        if self.class.steps.origins[step].1.is_some() {
            // It began when its partners had arrived, but the host may have observed the end of the
            // previous communication only later.
            let start = self.spans[step].start.max(self.communication_end);
            self.spans[step] = Span { start, end: now };
            self.communication_end = now;
        } else {
            self.spans[step] = span;
            self.computed[0] = now;
        }
        self.step_log.iter_mut().for_each(|log| log.push((step, self.spans[step])));
        if self.foreground.iterations_ended() > ended {
            self.ends.push(now);
            self.progress.push(self.current_progress(driver));
            if self.foreground.iterations_ended() < u64::from(self.iterations) {
                self.begin = now;
                self.background_spans.iter_mut().for_each(Vec::clear);
                self.member_spans.clear();
            }
        }
        Ok(())
    }

    fn caught_up(&mut self, driver: &mut Driver<VirtualDevice>) -> Result<(), Error> {
        self.exchanges.extend(std::iter::from_fn(|| driver.device_mut().exchange()));
        Ok(())
    }

    /// `SimulatedRanks` decides when to stop.
    fn is_done(&self) -> bool {
        false
    }
}

impl From<DriverError<gpu_mux::Error>> for Error {
    fn from(error: DriverError<gpu_mux::Error>) -> Self {
        gpu_mux::Error::from(error).into()
    }
}
