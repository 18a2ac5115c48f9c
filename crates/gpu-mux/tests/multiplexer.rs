//! The laws of the policy, over random event sequences, and what it says to a driver that breaks its contract.

use std::num::NonZeroUsize;
use std::time::Duration;

use gpu_mux::{Command, Error, Event, JobId, Lane, Multiplexer, Policy, Tasklet, TaskletId};
use proptest::prelude::*;

const fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

#[derive(Debug, Clone)]
enum Action {
    Ready(JobId, Lane, Option<Duration>),
    /// Finish one of the tasklets in flight.
    Finish(prop::sample::Index),
    Advance(Duration),
    /// Ask for commands until there is none.
    Obey,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let estimate = prop::option::of((0..200_u64).prop_map(us));
    let foreground = (any::<bool>(), estimate).prop_map(|(compute, estimate)| {
        Action::Ready(JobId::FOREGROUND, if compute { Lane::Compute } else { Lane::Communication }, estimate)
    });
    let action = prop_oneof![
        2 => foreground,
        2 => Just(Action::Ready(JobId::BACKGROUND, Lane::Compute, None)),
        4 => any::<prop::sample::Index>().prop_map(Action::Finish),
        2 => (0..60_u64).prop_map(|time| Action::Advance(us(time))),
        4 => Just(Action::Obey),
    ];
    prop::collection::vec(action, 0..200)
}

fn policies() -> impl Strategy<Value = Policy> {
    let after = prop_oneof![Just(0), 0..80_u64];
    (1..4_usize, 0..300_u64, 1..4_usize, after).prop_map(|(ahead, ahead_time, in_flight, after)| Policy {
        foreground_ahead: NonZeroUsize::new(ahead).unwrap(),
        foreground_ahead_time: us(ahead_time),
        background_in_flight: in_flight,
        background_after: us(after),
        ..Policy::default()
    })
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Waiting,
    InFlight,
    Done,
}

/// The whole history, which every command is judged by from scratch.
struct History {
    policy: Policy,
    now: Duration,
    /// The time of the last event: the multiplexer has no other clock.
    known: Duration,
    tasklets: Vec<(Tasklet, State)>,
    quiet_since: Duration,
    wake: Option<Duration>,
    commands: Vec<Command>,
}

impl History {
    fn select(&self, job: JobId, state: State) -> impl Iterator<Item = &Tasklet> {
        self.tasklets.iter().filter(move |(t, s)| t.id.job == job && *s == state).map(|(t, _)| t)
    }

    fn first_waiting(&self, job: JobId) -> Option<&Tasklet> {
        self.select(job, State::Waiting).next()
    }

    fn set(&mut self, id: TaskletId, state: State) {
        self.tasklets.iter_mut().filter(|(t, _)| t.id == id).for_each(|(_, s)| *s = state);
    }

    fn foreground_compute(&self) -> bool {
        let unfinished = [State::Waiting, State::InFlight];
        unfinished.iter().any(|&s| self.select(JobId::FOREGROUND, s).any(|t| t.lane == Lane::Compute))
    }

    /// The foreground tasklet that the rules say must be launched now.
    fn foreground_due(&self) -> Option<TaskletId> {
        let next = self.first_waiting(JobId::FOREGROUND)?;
        let ahead: Vec<&Tasklet> =
            self.select(JobId::FOREGROUND, State::InFlight).filter(|t| t.lane == Lane::Compute).collect();
        let time: Option<Duration> = ahead.iter().map(|t| t.estimate).sum();
        let room = ahead.len() < self.policy.foreground_ahead.get()
            || time.is_some_and(|time| time < self.policy.foreground_ahead_time);
        (next.lane == Lane::Communication || room).then_some(next.id)
    }

    /// The background tasklet that only time can hold back.
    fn background_due(&self) -> Option<TaskletId> {
        let in_flight = self.select(JobId::BACKGROUND, State::InFlight).count();
        let next = self.first_waiting(JobId::BACKGROUND)?;
        (!self.foreground_compute() && in_flight < self.policy.background_in_flight).then_some(next.id)
    }

