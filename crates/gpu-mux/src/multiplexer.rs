//! The multiplexer. To *withhold*
//! background is not to launch it. A tasklet is *in flight* from its launch until it is reported as
//! finished. An *idle period* is a period in which the foreground does not compute.

use std::time::Duration;

use crate::background::Background;
use crate::background_decision::BackgroundDecision;
use crate::feedback::Slowdown;
use crate::idle_periods::IdlePeriodRule;
use crate::launch_order::LaunchOrder;
use crate::policy::{Ahead, BesideCommunication, Merging};
use crate::queue::Queue;
use crate::tasklet_feedback::TaskletFeedbackRule;
use crate::{Error, Grant, JobId, Lane, MuxCommand, MuxEvent, Policy, Tasklet, TaskletId};

/// The scheduling policy of one device, as a state machine without a clock, a thread or a device.
///
/// The driver feeds it events, each with the time since an epoch chosen by the driver, and executes
/// its commands until there are none. All events of one instant should be fed before the first
/// command is polled: commands are computed on demand, so a foreground tasklet that becomes ready
/// at the moment its predecessor finishes leaves no idle period for the background.
///
/// Rules, with the limits set by [`Policy`]:
/// - Every tasklet is launched once, and the tasklets of a job are launched in the order of their
///   numbers.
/// - The foreground goes first: its ready tasklets are launched up to the launch-ahead limit.
/// - Background is launched while fewer tasklets than its limit are in flight, no other tasklet in
///   flight exceeds the piece bound, and no rule withholds it. The rules look at the foreground's
///   compute, its communication, its slow-down, its current tasklet and the length of the idle
///   period.
/// - Background jobs share by weight.
/// - The same events, polled at the same points, give the same commands.
///
/// A background job that stalls keeps its slot among the tasklets in flight and delays only the
/// background. A job reported as [failed](MuxEvent::Failed) loses its slot.
///
/// Handling an event and polling a command take O(b) time for b background jobs, plus O(log n) for
/// n tasklets in flight. Nothing is allocated once the queues have reached their maximum length and
/// every job and [site](Tasklet::site) has been seen.
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
    /// Foreground tasklets in flight, in launch order.
    launched: LaunchOrder,
    background: Background,
    slowdown: Option<Slowdown>,
    tasklet_feedback: Option<TaskletFeedbackRule>,
    idle_periods: Option<IdlePeriodRule>,
    /// Whether the foreground was computing when it was last checked.
    computing: bool,
    /// End time and site of the foreground's last compute tasklet.
    last_compute: (Duration, Option<u32>),
    /// Number of foreground communication tasklets in flight that withhold the background.
    withholding: usize,
    /// Foreground communication that transfers.
    transferring: Vec<TaskletId>,
    /// Collectives of distributed background jobs in flight, each with its expected end.
    collectives: Vec<(TaskletId, Duration)>,
    /// Wake-up requested from the driver since the last event.
    wake: Option<Duration>,
    over_limit: u64,
}

