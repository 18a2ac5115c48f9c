//! The CPU driver, with jobs that follow a script and write down what happened.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::Duration;

use gpu_mux::{CpuDriver, Error, Idle, Job, JobState, Outcome, Policy};
use proptest::prelude::*;

use Step::{FailToPoll, FailToRun, Run as Go, Wait};

/// What a scripted job does next.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    Run,
    /// One poll in vain.
    Wait,
    FailToPoll,
    FailToRun,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum JobError {
    Scripted,
    Driver,
}

impl From<Error> for JobError {
    fn from(_: Error) -> Self {
        Self::Driver
    }
}

/// Follows its script, and is finished at the end of it.
struct Scripted<'a> {
    name: char,
    steps: VecDeque<Step>,
    announced: Option<Step>,
    log: &'a RefCell<String>,
}

impl Job for Scripted<'_> {
    type Error = JobError;

    fn poll(&mut self) -> Result<JobState, JobError> {
        if self.announced.is_none() {
            match self.steps.pop_front() {
                None => return Ok(JobState::Finished),
                Some(Step::Wait) => return Ok(JobState::Waiting),
                Some(Step::FailToPoll) => return Err(JobError::Scripted),
                step => self.announced = step,
            }
        }
        Ok(JobState::Ready(None))
    }

    fn run(&mut self) -> Result<(), JobError> {
        self.log.borrow_mut().push(self.name);
        match self.announced.take() {
            Some(Step::Run) => Ok(()),
            _ => Err(JobError::Scripted),
        }
    }
}

type Run = Result<Outcome<JobError>, JobError>;

fn run_with(driver: &CpuDriver, foreground: &[Step], background: &[Step]) -> (String, Run) {
    let log = RefCell::new(String::new());
    let job = |name, steps: &[Step]| Scripted {
        name,
        steps: steps.iter().copied().collect(),
        announced: None,
        log: &log,
    };
    let outcome = driver.run(&mut job('F', foreground), Some(&mut job('b', background)));
    (log.take(), outcome)
}

fn run(foreground: &[Step], background: &[Step]) -> (String, Run) {
    run_with(&CpuDriver::new(Policy::default()), foreground, background)
}

#[test]
fn the_background_gets_one_tasklet_for_every_poll_in_vain() {
    let (log, outcome) = run(&[Go, Go, Wait, Wait, Go, Wait, Go], &[Go; 9]);
    assert_eq!(log, "FFbbFbF");
    let outcome = outcome.unwrap();
    assert_eq!((outcome.usage.foreground_tasklets, outcome.usage.background_tasklets), (4, 3));
    assert_eq!(outcome.background_error, None);
    assert!(outcome.usage.foreground_busy + outcome.usage.background_busy <= outcome.usage.elapsed);
}

#[test]
fn the_foreground_runs_alone() {
    let log = RefCell::new(String::new());
    let mut job = Scripted { name: 'F', steps: [Go, Wait, Go].into(), announced: None, log: &log };
    let outcome = CpuDriver::new(Policy::default()).run(&mut job, None::<&mut Scripted>).unwrap();
    assert_eq!(outcome.usage.foreground_tasklets, 2);
}

#[test]
fn a_background_that_fails_does_not_touch_the_foreground() {
    let (log, outcome) = run(&[Go, Wait, Wait, Wait, Go], &[Go, FailToRun, Go]);
    assert_eq!(log, "FbbF");
    assert_eq!(outcome.unwrap().background_error, Some(JobError::Scripted));

    let (log, outcome) = run(&[Go, Wait, Wait, Wait, Go], &[Go, FailToPoll, Go]);
    assert_eq!(log, "FbF");
    assert_eq!(outcome.unwrap().background_error, Some(JobError::Scripted));
}

#[test]
fn a_foreground_that_fails_ends_the_run() {
    assert_eq!(run(&[Go, Wait, FailToRun, Go], &[Go; 3]), ("FbF".into(), Err(JobError::Scripted)));
    assert_eq!(run(&[Go, Wait, FailToPoll, Go], &[Go; 3]), ("Fb".into(), Err(JobError::Scripted)));
}

#[test]
fn the_background_goes_on_in_the_next_run() {
    let log = RefCell::new(String::new());
    let job = |name, steps: &[Step]| Scripted {
        name,
        steps: steps.iter().copied().collect(),
        announced: None,
        log: &log,
    };
    let mut background = job('b', &[Go; 3]);
    // Held back for longer than the run lasts: what it announced in the first run is still there in the next.
    let never = CpuDriver::new(Policy {
        background_in_flight: 0,
        background_in_flight_alone: 0,
        ..Policy::default()
    });
    never.run(&mut job('F', &[Wait, Go]), Some(&mut background)).unwrap();
    let always = CpuDriver::new(Policy::default());
    let outcome = always.run(&mut job('F', &[Wait, Wait, Wait, Wait]), Some(&mut background)).unwrap();
    assert_eq!(outcome.usage.background_tasklets, 3);
    assert_eq!(log.take(), "Fbbb");
}

#[test]
fn every_way_of_waiting_sees_the_work_that_comes() {
    for idle in [Idle::Spin, Idle::Yield, Idle::Sleep(Duration::from_micros(10))] {
        let driver = CpuDriver::new(Policy::default()).idle(idle);
        let (log, outcome) = run_with(&driver, &[[Wait; 20].as_slice(), &[Go]].concat(), &[Wait, Go]);
        assert_eq!(log, "bF");
        assert!(outcome.is_ok());
    }
}

#[test]
fn over_long_background_tasklets_are_counted() {
    let driver = CpuDriver::new(Policy { background_piece: Some(Duration::ZERO), ..Policy::default() });
    let (_, outcome) = run_with(&driver, &[Wait, Wait, Go], &[Go; 2]);
    let usage = outcome.unwrap().usage;
    assert!(usage.longest_background.is_zero() || usage.over_long > 0);
    assert!(usage.over_long <= 2);
}

proptest! {
    #[test]
    fn any_script_runs_as_written(
        foreground in prop::collection::vec(prop_oneof![Just(Go), Just(Wait)], 0..60),
        background in prop::collection::vec(prop_oneof![Just(Go), Just(Wait)], 0..60),
    ) {
        // Every poll of the foreground in vain is one step of the background.
        let mut steps = background.iter();
        let expected: String = foreground
            .iter()
            .filter_map(|step| match step {
                Wait => steps.next().filter(|&&step| step == Go).map(|_| 'b'),
                _ => Some('F'),
            })
            .collect();
        let (log, outcome) = run(&foreground, &background);
        prop_assert_eq!(&log, &expected);
        let usage = outcome.unwrap().usage;
        prop_assert_eq!(usage.foreground_tasklets as usize, log.matches('F').count());
        prop_assert_eq!(usage.background_tasklets as usize, log.matches('b').count());
    }
}