    fn expected(&self) -> Option<Command> {
        if let Some(id) = self.foreground_due() {
            return Some(Command::Launch(id));
        }
        let opens = self.quiet_since + self.policy.background_after;
        match self.background_due() {
            Some(id) if self.known >= opens => Some(Command::Launch(id)),
            Some(_) if self.wake != Some(opens) => Some(Command::WakeAt(opens)),
            _ => None,
        }
    }

    fn tell(&mut self, mux: &mut Multiplexer, event: Event) {
        mux.handle(self.now, event).unwrap();
        self.known = self.now;
    }

    fn obey(&mut self, mux: &mut Multiplexer) {
        loop {
            let command = mux.poll_command();
            assert_eq!(command, self.expected());
            match command {
                None => return,
                Some(Command::Launch(id)) => self.set(id, State::InFlight),
                Some(Command::WakeAt(time)) => self.wake = Some(time),
            }
            self.commands.extend(command);
        }
    }

    fn advance(&mut self, mux: &mut Multiplexer, time: Duration) {
        self.now += time;
        // A driver may be late: every tick comes with the first event after the time it was asked for.
        if self.wake.is_some_and(|wake| wake <= self.now) {
            self.wake = None;
            self.tell(mux, Event::Tick);
        }
    }

    fn finish(&mut self, mux: &mut Multiplexer, id: TaskletId) {
        let compute_before = self.foreground_compute();
        self.set(id, State::Done);
        if compute_before && !self.foreground_compute() {
            self.quiet_since = self.now;
        }
        self.tell(mux, Event::Finished { tasklet: id, took: us(1) });
    }

    fn in_flight(&self) -> Vec<TaskletId> {
        self.tasklets.iter().filter(|(_, s)| *s == State::InFlight).map(|(t, _)| t.id).collect()
    }
}

/// Plays the actions, checks every answer, and gives the commands and what is left in the end.
fn play(policy: Policy, actions: &[Action]) -> History {
    let mut mux = Multiplexer::new(policy);
    let mut history = History {
        policy,
        now: Duration::ZERO,
        known: Duration::ZERO,
        tasklets: Vec::new(),
        quiet_since: Duration::ZERO,
        wake: None,
        commands: Vec::new(),
    };
    for action in actions {
        match action {
            Action::Ready(job, lane, estimate) => {
                let tasklet =
                    Tasklet::new(*job, history.tasklets.len() as u64).on(*lane).estimated(*estimate);
                history.tasklets.push((tasklet, State::Waiting));
                history.tell(&mut mux, Event::Ready(tasklet));
            }
            Action::Finish(pick) => {
                let in_flight = history.in_flight();
                if !in_flight.is_empty() {
                    history.finish(&mut mux, *pick.get(&in_flight));
                }
            }
            Action::Advance(time) => history.advance(&mut mux, *time),
            Action::Obey => history.obey(&mut mux),
        }
    }
    // No more foreground: everything that is left must get its turn.
    for _ in 0..=2 * history.tasklets.len() {
        history.obey(&mut mux);
        for id in history.in_flight() {
            history.finish(&mut mux, id);
        }
        history.advance(&mut mux, policy.background_after);
    }
    history
}

proptest! {
    #[test]
    fn every_command_is_the_one_that_the_rules_ask_for(policy in policies(), actions in actions()) {
        let history = play(policy, &actions);
        prop_assert!(history.tasklets.iter().all(|(_, state)| *state == State::Done), "some were never launched");
        for job in [JobId::FOREGROUND, JobId::BACKGROUND] {
            let launched: Vec<TaskletId> = history.commands.iter().filter_map(|command| match command {
                Command::Launch(id) if id.job == job => Some(*id),
                _ => None,
            }).collect();
            let queued: Vec<TaskletId> = history.select(job, State::Done).map(|t| t.id).collect();
            prop_assert_eq!(launched, queued, "each once, and in the queue's order");
        }
    }

    #[test]
    fn the_same_events_give_the_same_commands(policy in policies(), actions in actions()) {
        prop_assert_eq!(play(policy, &actions).commands, play(policy, &actions).commands);
    }
}

