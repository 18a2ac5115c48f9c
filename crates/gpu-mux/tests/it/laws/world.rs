//! Random histories of a multiplexer, kept as plain lists against which every command is checked.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use gpu_mux::{
    Ahead, BesideCommunication, Communication, Error, Feedback, IdlePeriodFitting, JobId, Lane, Merging,
    Multiplexer, MuxCommand, MuxEvent, Policy, Tasklet, TaskletFeedback, TaskletId,
};
use proptest::prelude::*;

pub(super) const JOBS: u32 = 3;

pub(super) const fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

#[derive(Debug, Clone)]
pub(super) enum Action {
    Foreground {
        lane: Lane,
        estimate: Option<Duration>,
        communication: Communication,
        site: Option<u32>,
        /// Whether it depends on the newest tasklet of the other lane.
        after: bool,
    },
    Background(u32, Option<Duration>),
    /// Finishes one of the tasklets in flight.
    Finish(prop::sample::Index, Duration),
    Advance(Duration),
    /// Polls commands until there are none.
    Obey,
    Pause(u32),
    Resume(u32),
    SetWeight(u32, NonZeroU32),
    Drain(u32),
    Fail(u32),
}

impl Action {
    pub(super) fn is_about_background(&self) -> bool {
        !matches!(self, Self::Foreground { .. } | Self::Finish(..) | Self::Advance(_) | Self::Obey)
    }
}

pub(super) fn actions() -> impl Strategy<Value = Vec<Action>> {
    let estimate = || prop::option::of((0..400_u64).prop_map(us));
    let communication =
        prop_oneof![Just(Communication::Send), Just(Communication::Receive), Just(Communication::AllReduce)];
    let foreground = (any::<bool>(), estimate(), communication, prop::option::of(0..4_u32), any::<bool>())
        .prop_map(|(compute, estimate, communication, site, after)| {
            let lane = if compute { Lane::Compute } else { Lane::Communication };
            Action::Foreground { lane, estimate, communication, site, after }
        });
    let job = 0..JOBS;
    let action = prop_oneof![
        8 => foreground,
        8 => (job.clone(), estimate()).prop_map(|(job, estimate)| Action::Background(job, estimate)),
        16 => (any::<prop::sample::Index>(), 0..400_u64).prop_map(|(at, took)| Action::Finish(at, us(took))),
        8 => (0..200_u64).prop_map(|time| Action::Advance(us(time))),
        1 => (1..20_000_000_u64).prop_map(|time| Action::Advance(us(time))),
        16 => Just(Action::Obey),
        1 => job.clone().prop_map(Action::Pause),
        2 => job.clone().prop_map(Action::Resume),
        1 => (job.clone(), 1..5_u32).prop_map(|(job, w)| Action::SetWeight(job, NonZeroU32::new(w).unwrap())),
        1 => job.clone().prop_map(Action::Drain),
        1 => job.prop_map(Action::Fail),
    ];
    prop::collection::vec(action, 0..250)
}

