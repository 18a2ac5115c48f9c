//! The two jobs of a rank: what they offer to its device, and what they have done there.

use std::ops::Range;
use std::time::Duration;

use gpu_mux::{
    BackgroundHost, Device, Driver, DriverError, Exchange, Finished, ForegroundHost, Host, Occupancy,
    Tasklet, TaskletId, VirtualDevice, VirtualWork,
};

use super::steps::RankClass;
use super::{BackgroundCosts, SimulateOptions};
use crate::Error;
use crate::program::{CollectiveId, Op, Program, RankProgram, StepId};
use crate::timeline::{TimelineEvent, TimelineWork};

/// A stretch of virtual time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Span {
    pub(super) start: Duration,
    pub(super) end: Duration,
}

/// What a rank has done so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Figures {
    /// Where the time of the device went.
    pub(super) occupancy: Occupancy,
    /// Samples that the background has trained on.
    pub(super) background_samples: f64,
}

/// The hosts of the foreground and the background.
pub(super) struct RankJobs<'a> {
    class: &'a RankClass<'a>,
    foreground: ForegroundHost<'a>,
    background: Option<BackgroundHost>,
    /// Steps of all iterations that have not been handed to the driver yet.
    to_offer: u64,
    iterations: u64,
    warm_up: u64,
    /// When the rank had ended the warm-up, and the last iteration.
    figures: [Option<Figures>; 2],
    /// When the last iteration that has begun did so.
    begin: Duration,
    /// When each iteration ended.
    ends: Vec<Duration>,
    /// By step of the iteration: when it ran last.
    spans: Vec<Span>,
    /// When the last compute tasklet ended, of the foreground and of the background.
    computed: [Duration; 2],
    /// When the last communication ended.
    communication_end: Duration,
    /// By step of the iteration: how long after the communication before it the last of its partners arrived.
    partners_after: Vec<Duration>,
    /// Arrivals at collectives, and ends of their transfers, that nobody knows yet.
    exchanges: Vec<Exchange>,
    /// What the background ran since the iteration began, by steps of its own, where a timeline is wanted.
    background_spans: Option<Vec<(Span, Range<usize>)>>,
}

impl<'a> RankJobs<'a> {
    pub(super) fn new(class: &'a RankClass<'a>, options: &'a SimulateOptions) -> Self {
        let (policy, parameters) = (&options.policy, &options.device);
        let background = |job: &'a BackgroundCosts| BackgroundHost::new(job.iteration(), policy, parameters);
        let iteration = &class.steps.iteration;
        let count = iteration.steps.len();
        let iterations = u64::from(options.iterations());
        Self {
            class,
            foreground: ForegroundHost::new(iteration, policy, parameters).with_external_partners(),
            background: options.background.as_ref().map(background),
            to_offer: iterations * count as u64,
            iterations,
            warm_up: u64::from(options.warm_up()),
            figures: [None; 2],
            begin: Duration::ZERO,
            ends: Vec::new(),
            spans: vec![Span::default(); count],
            computed: [Duration::ZERO; 2],
            communication_end: Duration::ZERO,
            partners_after: vec![Duration::ZERO; count],
            exchanges: Vec::new(),
            background_spans: options.timeline.then(Vec::new),
        }
    }

    /// Whether so many iterations have ended. Without steps there is nothing to wait for.
    pub(super) fn has_ended(&self, iterations: u32) -> bool {
        self.spans.is_empty() || self.foreground.iterations_ended() >= u64::from(iterations)
    }

    /// For a rank without steps its figures begin here.
    pub(super) fn end_warm_up(&mut self, driver: &Driver<VirtualDevice>) {
        if self.spans.is_empty() {
            self.figures[0] = Some(self.figures_now(driver));
        }
    }

    fn take_figures(&mut self, driver: &Driver<VirtualDevice>) {
        let ended = self.foreground.iterations_ended();
        for (at, iterations) in [self.warm_up, self.iterations].into_iter().enumerate() {
            if ended == iterations {
                self.figures[at] = Some(self.figures_now(driver));
            }
        }
    }

    fn figures_now(&self, driver: &Driver<VirtualDevice>) -> Figures {
        let background_samples = self.background.as_ref().map_or(0.0, BackgroundHost::samples);
        Figures { occupancy: *driver.device().occupancy(), background_samples }
    }

