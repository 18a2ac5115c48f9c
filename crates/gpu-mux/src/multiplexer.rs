use std::num::NonZeroU32;
use std::time::Duration;

use crate::background::Background;
use crate::feedback::Slowdown;
use crate::gaps::GapFitting;
use crate::in_order::InOrder;
use crate::policy::{Ahead, BesideCommunication, Merging};
use crate::queue::Queue;
use crate::running::RunningRule;
use crate::turn::Turn;
use crate::{Error, JobId, Lane, Policy, Tasklet, TaskletId};

/// What a driver tells the [`Multiplexer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MuxEvent {
    /// A tasklet may be launched: everything it depends on has finished, or has been launched where the device keeps
    /// the order, or is what it comes [`after`](Tasklet::after).
    Ready(Tasklet),
    /// A tasklet that was launched has finished.
    Finished {
        /// Which one.
        tasklet: TaskletId,
        /// How long it occupied its lane.
        took: Duration,
    },
    /// Time has passed and nothing else has happened: the answer to [`MuxCommand::WakeAt`].
    Tick,
    /// A background job is paused: what is in flight finishes, and nothing more of it is launched.
    Pause(JobId),
    /// A background job is resumed. It does not catch up on what the others had meanwhile.
    Resume(JobId),
    /// A background job is drained: what waits is still launched, and nothing new is accepted.
    Drain(JobId),
    /// A background job is given up: what waits is dropped, and what is in flight counts no more, whether it is ever
    /// reported as finished or not. Nothing of it is accepted from then on.
    Failed(JobId),
    /// As [`Failed`](Self::Failed), and the multiplexer knows nothing more of the job, so that another one may have its
    /// id. What was in flight must not be reported as finished.
    Forget(JobId),
    /// A background job gets a share of the background's time in proportion to this; 1 by default.
    Weigh(JobId, NonZeroU32),
}

/// What the [`Multiplexer`] tells its driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MuxCommand {
    /// Launch this tasklet now.
    Launch(TaskletId),
    /// Send [`MuxEvent::Tick`] at this time, counted from the driver's epoch, unless another event comes first: then
    /// it is asked for again if it is still needed. A tick may come early or late.
    WakeAt(Duration),
}

/// Decides what one device runs next: the policy, without a clock, a thread or a device.
///
/// A driver feeds it events, each with its time since an epoch of the driver's choice, and then carries out its
/// commands until there is none. All events of one instant should go in before the first command comes out: a
/// decision is made when it is asked for, so that a foreground tasklet that becomes ready just when the one before it
/// finishes leaves no opening for the background.
///
/// The rules, with the limits set by [`Policy`]:
/// - every tasklet is launched once, and each job's in the order of their numbers;
/// - the foreground goes first, as soon as it is ready, as far as it may be launched ahead;
/// - background is launched while no more of it is in flight than may be, no second tasklet that is longer than
///   its bound is, and no rule withholds it: for compute or communication of the foreground, for its slow-down, for
///   the tasklet that it is at, or because the gap is too short;
/// - background jobs share by their weights;
/// - the same events, asked for commands at the same points, give the same commands.
///
/// A background job that stalls keeps its place among those in flight, and delays the background only; one that is
/// reported as [failed](MuxEvent::Failed) loses it.
///
/// Handling an event and asking for a command are O(b) for b background jobs, and O(log n) more for n tasklets in
/// flight. Nothing is allocated once the queues have reached their largest length and every job and
/// [site](Tasklet::site) has come up.
///
/// ```
/// use gpu_mux::{MuxCommand, MuxEvent, JobId, Multiplexer, Policy, Tasklet};
/// use std::time::Duration;
///
/// let mut mux = Multiplexer::new(Policy::default());
/// let (layer, piece) = (Tasklet::new(JobId::FOREGROUND, 0), Tasklet::new(JobId::BACKGROUND, 0));
/// mux.handle(Duration::ZERO, MuxEvent::Ready(piece))?;
/// mux.handle(Duration::ZERO, MuxEvent::Ready(layer))?;
/// assert_eq!(mux.poll_command(), Some(MuxCommand::Launch(layer.id)));
/// assert_eq!(mux.poll_command(), None, "the background waits while the foreground runs");
///
/// let took = Duration::from_micros(80);
/// mux.handle(took, MuxEvent::Finished { tasklet: layer.id, took })?;
/// assert_eq!(mux.poll_command(), Some(MuxCommand::Launch(piece.id)));
/// # Ok::<(), gpu_mux::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Multiplexer {
    policy: Policy,
    now: Duration,
    foreground: Queue,
    /// What of it is in flight, in the order of the launches.
    launched: InOrder,
    background: Background,
    slowdown: Option<Slowdown>,
    running: Option<RunningRule>,
    gaps: Option<GapFitting>,
    /// The foreground computed when it was last looked at.
    computing: bool,
    /// When the foreground's last compute tasklet finished, and where.
    quiet: (Duration, Option<u32>),
    /// Foreground communication in flight that holds the background back.
    withholding: usize,
    /// The wake-up that the driver has been asked for since the last event.
    wake: Option<Duration>,
    over_long: u64,
}