pub(super) fn policies() -> impl Strategy<Value = Policy> {
    let beside = prop_oneof![Just(BesideCommunication::Never), Just(BesideCommunication::Always)];
    let merging = (0..400_u64, 0..800_u64, 0..4_usize).prop_map(|(soft_limit, hard_limit, max_tasklets)| {
        Merging { soft_limit: us(soft_limit), hard_limit: us(hard_limit), max_tasklets }
    });
    let counts = prop_oneof![Just(Ahead::Compute), merging.prop_map(Ahead::InOrder)];
    let running = (10..20_u32, 0..=10_u32, 0..300_u64).prop_map(|(limit, fall, long)| TaskletFeedback {
        limit: f64::from(limit) / 10.0,
        rise: 1.0,
        fall: f64::from(fall) / 10.0,
        long_receive: us(long),
    });
    let feedback = (10..20_u32, 0..=10_u32, 1..5_u64).prop_map(|(limit, fall, patience)| Feedback {
        limit: f64::from(limit) / 10.0,
        rise: 1.0,
        fall: f64::from(fall) / 10.0,
        patience: us(100 * patience),
    });
    let idle_periods =
        (0..=10_u32, 0..500_u64, 0..=4_u32).prop_map(|(share, credit, weight)| IdlePeriodFitting {
            delay_share: f64::from(share) / 100.0,
            credit: us(credit),
            weight: f64::from(weight) / 4.0,
        });
    (
        (1..4_usize, 0..600_u64, counts, 1..4_usize, 1..4_usize, prop::option::of(50..300_u64)),
        (
            any::<bool>(),
            beside,
            prop::option::of(feedback),
            prop::option::of(running),
            prop::option::of(idle_periods),
        ),
    )
        .prop_map(
            |(
                (ahead, ahead_time, counts, in_flight, alone, piece),
                (beside_compute, beside, feedback, running, idle_periods),
            )| {
                Policy {
                    background_piece: piece.map(us),
                    foreground_ahead: NonZeroUsize::new(ahead).unwrap(),
                    foreground_ahead_time: us(ahead_time),
                    foreground_ahead_counts: counts,
                    background_in_flight: in_flight,
                    background_in_flight_alone: alone,
                    background_beside_compute: beside_compute,
                    background_beside_communication: beside,
                    feedback,
                    tasklet_feedback: running,
                    idle_periods,
                    ..Policy::default()
                }
            },
        )
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum State {
    Waiting,
    InFlight,
    Done,
    /// The job of the tasklet has failed.
    Lost,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Lifecycle {
    Open,
    Draining,
    Failed,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    pub(super) paused: bool,
    pub(super) lifecycle: Lifecycle,
}

/// A multiplexer and its history.
pub(super) struct World {
    pub(super) mux: Multiplexer,
    pub(super) policy: Policy,
    pub(super) now: Duration,
    pub(super) tasklets: Vec<(Tasklet, State)>,
    pub(super) jobs: [Job; JOBS as usize],
    pub(super) wake: Option<Duration>,
    pub(super) commands: Vec<MuxCommand>,
    /// The foreground's tasklets in launch order, grouped into those that count as one.
    groups: Vec<Vec<TaskletId>>,
}

impl World {
    pub(super) fn new(policy: Policy) -> Self {
        Self {
            mux: Multiplexer::new(policy),
            policy,
            now: Duration::ZERO,
            tasklets: Vec::new(),
            jobs: [Job { paused: false, lifecycle: Lifecycle::Open }; JOBS as usize],
            wake: None,
            commands: Vec::new(),
            groups: Vec::new(),
        }
    }

    /// Executes the actions and checks every command.
    pub(super) fn after(policy: Policy, actions: &[Action]) -> Self {
        let mut world = Self::new(policy);
        for action in actions {
            world.act(action);
        }
        world
    }

    pub(super) fn act(&mut self, action: &Action) {
        match *action {
            Action::Foreground { lane, estimate, communication, site, after } => {
                let other = |t: &&Tasklet| t.id.job.is_foreground() && t.lane != lane;
                let newest = self.tasklets.iter().map(|(t, _)| t).rfind(other).map(|t| t.id);
                let tasklet = self.next(JobId::FOREGROUND).on(lane).estimated(estimate).at_site(site);
                let tasklet = tasklet.after(newest.filter(|_| after));
                self.ready(match lane {
                    Lane::Compute => tasklet,
                    Lane::Communication => tasklet.communicating(communication),
                });
            }
            Action::Background(job, estimate) => {
                self.ready(self.next(JobId::background(job)).estimated(estimate));
            }
            Action::Finish(pick, took) => {
                let in_flight = self.in_flight();
                if !in_flight.is_empty() {
                    self.finish(*pick.get(&in_flight), took);
                }
            }
            Action::Advance(time) => self.advance(time),
            Action::Obey => self.obey(),
            Action::Pause(job) => self.pause(job),
            Action::Resume(job) => self.resume(job),
            Action::Drain(job) => {
                let lifecycle = &mut self.jobs[job as usize].lifecycle;
                *lifecycle = if *lifecycle == Lifecycle::Open { Lifecycle::Draining } else { *lifecycle };
                self.tell(MuxEvent::Drain(JobId::background(job)));
            }
            Action::SetWeight(job, weight) => {
                self.tell(MuxEvent::SetWeight(JobId::background(job), weight));
            }
            Action::Fail(job) => {
                self.jobs[job as usize].lifecycle = Lifecycle::Failed;
                self.tell(MuxEvent::Failed(JobId::background(job)));
                let lost = |t: &Tasklet| t.id.job == JobId::background(job);
                let unfinished = |s: State| s != State::Done;
                self.tasklets
                    .iter_mut()
                    .filter(|(t, s)| lost(t) && unfinished(*s))
                    .for_each(|(_, s)| *s = State::Lost);
            }
        }
    }

    fn next(&self, job: JobId) -> Tasklet {
        Tasklet::new(job, self.tasklets.len() as u64)
    }

    fn ready(&mut self, tasklet: Tasklet) {
        let closed = !tasklet.id.job.is_foreground() && self.job(tasklet.id.job).lifecycle != Lifecycle::Open;
        if closed {
            assert_eq!(self.mux.handle(self.now, MuxEvent::Ready(tasklet)), Err(Error::Closed(tasklet)));
        } else {
            self.tasklets.push((tasklet, State::Waiting));
            self.tell(MuxEvent::Ready(tasklet));
        }
    }

    pub(super) fn finish(&mut self, id: TaskletId, took: Duration) {
        self.set(id, State::Done);
        self.tell(MuxEvent::Finished { tasklet: id, took });
    }

    /// A driver may be late: a tick is sent with the first event at or after the requested time.
    pub(super) fn advance(&mut self, time: Duration) {
        self.now += time;
        if self.wake.is_some_and(|wake| wake <= self.now) {
            self.tell(MuxEvent::Tick);
        }
    }

    /// Executes commands until there are none, and checks each.
    pub(super) fn obey(&mut self) {
        while let Some(command) = self.mux.poll_command() {
            self.commands.push(command);
            match command {
                MuxCommand::WakeAt(time) => self.wake = Some(time),
                MuxCommand::Launch(id) => {
                    self.judge(id);
                    if id.job.is_foreground() {
                        self.group(id);
                    }
                    self.set(id, State::InFlight);
                }
            }
        }
        assert!(self.foreground_due().is_none(), "the foreground waits without a reason");
    }

    fn judge(&self, id: TaskletId) {
        let first = self.select(id.job, State::Waiting).next().map(|tasklet| tasklet.id);
        assert_eq!(first, Some(id), "not the first waiting tasklet of its job");
        if id.job.is_foreground() {
            assert_eq!(self.foreground_due(), Some(id), "launched further ahead than permitted");
        } else {
            assert!(self.foreground_due().is_none(), "background launched while the foreground is due");
            assert!(self.background_in_flight().count() < self.background_limit());
            assert!(!self.is_withheld(), "background is withheld");
            assert!(!self.job(id.job).paused && self.job(id.job).lifecycle != Lifecycle::Failed);
            let both = [self.tasklet(id), self.background_in_flight().find(|t| self.is_over_limit(t))];
            assert!(
                !both.iter().flatten().all(|t| self.is_over_limit(t)) || both[1].is_none(),
                "two over-long"
            );
        }
    }

    /// Returns the foreground tasklet that must be launched now according to the rules.
    fn foreground_due(&self) -> Option<TaskletId> {
        let next = self.select(JobId::FOREGROUND, State::Waiting).next()?;
        let (ahead, free): (Vec<&Tasklet>, bool) = match self.policy.foreground_ahead_counts {
            Ahead::Compute => {
                (self.foreground_compute(State::InFlight).collect(), next.lane == Lane::Communication)
            }
            Ahead::InOrder(_) => (self.launched_in_order(), self.joins(next)),
        };
        let time: Option<Duration> = ahead.iter().map(|t| t.estimate).sum();
        let is_ahead = |id: &TaskletId| ahead.iter().any(|t| t.id == *id);
        let count = match self.policy.foreground_ahead_counts {
            Ahead::Compute => ahead.len(),
            Ahead::InOrder(_) => self.groups.iter().filter(|group| group.iter().any(is_ahead)).count(),
        };
        let room = count < self.policy.foreground_ahead.get()
            || time.is_some_and(|time| time < self.policy.foreground_ahead_time);
        (free || room).then_some(next.id)
    }

    fn foreground_compute(&self, state: State) -> impl Iterator<Item = &Tasklet> {
        self.select(JobId::FOREGROUND, state).filter(|t| t.lane == Lane::Compute)
    }

    /// Returns whether a foreground tasklet counts as one with the newest launched group.
    fn joins(&self, next: &Tasklet) -> bool {
        let Ahead::InOrder(merging) = self.policy.foreground_ahead_counts else { return false };
        let Some(newest) = self.groups.last().filter(|_| !self.launched_in_order().is_empty()) else {
            return false;
        };
        let merged: Vec<&Tasklet> = newest.iter().filter_map(|id| self.tasklet(*id)).chain([next]).collect();
        let time = |tasklets: &[&Tasklet]| tasklets.iter().map(|t| t.estimate).sum::<Option<Duration>>();
        merged.iter().all(|t| t.lane == Lane::Compute)
            && newest.len() < merging.max_tasklets
            && time(&merged[..newest.len()]).is_some_and(|time| time <= merging.soft_limit)
            && time(&merged).is_some_and(|time| time <= merging.hard_limit)
    }

    fn group(&mut self, id: TaskletId) {
        let joins = self.tasklet(id).is_some_and(|tasklet| self.joins(tasklet));
        match self.groups.last_mut().filter(|_| joins) {
            Some(newest) => newest.push(id),
            None => self.groups.push(vec![id]),
        }
    }

    /// Returns the foreground's tasklets from the oldest in flight to the newest launched.
    fn launched_in_order(&self) -> Vec<&Tasklet> {
        let of_foreground = self.tasklets.iter().filter(|(t, _)| t.id.job.is_foreground());
        let unfinished = of_foreground.skip_while(|(_, s)| *s != State::InFlight);
        unfinished.take_while(|(_, s)| *s != State::Waiting).map(|(t, _)| t).collect()
    }

    pub(super) fn is_withheld(&self) -> bool {
        let unfinished = |id: TaskletId| {
            self.tasklets.iter().any(|(t, s)| t.id == id && matches!(s, State::Waiting | State::InFlight))
        };
        let computes =
            self.foreground_compute(State::InFlight).next().is_some_and(|t| !t.after.is_some_and(unfinished));
        let withholds = |t: &Tasklet| {
            t.lane == Lane::Communication
                && match self.policy.background_beside_communication {
                    BesideCommunication::Never => true,
                    BesideCommunication::Always => false,
                }
        };
        let communicates = self.select(JobId::FOREGROUND, State::InFlight).any(withholds);
        let all_reduces = self.policy.tasklet_feedback.is_some()
            && self.launched_in_order().first().is_some_and(|t| {
                t.lane == Lane::Communication && t.communication == Communication::AllReduce
            });
        communicates || all_reduces || (computes && !self.policy.background_beside_compute)
    }

    pub(super) fn background_limit(&self) -> usize {
        let has = |state| self.select(JobId::FOREGROUND, state).next().is_some();
        if has(State::Waiting) || has(State::InFlight) {
            self.policy.background_in_flight
        } else {
            self.policy.background_in_flight_alone
        }
    }

    pub(super) fn background_in_flight(&self) -> impl Iterator<Item = &Tasklet> {
        (0..JOBS).flat_map(|job| self.select(JobId::background(job), State::InFlight))
    }

    pub(super) fn is_over_limit(&self, tasklet: &Tasklet) -> bool {
        let estimate = tasklet.estimate.or(self.policy.background_piece);
        estimate.zip(self.policy.background_piece).is_some_and(|(estimate, piece)| estimate > piece)
    }

    pub(super) fn job(&self, id: JobId) -> Job {
        let place = (0..JOBS).position(|job| JobId::background(job) == id).unwrap();
        self.jobs[place]
    }

    pub(super) fn pause(&mut self, job: u32) {
        self.jobs[job as usize].paused = true;
        self.tell(MuxEvent::Pause(JobId::background(job)));
    }

    pub(super) fn resume(&mut self, job: u32) {
        self.jobs[job as usize].paused = false;
        self.tell(MuxEvent::Resume(JobId::background(job)));
    }

    pub(super) fn select(&self, job: JobId, state: State) -> impl Iterator<Item = &Tasklet> {
        self.tasklets.iter().filter(move |(t, s)| t.id.job == job && *s == state).map(|(t, _)| t)
    }

    fn tasklet(&self, id: TaskletId) -> Option<&Tasklet> {
        self.tasklets.iter().map(|(t, _)| t).find(|t| t.id == id)
    }

    fn set(&mut self, id: TaskletId, state: State) {
        self.tasklets.iter_mut().filter(|(t, _)| t.id == id).for_each(|(_, s)| *s = state);
    }

    pub(super) fn tell(&mut self, event: MuxEvent) {
        self.mux.handle(self.now, event).unwrap();
        // The multiplexer requests a wake-up again if it still needs it.
        self.wake = None;
    }

    pub(super) fn in_flight(&self) -> Vec<TaskletId> {
        self.tasklets.iter().filter(|(_, s)| *s == State::InFlight).map(|(t, _)| t.id).collect()
    }

    pub(super) fn launched(&self, job: JobId) -> Vec<TaskletId> {
        let launch = |command: &MuxCommand| match command {
            MuxCommand::Launch(id) if id.job == job => Some(*id),
            _ => None,
        };
        self.commands.iter().filter_map(launch).collect()
    }
}