#[test]
fn a_background_limit_of_zero_holds_it_back() {
    let mut mux = Multiplexer::new(Policy { background_in_flight: 0, ..Policy::default() });
    mux.handle(us(0), Event::Ready(Tasklet::new(JobId::BACKGROUND, 0))).unwrap();
    assert_eq!(mux.poll_command(), None);
}

#[test]
fn communication_leaves_the_compute_lane_to_the_background() {
    let mut mux = Multiplexer::new(Policy::default());
    let transfer = Tasklet::new(JobId::FOREGROUND, 0).on(Lane::Communication);
    let piece = Tasklet::new(JobId::BACKGROUND, 0);
    mux.handle(us(0), Event::Ready(piece)).unwrap();
    mux.handle(us(0), Event::Ready(transfer)).unwrap();
    assert_eq!(mux.poll_command(), Some(Command::Launch(transfer.id)));
    assert_eq!(mux.poll_command(), Some(Command::Launch(piece.id)));
}

#[test]
fn an_early_tick_is_asked_for_again() {
    let mut mux = Multiplexer::new(Policy { background_after: us(100), ..Policy::default() });
    let piece = Tasklet::new(JobId::BACKGROUND, 0);
    mux.handle(us(0), Event::Ready(piece)).unwrap();
    assert_eq!(mux.poll_command(), Some(Command::WakeAt(us(100))));
    assert_eq!(mux.poll_command(), None);
    mux.handle(us(99), Event::Tick).unwrap();
    assert_eq!(mux.poll_command(), Some(Command::WakeAt(us(100))));
    mux.handle(us(100), Event::Tick).unwrap();
    assert_eq!(mux.poll_command(), Some(Command::Launch(piece.id)));
}

#[test]
fn background_that_exceeds_its_bound_is_counted() {
    let mut mux = Multiplexer::new(Policy { background_piece: us(50), ..Policy::default() });
    for (number, took) in [(0, us(50)), (1, us(51))] {
        let piece = Tasklet::new(JobId::BACKGROUND, number);
        mux.handle(us(0), Event::Ready(piece)).unwrap();
        assert_eq!(mux.poll_command(), Some(Command::Launch(piece.id)));
        mux.handle(us(0), Event::Finished { tasklet: piece.id, took }).unwrap();
    }
    assert_eq!(mux.over_long(), 1);
}

#[test]
fn a_refused_event_changes_nothing() {
    let mut mux = Multiplexer::new(Policy::default());
    let layer = Tasklet::new(JobId::FOREGROUND, 7);
    let finished = Event::Finished { tasklet: layer.id, took: us(1) };
    assert_eq!(mux.handle(us(5), finished), Err(Error::NotInFlight(layer.id)), "unknown");
    mux.handle(us(5), Event::Ready(layer)).unwrap();
    assert_eq!(mux.handle(us(5), finished), Err(Error::NotInFlight(layer.id)), "not launched");
    let out_of_order = Err(Error::OutOfOrder { tasklet: layer.id, last: 7 });
    assert_eq!(mux.handle(us(5), Event::Ready(layer)), out_of_order, "twice");
    let went_back = Err(Error::TimeWentBack { now: us(4), last: us(5) });
    assert_eq!(mux.handle(us(4), Event::Tick), went_back);

    assert_eq!(mux.poll_command(), Some(Command::Launch(layer.id)));
    assert_eq!(mux.poll_command(), None, "the duplicate was not queued");
    mux.handle(us(6), finished).unwrap();
    assert_eq!(mux.handle(us(6), finished), Err(Error::NotInFlight(layer.id)), "finished before");
}

#[test]
fn errors_say_which_tasklet() {
    let id = Tasklet::new(JobId::BACKGROUND, 3).id;
    assert_eq!(
        Error::NotInFlight(id).to_string(),
        "background tasklet 3 has finished, but it is not in flight"
    );
}