impl Multiplexer {
    /// An idle multiplexer at the driver's epoch.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            now: Duration::ZERO,
            foreground: Queue::default(),
            launched: InOrder::new(match policy.foreground_ahead_counts {
                Ahead::InOrder(merging) => merging,
                Ahead::Compute => Merging::default(),
            }),
            background: Background::new(policy.background_piece),
            slowdown: policy.feedback.map(Slowdown::new),
            running: policy.running.map(RunningRule::new),
            gaps: policy.gaps.as_ref().map(GapFitting::new),
            computing: false,
            quiet: (Duration::ZERO, None),
            withholding: 0,
            wake: None,
            over_long: 0,
        }
    }

    /// The rules.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Handles what happened at `now`, counted from the driver's epoch.
    ///
    /// An event that is refused changes nothing: [`Error::TimeWentBack`] when `now` is before the last event,
    /// [`Error::OutOfOrder`] for a tasklet whose number is not larger than its job's last, [`Error::Closed`] for one of
    /// a job that takes nothing new, [`Error::NotInFlight`] for the end of a tasklet that was not launched or has ended
    /// before, [`Error::NotBackground`] for holding back the foreground.
    pub fn handle(&mut self, now: Duration, event: MuxEvent) -> Result<(), Error> {
        if now < self.now {
            return Err(Error::TimeWentBack { now, last: self.now });
        }
        match event {
            MuxEvent::Ready(tasklet) if tasklet.id.job.is_foreground() => {
                self.foreground.push(tasklet)?;
            }
            MuxEvent::Ready(tasklet) => self.background.push(now, tasklet)?,
            MuxEvent::Finished { tasklet, took } if tasklet.job.is_foreground() => {
                self.foreground_finished(now, tasklet, took)?;
            }
            MuxEvent::Finished { tasklet, took } => {
                if self.background.finish(now, tasklet, took, !self.computing)? {
                    self.over_long +=
                        u64::from(self.policy.background_piece.is_some_and(|piece| took > piece));
                    self.background_ended(now, 1);
                }
            }
            MuxEvent::Tick => {}
            MuxEvent::Pause(job) => self.background.pause(background(job, "a pause")?),
            MuxEvent::Resume(job) => self.background.resume(background(job, "going on")?, now),
            MuxEvent::Drain(job) => self.background.drain(background(job, "an end")?),
            MuxEvent::Weigh(job, weight) => self.background.weigh(background(job, "a weight")?, weight),
            MuxEvent::Failed(job) => {
                let lost = self.background.fail(background(job, "giving up")?, now);
                self.background_ended(now, lost);
            }
            MuxEvent::Forget(job) => {
                let lost = self.background.forget_job(background(job, "giving up")?, now);
                self.background_ended(now, lost);
            }
        }
        self.now = now;
        self.wake = None;
        Ok(())
    }

    /// The next thing to do as of the last event's time; `None` when there is nothing more until another event.
    pub fn poll_command(&mut self) -> Option<MuxCommand> {
        if self.foreground_may_launch() {
            return self.launch_foreground().map(MuxCommand::Launch);
        }
        if self.computing && !self.foreground.computes() {
            self.computing = false;
            let (since, site) = self.quiet;
            self.gap_begins(since, site);
        }
        let until = match self.background_turn()? {
            Turn::Launch(place) => return self.background.launch(place, self.now).map(MuxCommand::Launch),
            Turn::NotBefore(until) => until?,
        };
        // Asked for once: a driver drains commands until there is none.
        (self.wake != Some(until)).then(|| {
            self.wake = Some(until);
            MuxCommand::WakeAt(until)
        })
    }

    /// Background tasklets so far that took longer than [`Policy::background_piece`]. Each may have made the
    /// foreground wait for longer than the policy promises: cut the background finer.
    #[must_use]
    pub fn over_long(&self) -> u64 {
        self.over_long
    }

    /// Tasklets of a job that are in flight: zero for a job that has been paused once what was in flight has finished.
    #[must_use]
    pub fn in_flight(&self, job: JobId) -> usize {
        if job.is_foreground() { self.foreground.in_flight() } else { self.background.in_flight_of(job) }
    }

    /// Whether nothing of a job waits or is in flight: for one that is drained, that it is done.
    #[must_use]
    pub fn is_empty(&self, job: JobId) -> bool {
        if job.is_foreground() { self.foreground.is_empty() } else { self.background.is_empty(job) }
    }

    /// The foreground's present slow-down by [`Policy::feedback`], 1 for none; `None` without that rule.
    #[must_use]
    pub fn foreground_slowdown(&self) -> Option<f64> {
        self.slowdown.as_ref().map(Slowdown::average)
    }

    fn foreground_finished(&mut self, now: Duration, id: TaskletId, took: Duration) -> Result<(), Error> {
        let finished = self.foreground.finish(id)?;
        self.launched.finish(id);
        while let Some((tasklet, took)) = self.launched.leave(now) {
            if let Some(running) = &mut self.running {
                running.left(&tasklet, took);
            }
        }
        match finished.lane {
            Lane::Compute => {
                self.quiet = (now, finished.site);
                if let Some(slowdown) = &mut self.slowdown {
                    slowdown.finished(now, &finished, took);
                }
                if let Some(gaps) = &mut self.gaps {
                    gaps.foreground_finished(now, finished.estimate, took);
                }
            }
            Lane::Communication => self.withholding -= usize::from(self.withholds(&finished)),
        }
        self.computes_from(now);
        Ok(())
    }

    fn launch_foreground(&mut self) -> Option<TaskletId> {
        let tasklet = self.foreground.launch()?;
        self.launched.launch(self.now, tasklet);
        self.withholding += usize::from(self.withholds(&tasklet));
        match tasklet.lane {
            Lane::Compute => self.computes_from(self.now),
            // It needs the device too: one gap ends and the next begins.
            Lane::Communication if !self.computing => {
                self.gap_ends(self.now);
                self.gap_begins(self.now, tasklet.site);
            }
            Lane::Communication => {}
        }
        Some(tasklet.id)
    }

    /// Something has happened at `now` after which the foreground may compute.
    fn computes_from(&mut self, now: Duration) {
        if !self.computing && self.foreground.computes() {
            self.computing = true;
            self.gap_ends(now);
            if let Some(gaps) = &mut self.gaps {
                gaps.find(now, self.background.in_flight());
            }
        }
    }

    fn gap_begins(&mut self, since: Duration, site: Option<u32>) {
        if let Some(gaps) = &mut self.gaps {
            gaps.begin(since, site);
        }
    }

    fn gap_ends(&mut self, now: Duration) {
        if let Some(gaps) = &mut self.gaps {
            gaps.end(now);
        }
    }

    fn background_ended(&mut self, now: Duration, tasklets: usize) {
        if let Some(gaps) = &mut self.gaps {
            (0..tasklets).for_each(|_| gaps.background_ended(now));
        }
    }

    /// Whether a foreground tasklet holds the background back as long as it is in flight.
    fn withholds(&self, tasklet: &Tasklet) -> bool {
        tasklet.lane == Lane::Communication
            && match self.policy.background_beside_communication {
                BesideCommunication::Never => true,
                BesideCommunication::Always => false,
            }
    }

    fn foreground_may_launch(&self) -> bool {
        let Some(next) = self.foreground.next() else { return false };
        let (ahead, time) = match self.policy.foreground_ahead_counts {
            Ahead::Compute if next.lane == Lane::Communication => return true,
            Ahead::Compute => {
                (self.foreground.compute_in_flight() as u64, self.foreground.compute_estimate())
            }
            // What is merged is launched as one.
            Ahead::InOrder(_) if self.launched.joins(next) => return true,
            Ahead::InOrder(_) => (self.launched.len(), self.launched.estimate()),
        };
        ahead < self.policy.foreground_ahead.get() as u64
            || time.is_some_and(|time| time < self.policy.foreground_ahead_time)
    }

    /// Asked only when the foreground has nothing to launch: any compute of its that still waits does so because of
    /// compute in flight.
    fn background_turn(&mut self) -> Option<Turn> {
        let limit = if self.foreground.is_empty() {
            self.policy.background_in_flight_alone
        } else {
            self.policy.background_in_flight
        };
        if self.background.in_flight() >= limit
            || self.withholding > 0
            || (self.computing && !self.policy.background_beside_compute)
            || self.is_at_what_withholds()
        {
            return None;
        }
        let (now, gaps) = (self.now, self.gaps.as_mut().filter(|_| !self.computing));
        let turn = Turn::of(&self.background, gaps, now)?;
        let held = self.slowdown.as_ref().and_then(|slowdown| slowdown.holds_until(now));
        Some(held.map_or(turn, |until| Turn::NotBefore(Some(until))))
    }

    /// Whether the tasklet that the foreground is at withholds the background.
    fn is_at_what_withholds(&self) -> bool {
        let rule = self.running.as_ref().zip(self.launched.first());
        rule.is_some_and(|(rule, first)| rule.withholds(first))
    }
}

fn background(job: JobId, asked: &'static str) -> Result<JobId, Error> {
    if job.is_foreground() { Err(Error::NotBackground(asked)) } else { Ok(job) }
}
