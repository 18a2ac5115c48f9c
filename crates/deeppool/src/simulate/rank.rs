use std::time::Duration;

use gpu_mux::{Span, VirtualDriver};

use super::TimelineEvent;
use crate::Error;
use crate::costs::Costs;
use crate::program::{Lane, RankProgram};

/// One rank in virtual time.
pub(super) struct Rank<'a> {
    program: &'a RankProgram,
    /// By step: how long it takes on the compute lane.
    takes: Vec<Duration>,
    device: VirtualDriver,
    /// When this iteration began.
    begin: Duration,
    /// The first step that has not run in this iteration.
    next: usize,
    /// By step: when it ran in this iteration.
    spans: Vec<Span>,
    communication_free: Duration,
}

impl<'a> Rank<'a> {
    pub(super) fn new(
        program: &'a RankProgram,
        costs: &Costs<'_>,
        device: VirtualDriver,
    ) -> Result<Self, Error> {
        let takes: Result<Vec<Duration>, Error> =
            program.steps.iter().map(|step| costs.compute(&step.op)).collect();
        let nothing = Span { start: Duration::ZERO, end: Duration::ZERO };
        Ok(Self {
            program,
            takes: takes?,
            device,
            begin: Duration::ZERO,
            next: program.steps.len(),
            spans: vec![nothing; program.steps.len()],
            communication_free: Duration::ZERO,
        })
    }

    pub(super) fn begin_iteration(&mut self) {
        self.begin = self.iteration_end();
        self.next = 0;
    }

    /// When everything that has run in this iteration is finished.
    pub(super) fn iteration_end(&self) -> Duration {
        self.spans[..self.next].iter().map(|span| span.end).fold(self.begin, Duration::max)
    }

    /// Runs the steps up to the next collective, and says from when on this rank could take part in it.
    pub(super) fn arrive_at_collective(&mut self) -> Result<Duration, Error> {
        self.run_compute()?;
        Ok(self.ready(self.next).max(self.communication_free))
    }

    /// The collective that this rank has arrived at ran like this.
    pub(super) fn finish_collective(&mut self, start: Duration, end: Duration) {
        self.spans[self.next] = Span { start, end };
        self.communication_free = end;
        self.next += 1;
    }

    /// Runs the steps up to the next collective, or the end.
    pub(super) fn run_compute(&mut self) -> Result<(), Error> {
        while let Some(step) = self.program.steps.get(self.next) {
            if step.lane() == Lane::Communication {
                break;
            }
            self.spans[self.next] = self.device.foreground(self.ready(self.next), self.takes[self.next])?;
            self.next += 1;
        }
        Ok(())
    }

    /// When the steps are finished that a step depends on.
    fn ready(&self, step: usize) -> Duration {
        let after = self.program.steps.get(step).map_or(&[][..], |step| &step.after);
        after.iter().map(|step| self.spans[step.0].end).fold(self.begin, Duration::max)
    }

    pub(super) fn idle_until(&mut self, until: Duration) -> Result<(), Error> {
        Ok(self.device.idle_until(until)?)
    }

    pub(super) fn device(&self) -> &VirtualDriver {
        &self.device
    }

    /// The steps of this iteration in the order in which they started; those that started at the same time in the
    /// program's order.
    pub(super) fn started(&self) -> Vec<usize> {
        let mut steps: Vec<usize> = (0..self.next).collect();
        steps.sort_by_key(|&step| self.spans[step].start);
        steps
    }

    /// When this iteration began.
    pub(super) fn begin(&self) -> Duration {
        self.begin
    }

    /// What ran in this iteration, by the time since `origin`; steps that take no time are left out.
    pub(super) fn timeline(&self, origin: Duration) -> Vec<TimelineEvent> {
        let rank = self.program.rank;
        let steps = self.program.steps.iter().zip(&self.spans).map(|(step, span)| TimelineEvent {
            rank,
            lane: match step.lane() {
                Lane::Compute => "compute",
                Lane::Communication => "communication",
            },
            label: step.label.clone(),
            start: span.start.saturating_sub(origin),
            duration: span.end.saturating_sub(span.start),
        });
        let background =
            self.device.background_spans().iter().filter(|span| span.start >= self.begin).map(|span| {
                TimelineEvent {
                    rank,
                    lane: "background",
                    label: "background".into(),
                    start: span.start.saturating_sub(origin),
                    duration: span.end.saturating_sub(span.start),
                }
            });
        steps.chain(background).filter(|event| !event.duration.is_zero()).collect()
    }
}
