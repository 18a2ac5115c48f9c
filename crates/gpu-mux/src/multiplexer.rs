use std::time::Duration;

use crate::queue::Queue;
use crate::{Error, JobId, Lane, Policy, Tasklet, TaskletId};

/// What a driver tells the [`Multiplexer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A tasklet may be launched: everything it depends on has been launched, and the device keeps that order.
    Ready(Tasklet),
    /// A tasklet that was launched has finished.
    Finished {
        /// Which one.
        tasklet: TaskletId,
        /// How long it occupied its lane.
        took: Duration,
    },
    /// Time has passed and nothing else has happened: the answer to [`Command::WakeAt`].
    Tick,
}

/// What the [`Multiplexer`] tells its driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Launch this tasklet now.
    Launch(TaskletId),
    /// Send [`Event::Tick`] at this time, counted from the driver's epoch, unless another event comes first. A
    /// tick that comes early or late, or that is no longer needed, does no harm.
    WakeAt(Duration),
}

/// Decides what one device runs next: the policy, without a clock, a thread or a device.
///
/// A driver feeds it events, each with its time since an epoch of the driver's choice, and then obeys its
/// commands. All events of one instant should go in before the first command comes out: a decision is made when
/// it is asked for, so that a foreground tasklet that becomes ready just when the one before it finishes leaves
/// no opening for the background.
///
/// The rules, with the limits set by [`Policy`]:
/// - every tasklet is launched once, and each job's in the order of their numbers;
/// - the foreground goes first, as soon as it is ready;
/// - background is launched only while no foreground *compute* tasklet is waiting or in flight;
/// - the same events, asked for commands at the same points, give the same commands.
///
/// Handling an event and asking for a command are O(1), or O(log n) for n tasklets in flight when they finish in
/// launch order. Nothing is allocated once the queues have reached their largest length.
///
/// ```
/// use gpu_mux::{Command, Event, JobId, Multiplexer, Policy, Tasklet};
/// use std::time::Duration;
///
/// let mut mux = Multiplexer::new(Policy::default());
/// let (layer, piece) = (Tasklet::new(JobId::FOREGROUND, 0), Tasklet::new(JobId::BACKGROUND, 0));
/// mux.handle(Duration::ZERO, Event::Ready(piece))?;
/// mux.handle(Duration::ZERO, Event::Ready(layer))?;
/// assert_eq!(mux.poll_command(), Some(Command::Launch(layer.id)));
/// assert_eq!(mux.poll_command(), None, "the background waits while the foreground runs");
///
/// let took = Duration::from_micros(80);
/// mux.handle(took, Event::Finished { tasklet: layer.id, took })?;
/// assert_eq!(mux.poll_command(), Some(Command::Launch(piece.id)));
/// # Ok::<(), gpu_mux::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Multiplexer {
    policy: Policy,
    now: Duration,
    foreground: Queue,
    background: Queue,
    /// When the foreground's last compute tasklet finished.
    quiet_since: Duration,
    /// The wake-up that the driver has been asked for and has not answered.
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
            background: Queue::default(),
            quiet_since: Duration::ZERO,
            wake: None,
            over_long: 0,
        }
    }

    /// Takes in what happened at `now`, counted from the driver's epoch.
    ///
    /// An event that is refused changes nothing: [`Error::TimeWentBack`] when `now` is before the last event,
    /// [`Error::OutOfOrder`] for a tasklet whose number is not larger than its job's last,
    /// [`Error::NotInFlight`] for the end of a tasklet that was not launched or has ended before.
    pub fn handle(&mut self, now: Duration, event: Event) -> Result<(), Error> {
        if now < self.now {
            return Err(Error::TimeWentBack { now, last: self.now });
        }
        match event {
            Event::Ready(tasklet) => self.queue(tasklet.id.job).push(tasklet)?,
            Event::Finished { tasklet, took } => {
                let finished = self.queue(tasklet.job).finish(tasklet)?;
                if !tasklet.job.is_foreground() {
                    self.over_long += u64::from(took > self.policy.background_piece);
                } else if finished.lane == Lane::Compute && self.foreground.compute_in_flight() == 0 {
                    self.quiet_since = now;
                }
            }
            Event::Tick => self.wake = None,
        }
        self.now = now;
        Ok(())
    }

    /// The next thing to do as of the last event's time; `None` when there is nothing more until another event.
    pub fn poll_command(&mut self) -> Option<Command> {
        if self.foreground_may_launch() {
            return self.foreground.launch().map(Command::Launch);
        }
        if !self.background_may_launch() {
            return None;
        }
        let opens = self.quiet_since.saturating_add(self.policy.background_after);
        if opens <= self.now {
            return self.background.launch().map(Command::Launch);
        }
        // Asked for once: a driver drains commands until there is none.
        (self.wake != Some(opens)).then(|| {
            self.wake = Some(opens);
            Command::WakeAt(opens)
        })
    }

    /// Background tasklets so far that took longer than [`Policy::background_piece`]. Each may have made the
    /// foreground wait for longer than the policy promises: cut the background finer.
    #[must_use]
    pub fn over_long(&self) -> u64 {
        self.over_long
    }

    fn queue(&mut self, job: JobId) -> &mut Queue {
        if job.is_foreground() { &mut self.foreground } else { &mut self.background }
    }

    /// Communication does not fill the compute units, so it is not counted against the launch-ahead limits.
    fn foreground_may_launch(&self) -> bool {
        self.foreground.next().is_some_and(|next| {
            next.lane == Lane::Communication
                || self.foreground.compute_in_flight() < self.policy.foreground_ahead.get()
                || self
                    .foreground
                    .compute_estimate()
                    .is_some_and(|time| time < self.policy.foreground_ahead_time)
        })
    }

    /// Asked only when the foreground has nothing to launch: any compute of its that still waits does so because of
    /// compute in flight.
    fn background_may_launch(&self) -> bool {
        self.background.next().is_some()
            && self.background.in_flight() < self.policy.background_in_flight
            && self.foreground.compute_in_flight() == 0
    }
}
