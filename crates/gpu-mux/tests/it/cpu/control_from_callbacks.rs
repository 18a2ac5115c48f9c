//! Background jobs controlled from within the callbacks of any job.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use gpu_mux::{Control, CpuDriver, JobOutcome, JobState, PolledJob};
use proptest::prelude::*;

use super::jobs::ScriptStep::{self, Communicate, Go, Wait};
use super::jobs::{JobError, Scripted};
use super::scripted;

/// A request for a job.
#[derive(Debug, Clone, Copy)]
enum Call {
    Pause,
    Resume,
    Drain,
    SetWeight(NonZeroU32),
}

impl Call {
    fn make(self, control: &Control) {
        match self {
            Self::Pause => control.pause(),
            Self::Resume => control.resume(),
            Self::Drain => control.drain(),
            Self::SetWeight(weight) => control.set_weight(weight),
        }
    }
}

/// The controls of all background jobs, and the requests for the next callbacks.
struct Requests {
    controls: RefCell<Vec<Control>>,
    calls: RefCell<VecDeque<Option<(usize, Call)>>>,
    /// The jobs that are paused or drained after all requests.
    to_stop: Vec<usize>,
    begun: Instant,
}

impl Requests {
    /// Returns whether every request has been made and every job that should be stopped is stopped,
    /// or the time limit has passed.
    fn is_settled(&self) -> bool {
        let stopped = |place: &usize| self.controls.borrow()[*place].is_stopped();
        let waited = self.begun.elapsed() > Duration::from_secs(20);
        waited || self.calls.borrow().is_empty() && self.to_stop.iter().all(stopped)
    }
}

/// A job that makes one request in each callback.
struct RequestingJob<'a> {
    job: Scripted<'a>,
    /// Its own index among the controls.
    place: Option<usize>,
    requests: &'a Requests,
}

impl RequestingJob<'_> {
    fn make_request(&self) {
        let controls = self.requests.controls.borrow();
        assert!(!self.place.is_some_and(|place| controls[place].is_stopped()), "called while stopped");
        if let Some((place, call)) = self.requests.calls.borrow_mut().pop_front().flatten() {
            call.make(&controls[place % controls.len()]);
        }
    }
}

impl PolledJob for RequestingJob<'_> {
    type Error = JobError;

    /// The foreground waits at its end until all requests have been made and have taken effect. The
    /// number of tasklets until then depends on the clock, because jobs share time.
    fn poll(&mut self) -> Result<JobState, JobError> {
        self.make_request();
        match self.job.poll()? {
            JobState::Finished if self.place.is_none() && !self.requests.is_settled() => {
                Ok(JobState::Waiting)
            }
            state => Ok(state),
        }
    }

    fn run(&mut self) -> Result<(), JobError> {
        self.make_request();
        self.job.run()
    }
}

/// Returns whether these requests leave a job paused, and whether they drain it.
fn paused_and_drained(place: usize, calls: &[Option<(usize, Call)>]) -> (bool, bool) {
    let of_it = calls.iter().flatten().filter(|(of, _)| *of == place).map(|(_, call)| call);
    of_it.fold((false, false), |(paused, drained), call| match call {
        Call::Pause => (true, drained),
        Call::Resume => (false, drained),
        Call::Drain => (paused, true),
        Call::SetWeight(_) => (paused, drained),
    })
}

/// Results of a run with requests.
struct RunResult {
    result: Result<String, JobError>,
    ends: [Option<JobOutcome<JobError>>; 2],
    stopped: [bool; 2],
}

/// Runs two background jobs while these requests are made, one in each callback.
fn run_with_requests(foreground: &[ScriptStep], calls: &[Option<(usize, Call)>]) -> RunResult {
    let log = RefCell::new(String::new());
    let is_to_stop = |place: &usize| matches!(paused_and_drained(*place, calls), (true, _) | (_, true));
    let requests = Requests {
        controls: RefCell::default(),
        calls: RefCell::new(calls.iter().copied().collect()),
        to_stop: (0..2).filter(is_to_stop).collect(),
        begun: Instant::now(),
    };
    let mut driver = CpuDriver::new(scripted());
    for (place, name) in ['a', 'b'].into_iter().enumerate() {
        let job = Scripted::repeating(name, Go, &log);
        let control = driver.add(RequestingJob { job, place: Some(place), requests: &requests });
        requests.controls.borrow_mut().push(control);
    }
    let job = Scripted::new('F', foreground, &log);
    let result = driver.run(&mut RequestingJob { job, place: None, requests: &requests }).map(|_| log.take());
    let ends = [0, 1].map(|place| driver.background()[place].outcome().cloned());
    let stopped = [0, 1].map(|place| requests.controls.borrow()[place].is_stopped());
    RunResult { result, ends, stopped }
}

#[test]
fn a_drain_is_final_and_a_pause_is_not() {
    let foreground = [Go, Wait].repeat(8);
    let at = |calls: &[(usize, Call)]| -> Vec<_> {
        (0..40)
            .map(|callback| calls.iter().find(|call| call.0 == callback).map(|&(_, call)| (1, call)))
            .collect()
    };
    // Name, requests by callback, the second job's outcome, and whether it is stopped.
    for (name, calls, end, stopped) in [
        (
            "drain, then resume while it is drained",
            vec![(3, Call::Drain), (4, Call::Resume)],
            Some(JobOutcome::Drained),
            true,
        ),
        ("pause, drain", vec![(0, Call::Pause), (3, Call::Drain)], Some(JobOutcome::Drained), true),
        (
            "pause, drain, resume",
            vec![(0, Call::Pause), (3, Call::Drain), (6, Call::Resume)],
            Some(JobOutcome::Drained),
            true,
        ),
        ("pause", vec![(3, Call::Pause)], None, true),
        ("pause, resume", vec![(3, Call::Pause), (6, Call::Resume)], None, false),
    ] {
        let result = run_with_requests(&foreground, &at(&calls));
        let log = result.result.unwrap_or_else(|error| panic!("{name}: {error:?}"));
        assert_eq!((&result.ends, result.stopped), (&[None, end], [false, stopped]), "{name}: {log}");
        assert_eq!(log.matches('F').count(), 8, "{name}: {log}");
    }
}

proptest! {
    #[test]
    fn requests_do_not_end_the_foreground(
        foreground in prop::collection::vec(prop_oneof![Just(Go), Just(Wait), Just(Communicate)], 0..60),
        calls in prop::collection::vec(
            prop::option::of((0..2_usize, prop_oneof![
                Just(Call::Pause),
                Just(Call::Resume),
                Just(Call::Drain),
                (1..9_u32).prop_map(|weight| Call::SetWeight(NonZeroU32::new(weight).unwrap())),
            ])),
            0..80,
        ),
    ) {
        let RunResult { result, ends, stopped } = run_with_requests(&foreground, &calls);
        let log = result.unwrap();
        prop_assert_eq!(log.matches('F').count(), foreground.iter().filter(|step| **step == Go).count());
        for place in [0, 1] {
            let (paused, drained) = paused_and_drained(place, &calls);
            let end = &ends[place];
            prop_assert!(end.is_none() || *end == Some(JobOutcome::Drained), "{:?}", end);
            prop_assert!(drained || end.is_none());
            prop_assert!(end.is_some() || !drained || paused, "the run would not end");
            prop_assert_eq!(stopped[place], paused || drained);
        }
    }
}