    /// Communication that waits for its partners, with its collective, oldest first; each once.
    pub(super) fn exchanges(&mut self) -> impl Iterator<Item = (CollectiveId, Exchange)> {
        let (steps, origins) = (self.spans.len().max(1) as u64, &self.class.steps.origins);
        self.exchanges.drain(..).filter_map(move |exchange| {
            let step = (exchange.tasklet.number % steps) as usize;
            Some((origins.get(step)?.1?, exchange))
        })
    }

    /// The step of the iteration that a tasklet is.
    fn step(&self, tasklet: TaskletId) -> usize {
        // Nothing is in flight on a device without steps.
        (tasklet.number % self.spans.len().max(1) as u64) as usize
    }

    /// A collective begins; the last of the others arrived at `others_arrived`.
    pub(super) fn begin_collective(&mut self, tasklet: TaskletId, now: Duration, others_arrived: Duration) {
        let step = self.step(tasklet);
        self.spans[step].start = now;
        self.partners_after[step] = others_arrived.saturating_sub(self.communication_end);
    }

    /// When each iteration so far ended; none on a rank without steps.
    pub(super) fn ends(&self) -> &[Duration] {
        &self.ends
    }

    /// How long after the communication before it the partners of each step arrived, in the last iteration.
    pub(super) fn partners_after(&self) -> &[Duration] {
        &self.partners_after
    }

    /// What the rank has done in its iterations after the warm-up, from the end of one to the end of another.
    pub(super) fn figures(&self, driver: &Driver<VirtualDevice>) -> Figures {
        let [before, after] = self.figures;
        let (before, after) = (before.unwrap_or_default(), after.unwrap_or_else(|| self.figures_now(driver)));
        Figures {
            occupancy: after.occupancy.since(&before.occupancy),
            background_samples: after.background_samples - before.background_samples,
        }
    }

    /// When the last iteration began.
    pub(super) fn begin(&self) -> Duration {
        self.begin
    }

    /// By step of a program: when it ran in the last iteration. One that takes no time ran as soon as the steps before it
    /// had ended.
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

    /// What ran in the last iteration on each rank that it stands for, by the time since `origin`: all its steps in the
    /// program's order, then the background.
    pub(super) fn timelines(
        &self,
        program: &Program,
        background: Option<&BackgroundCosts>,
        origin: Duration,
    ) -> impl Iterator<Item = (usize, Vec<TimelineEvent>)> {
        self.class.programs.iter().flat_map(move |rank_program| {
            let events = self.timeline(program, rank_program, background, origin);
            rank_program.stands_for.iter().map(move |&rank| {
                let of_rank = events.iter().cloned().map(|event| TimelineEvent { rank, ..event });
                (rank, of_rank.collect())
            })
        })
    }

    fn timeline(
        &self,
        program: &Program,
        of_rank: &RankProgram,
        background: Option<&BackgroundCosts>,
        origin: Duration,
    ) -> Vec<TimelineEvent> {
        let event = |work, step, label, span: Span| {
            // The device may begin before the host has seen the end of the iteration before.
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
        let background = background.into_iter().flat_map(|job| {
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
        steps.chain(background).collect()
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
        self.background.as_mut().and_then(BackgroundHost::offer)
    }

    fn finish(&mut self, finished: Finished, driver: &mut Driver<VirtualDevice>) -> Result<(), Error> {
        let now = driver.device().now();
        let of_foreground = finished.tasklet.job.is_foreground();
        let computed = &mut self.computed[usize::from(!of_foreground)];
        // The host may see an end late, and the next one's in time.
        let span = Span { start: now.saturating_sub(finished.took).max(*computed), end: now };
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
            // It began when its partners had arrived, but the host may have seen the end of the one before it only later.
            let start = self.spans[step].start.max(self.communication_end);
            self.spans[step] = Span { start, end: now };
            self.communication_end = now;
        } else {
            self.spans[step] = span;
            self.computed[0] = now;
        }
        if self.foreground.iterations_ended() > ended {
            self.ends.push(now);
            self.take_figures(driver);
            if self.foreground.iterations_ended() < self.iterations {
                self.begin = now;
                self.background_spans.iter_mut().for_each(Vec::clear);
            }
        }
        Ok(())
    }

    fn caught_up(&mut self, driver: &mut Driver<VirtualDevice>) -> Result<(), Error> {
        self.exchanges.extend(std::iter::from_fn(|| driver.device_mut().exchange()));
        Ok(())
    }

    /// The machine says until when.
    fn is_done(&self) -> bool {
        false
    }
}

impl From<DriverError<gpu_mux::Error>> for Error {
    fn from(error: DriverError<gpu_mux::Error>) -> Self {
        gpu_mux::Error::from(error).into()
    }
}