impl Multiplexer {
    /// Creates a multiplexer without tasklets, at the driver's epoch (time 0).
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            now: Duration::ZERO,
            foreground: Queue::default(),
            launched: LaunchOrder::new(match policy.foreground_ahead_counts {
                Ahead::InOrder(merging) => merging,
                Ahead::Compute => Merging::default(),
            }),
            background: Background::new(policy.background_piece),
            slowdown: policy.feedback.map(Slowdown::new),
            tasklet_feedback: policy.tasklet_feedback.map(TaskletFeedbackRule::new),
            idle_periods: policy.idle_periods.as_ref().map(IdlePeriodRule::new),
            computing: false,
            last_compute: (Duration::ZERO, None),
            withholding: 0,
            transferring: Vec::new(),
            collectives: Vec::new(),
            wake: None,
            over_limit: 0,
        }
    }

    /// Returns the policy by which it decides.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Handles an event that happened at `now`, measured from the driver's epoch.
    ///
    /// An event that is refused changes nothing.
    ///
    /// # Errors
    /// [`Error::TimeWentBack`] if `now` is before the last event; [`Error::OutOfOrder`] if a
    /// tasklet's number is not larger than its job's last; [`Error::Closed`] if the job accepts no
    /// new tasklets; [`Error::NotInFlight`] if a finished tasklet was not launched or has already
    /// finished; [`Error::NotBackground`] if the foreground is to be paused, drained, weighted or
    /// failed.
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
            MuxEvent::Finished { tasklet, .. } if self.collective(tasklet).is_some() => {
                self.collectives.retain(|(id, _)| *id != tasklet);
                self.background_ended(now, 1);
            }
            MuxEvent::Finished { tasklet, took } => {
                if self.background.finish(now, tasklet, took, !self.computing)? {
                    self.over_limit +=
                        u64::from(self.policy.background_piece.is_some_and(|piece| took > piece));
                    self.background_ended(now, 1);
                }
            }
            MuxEvent::Transfers(tasklet) => self.transfer_begins(now, tasklet),
            MuxEvent::Collective(tasklet) => {
                background(tasklet.id.job, "a collective of a gang")?;
                let ends = now.saturating_add(tasklet.estimate.unwrap_or_default());
                self.collectives.push((tasklet.id, ends));
            }
            MuxEvent::Tick => {}
            MuxEvent::Pause(job) => self.background.pause(background(job, "a pause")?),
            MuxEvent::Resume(job) => self.background.resume(background(job, "a resume")?, now),
            MuxEvent::Drain(job) => self.background.drain(background(job, "a drain")?),
            MuxEvent::SetWeight(job, weight) => {
                self.background.set_weight(background(job, "a weight")?, weight);
            }
            MuxEvent::Failed(job) => {
                let lost = self.background.fail(background(job, "a failure")?, now);
                self.background_lost(now, job, lost);
            }
            MuxEvent::Forget(job) => {
                let lost = self.background.forget_job(background(job, "a failure")?, now);
                self.background_lost(now, job, lost);
            }
        }
        self.now = now;
        self.wake = None;
        Ok(())
    }

    /// Returns the next command as of the last event's time, or `None` if there is nothing to do
    /// before another event.
    pub fn poll_command(&mut self) -> Option<MuxCommand> {
        if self.foreground_may_launch() {
            return self.launch_foreground().map(MuxCommand::Launch);
        }
        if self.computing && !self.foreground.computes() {
            self.computing = false;
            let (since, site) = self.last_compute;
            self.idle_period_begins(since, site);
            if self.transferring.is_empty() {
                self.quiet_period_begins(since, site);
            }
        }
        let until = match self.decide_background()? {
            BackgroundDecision::Launch(place) => {
                return self.background.launch(place, self.now).map(MuxCommand::Launch);
            }
            BackgroundDecision::NotBefore(until) => until?,
        };
        // Requested once: a driver polls commands until there are none.
        (self.wake != Some(until)).then(|| {
            self.wake = Some(until);
            MuxCommand::WakeAt(until)
        })
    }

    /// Decides as of `now` whether a collective of a distributed background job that takes `takes`
    /// may start: while the foreground neither computes nor transfers, no rule withholds the
    /// background, and the collective is expected to end before the foreground computes or
    /// transfers again. The expectation is learned as that of [`Policy::idle_periods`], but a
    /// collective is not launched at the cost of the budget. The answer holds until the next event.
    pub fn grant(&mut self, now: Duration, takes: Duration) -> Grant {
        let computes = self.foreground.computes() && !self.policy.background_beside_compute;
        let is_withheld = computes
            || self.foreground_may_launch()
            || self.withholding > 0
            || !self.transferring.is_empty()
            || self.current_tasklet_withholds();
        if is_withheld {
            return Grant::NotBefore(None);
        }
        if let Some(until) = self.slowdown.as_ref().and_then(|slowdown| slowdown.holds_until(now)) {
            return Grant::NotBefore(Some(until));
        }
        let Some(idle_periods) = self.idle_periods.as_mut().filter(|_| !self.computing) else {
            return Grant::Until(None);
        };
        match idle_periods.admit_collective(now, takes) {
            Ok(Duration::MAX) => Grant::Until(None),
            Ok(latest) => Grant::Until(Some(latest)),
            Err(again) => Grant::NotBefore(Some(again)),
        }
    }

    /// Returns the number of background tasklets so far that took longer than
    /// [`Policy::background_piece`]. Each may have delayed the foreground by more than the policy
    /// allows; cut the background into shorter pieces.
    #[must_use]
    pub fn over_limit(&self) -> u64 {
        self.over_limit
    }

    /// Returns the number of tasklets of a job in flight. It is zero for a paused job whose
    /// tasklets have finished.
    #[must_use]
    pub fn in_flight(&self, job: JobId) -> usize {
        if job.is_foreground() { self.foreground.in_flight() } else { self.background.in_flight_of(job) }
    }

    /// Whether no tasklet of a job waits or is in flight. For a drained job this means that it is
    /// done.
    #[must_use]
    pub fn is_empty(&self, job: JobId) -> bool {
        if job.is_foreground() { self.foreground.is_empty() } else { self.background.is_empty(job) }
    }

    /// Returns the foreground's current slow-down as measured by [`Policy::feedback`] (1 is no
    /// slow-down), or `None` if that rule is off.
    #[must_use]
    pub fn foreground_slowdown(&self) -> Option<f64> {
        self.slowdown.as_ref().map(Slowdown::average)
    }

    fn foreground_finished(&mut self, now: Duration, id: TaskletId, took: Duration) -> Result<(), Error> {
        let finished = self.foreground.finish(id)?;
        self.launched.finish(id);
        while let Some((tasklet, took)) = self.launched.pop_finished(now) {
            if let Some(rule) = &mut self.tasklet_feedback {
                rule.record(&tasklet, took);
            }
        }
        match finished.lane {
            Lane::Compute => {
                self.last_compute = (now, finished.site);
                if let Some(slowdown) = &mut self.slowdown {
                    slowdown.finished(now, &finished, took);
                }
                if let Some(idle_periods) = &mut self.idle_periods {
                    idle_periods.foreground_finished(now, finished.estimate, took);
                }
            }
            Lane::Communication => {
                self.withholding -= usize::from(self.withholds(&finished));
                let transferred = self.transferring.len();
                self.transferring.retain(|transferring| *transferring != id);
                if transferred > 0 && self.transferring.is_empty() && !self.computing {
                    self.quiet_period_begins(now, finished.site);
                }
            }
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
            // Communication occupies the device too: it ends one idle period and begins the next.
            Lane::Communication if !self.computing => {
                self.idle_period_ends(self.now);
                self.idle_period_begins(self.now, tasklet.site);
            }
            Lane::Communication => {}
        }
        Some(tasklet.id)
    }

    /// Checks whether an event at `now` has made the foreground start computing.
    fn computes_from(&mut self, now: Duration) {
        if !self.computing && self.foreground.computes() {
            self.computing = true;
            self.idle_period_ends(now);
            if let Some(idle_periods) = &mut self.idle_periods {
                idle_periods.quiet().end(now);
                let in_flight = self.background.in_flight() + self.collectives.len();
                idle_periods.foreground_computes(now, in_flight);
            }
        }
    }

    fn idle_period_begins(&mut self, since: Duration, site: Option<u32>) {
        if let Some(idle_periods) = &mut self.idle_periods {
            idle_periods.begin(since, site);
        }
    }

    fn quiet_period_begins(&mut self, since: Duration, site: Option<u32>) {
        if let Some(idle_periods) = &mut self.idle_periods {
            idle_periods.quiet().begin(since, site);
        }
    }

    fn idle_period_ends(&mut self, now: Duration) {
        if let Some(idle_periods) = &mut self.idle_periods {
            idle_periods.end(now);
        }
    }

    fn collective(&self, id: TaskletId) -> Option<Duration> {
        self.collectives.iter().find(|(collective, _)| *collective == id).map(|(_, ends)| *ends)
    }

    /// Records that a communication of the foreground transfers from `now` on. Collectives of the
    /// background that are still in flight share its links, so it is delayed by at most their rest.
    fn transfer_begins(&mut self, now: Duration, tasklet: TaskletId) {
        self.transferring.push(tasklet);
        let rest = self.collectives.iter().map(|(_, ends)| ends.saturating_sub(now)).max();
        if let Some(idle_periods) = &mut self.idle_periods {
            idle_periods.quiet().end(now);
        }
        if let (Some(idle_periods), Some(rest)) = (&mut self.idle_periods, rest) {
            idle_periods.charge(rest);
        }
    }

    /// Records that a job has failed with this number of tasklets in flight, besides collectives.
    fn background_lost(&mut self, now: Duration, job: JobId, tasklets: usize) {
        let before = self.collectives.len();
        self.collectives.retain(|(collective, _)| collective.job != job);
        self.background_ended(now, tasklets + before - self.collectives.len());
    }

    fn background_ended(&mut self, now: Duration, tasklets: usize) {
        if let Some(idle_periods) = &mut self.idle_periods {
            (0..tasklets).for_each(|_| idle_periods.background_ended(now));
        }
    }

    /// Returns whether a foreground tasklet withholds the background while it is in flight.
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
            // Merged tasklets are launched as one.
            Ahead::InOrder(_) if self.launched.joins(next) => return true,
            Ahead::InOrder(_) => (self.launched.len(), self.launched.estimate()),
        };
        ahead < self.policy.foreground_ahead.get() as u64
            || time.is_some_and(|time| time < self.policy.foreground_ahead_time)
    }

    /// Decides about the background. Called only when the foreground has nothing to launch: if it
    /// has compute waiting, other compute is in flight.
    fn decide_background(&mut self) -> Option<BackgroundDecision> {
        let limit = if self.foreground.is_empty() {
            self.policy.background_in_flight_alone
        } else {
            self.policy.background_in_flight
        };
        if self.background.in_flight() >= limit
            || self.withholding > 0
            || (self.computing && !self.policy.background_beside_compute)
            || self.current_tasklet_withholds()
        {
            return None;
        }
        let (now, idle_periods) = (self.now, self.idle_periods.as_mut().filter(|_| !self.computing));
        let decision = BackgroundDecision::new(&self.background, idle_periods, now)?;
        let held = self.slowdown.as_ref().and_then(|slowdown| slowdown.holds_until(now));
        Some(held.map_or(decision, |until| BackgroundDecision::NotBefore(Some(until))))
    }

    /// Returns whether the foreground's current tasklet withholds the background.
    fn current_tasklet_withholds(&self) -> bool {
        let rule = self.tasklet_feedback.as_ref().zip(self.launched.first());
        rule.is_some_and(|(rule, first)| rule.withholds(first))
    }
}

fn background(job: JobId, asked: &'static str) -> Result<JobId, Error> {
    if job.is_foreground() { Err(Error::NotBackground(asked)) } else { Ok(job) }
}
