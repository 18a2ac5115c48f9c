//! The CPU driver, with jobs that follow a script.

mod control;
mod control_from_callbacks;
mod idle;
mod jobs;

use std::cell::RefCell;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::task::Poll;
use std::time::{Duration, Instant};

use gpu_mux::{
    CpuDriver, Error, Idle, IdlePeriodFitting, JobOutcome, Policy, Upcoming, Usage, job_fn, share,
};
use proptest::prelude::*;

use jobs::ScriptStep::{At, Communicate, FailToPoll, FailToRun, Go, PanicInPoll, PanicInRun, Wait};
use jobs::{JobError, ScriptStep, Scripted};

/// Results of a scripted run: the order of tasklets, the result, and the outcomes of the background
/// jobs.
struct ScriptedRun {
    log: String,
    result: Result<Usage, JobError>,
    ends: Vec<Option<JobOutcome<JobError>>>,
}

fn run_by(policy: Policy, foreground: &[ScriptStep], background: &[&[ScriptStep]]) -> ScriptedRun {
    let log = RefCell::new(String::new());
    let mut driver = CpuDriver::new(policy);
    for (name, steps) in ('a'..).zip(background) {
        driver.add(Scripted::new(name, steps, &log));
    }
    let result = driver.run(&mut Scripted::new('F', foreground, &log));
    let ends = driver.background().iter().map(|job| job.outcome().cloned()).collect();
    ScriptedRun { log: log.take(), result, ends }
}

fn run(foreground: &[ScriptStep], background: &[ScriptStep]) -> ScriptedRun {
    run_by(scripted(), foreground, &[background])
}

/// The default without the rule on idle periods, so that results do not depend on the clock.
fn scripted() -> Policy {
    Policy { idle_periods: None, ..Policy::default() }
}

#[test]
fn background_gets_one_tasklet_for_every_unready_poll() {
    let ran = run(&[Go, Go, Wait, Wait, Go, Communicate, Go], &[Go; 9]);
    assert_eq!((ran.log.as_str(), &ran.ends[0]), ("FFaaFaF", &None));
    let usage = ran.result.unwrap();
    assert_eq!((usage.foreground_tasklets, usage.background_tasklets), (4, 3));
    assert!(usage.foreground_busy + usage.background_busy <= usage.elapsed);
}

#[test]
fn the_foreground_runs_alone() {
    let ran = run_by(scripted(), &[Go, Wait, Go], &[]);
    assert_eq!(ran.log, "FF");
    assert_eq!(ran.result.unwrap().foreground_tasklets, 2);
}

#[test]
fn failing_or_panicking_background_does_not_affect_other_jobs() {
    let message = |text: &str| Some(JobOutcome::Panicked(text.to_owned()));
    let failed = Some(JobOutcome::Failed(JobError::Scripted));
    for (step, tasklets, end) in [
        (FailToRun, 2, failed.clone()),
        (FailToPoll, 1, failed),
        (PanicInRun, 2, message("a panics in run")),
        (PanicInPoll, 1, message("a panics in poll")),
    ] {
        let foreground = [&[Go][..], &[Wait; 8], &[Go, Wait, Go]].concat();
        let ran = run_by(scripted(), &foreground, &[&[Go, step, Go], &[Go; 3]]);
        assert_eq!(ran.ends, [end, Some(JobOutcome::Finished)], "{step:?}");
        let count = |name| ran.log.matches(name).count();
        assert_eq!((count('F'), count('a'), count('b')), (3, tasklets, 3), "{step:?}");
        assert_eq!(ran.result.unwrap().background_tasklets as usize, tasklets + 3);
    }
}

#[test]
fn stalled_background_does_not_affect_other_jobs() {
    let ran = run_by(scripted(), &[Go, Wait, Wait, Go], &[&[Wait; 99], &[Go; 9]]);
    assert_eq!((ran.log.as_str(), ran.ends), ("FbbF", vec![None, None]));
}

#[test]
fn finished_background_is_not_polled_again() {
    let ran = run(&[Go, Wait, Wait, Wait, Go], &[Go]);
    assert_eq!((ran.log.as_str(), ran.ends), ("FaF", vec![Some(JobOutcome::Finished)]));
}

#[test]
fn failing_foreground_ends_the_run_and_the_next_run_works() {
    for failure in [FailToRun, FailToPoll, PanicInRun, PanicInPoll] {
        let log = RefCell::new(String::new());
        let mut driver = CpuDriver::new(scripted());
        driver.add(Scripted::new('a', &[Go; 9], &log));
        let mut foreground = Scripted::new('F', &[Go, Communicate, failure, Go], &log);
        let result = catch_unwind(AssertUnwindSafe(|| driver.run(&mut foreground)));
        assert!(!matches!(result, Ok(Ok(_))), "{failure:?}");
        assert!(log.take().starts_with("Fa"));
        let usage = driver.run(&mut Scripted::new('G', &[Go, Wait, Wait, Go], &log)).unwrap();
        assert_eq!((log.take().as_str(), usage.background_tasklets), ("GaaG", 2), "{failure:?}");
    }
}

#[test]
fn ended_jobs_can_be_removed_and_replaced() {
    let log = RefCell::new(String::new());
    let mut driver = CpuDriver::new(scripted());
    let run = |driver: &mut CpuDriver<_>| {
        driver.run(&mut Scripted::new('F', &[Wait; 40], &log)).unwrap();
        log.take()
    };
    for (name, steps) in [('a', &[Go, FailToRun][..]), ('b', &[Go; 99]), ('c', &[]), ('d', &[PanicInRun])] {
        driver.add(Scripted::new(name, steps, &log));
    }
    run(&mut driver);
    assert!(format!("{driver:?}").contains("Panicked(\"d panics in run\")"), "{driver:?}");
    let ended = driver.take_ended();
    let ends: Vec<_> = ended.iter().map(|job| (job.tasklets(), job.outcome().unwrap())).collect();
    let panicked = JobOutcome::Panicked("d panics in run".into());
    assert_eq!(
        ends,
        [(2, &JobOutcome::Failed(JobError::Scripted)), (0, &JobOutcome::Finished), (1, &panicked)]
    );
    assert_eq!(driver.background().len(), 1);
    driver.add(Scripted::new('e', &[Go; 2], &log));
    let second = run(&mut driver);
    assert_eq!((second.matches('e').count(), second.matches('b').count() > 0), (2, true), "{second}");
    assert_eq!(driver.take_ended().len(), 1);
    assert!(driver.take_ended().is_empty());
}

#[test]
fn background_continues_in_the_next_run() {
    let log = RefCell::new(String::new());
    let mut background = Scripted::new('a', &[Go; 3], &log);
    // A tasklet announced to a driver that withholds it is still announced to the next driver.
    let held = Policy { background_in_flight: 0, background_in_flight_alone: 0, ..Policy::default() };
    let mut driver = CpuDriver::new(held);
    driver.add(&mut background);
    driver.run(&mut Scripted::new('F', &[Wait, Go], &log)).unwrap();
    let mut driver = CpuDriver::new(scripted());
    driver.add(&mut background);
    let run = |driver: &mut CpuDriver<_>, foreground: &[ScriptStep]| {
        driver.run(&mut Scripted::new('F', foreground, &log)).unwrap().background_tasklets
    };
    assert_eq!(run(&mut driver, &[Wait]), 1);
    assert_eq!(run(&mut driver, &[Go, Wait, Go, Wait]), 2);
    assert_eq!((driver.background()[0].tasklets(), log.take().as_str()), (3, "FaFaFa"));
}

#[test]
fn communication_withholds_background_according_to_the_policy() {
    let script = [Go, Communicate, Communicate, Wait, Go, Communicate, Go];
    assert_eq!(run_by(Policy::artifact(), &script, &[&[Go; 9]]).log, "FaFF");
    assert_eq!(run_by(scripted(), &script, &[&[Go; 9]]).log, "FaaaFaF");
}

#[test]
fn background_that_does_not_fit_a_learned_gap_is_withheld() {
    let piece = Upcoming { estimate: Some(Duration::from_secs(3600)), site: None };
    let idle_periods = IdlePeriodFitting { delay_share: 0.0, credit: Duration::from_secs(10), weight: 1.0 };
    let policy = Policy { background_piece: None, idle_periods: Some(idle_periods), ..Policy::default() };
    let round = [At(Upcoming::at_site(0)), Wait, At(Upcoming::at_site(1))];
    let ran = run_by(policy, &round.repeat(3), &[&[At(piece); 9]]);
    assert_eq!(ran.log, "FaFFFFF", "only into the first idle period");
    assert_eq!(
        run_by(Policy { idle_periods: None, ..policy }, &round.repeat(3), &[&[At(piece); 9]]).log,
        "FaFFaFFaF"
    );
}

#[test]
fn background_jobs_share_by_their_weights() {
    let busy = |us| {
        move |()| -> Result<(), Error> {
            let began = Instant::now();
            while began.elapsed() < Duration::from_micros(us) {
                std::hint::spin_loop();
            }
            Ok(())
        }
    };
    let mut polls = 0;
    let next = || {
        polls += 1;
        if polls < 1500 { Poll::Pending } else { Poll::Ready(None::<()>) }
    };
    let mut foreground = job_fn(next, |()| Ok::<(), Error>(()));
    let mut driver: CpuDriver<Box<dyn gpu_mux::PolledJob<Error = Error>>> = CpuDriver::new(Policy::naive());
    let endless = || Poll::Ready(Some(()));
    driver.add(Box::new(job_fn(endless, busy(20))));
    let weight = 3;
    driver.add(Box::new(job_fn(endless, busy(50)))).set_weight(NonZeroU32::new(weight).unwrap());
    let usage = driver.run(&mut foreground).unwrap();
    let [one, three] = [0, 1].map(|job| driver.background()[job].busy().as_secs_f64());
    // Regardless of disturbances, neither gets ahead by more than a tasklet.
    let longest = usage.longest_background.as_secs_f64();
    let ahead = (one - three / f64::from(weight)).abs();
    assert!(ahead <= longest * (1.0 + 1.0 / f64::from(weight)), "{one} s and {three} s, longest {longest} s");
    assert!(usage.background_tasklets > 1000);
}

#[test]
fn every_idle_mode_sees_new_work() {
    let sleep = Idle::Sleep(Duration::from_micros(10));
    let (send, seen) = mpsc::channel();
    // A parked worker polls again only while a job communicates. The test of the waker covers the
    // other cases.
    let ways = [(Idle::Spin, Wait), (Idle::Yield, Wait), (sleep, Wait), (Idle::Park, Communicate)];
    std::thread::spawn(move || {
        for (idle, unready) in ways {
            let log = RefCell::new(String::new());
            let mut driver = CpuDriver::new(scripted()).idle(idle);
            driver.add(Scripted::new('a', &[Wait, Go], &log));
            let foreground = [[unready; 20].as_slice(), &[Go]].concat();
            driver.run(&mut Scripted::new('F', &foreground, &log)).unwrap();
            send.send((idle, log.take())).unwrap();
        }
    });
    for _ in ways {
        let (idle, log) = seen.recv_timeout(Duration::from_secs(20)).expect("it does not hang");
        assert_eq!(log, "aF", "{idle:?}");
    }
}

#[test]
fn communicating_background_is_polled_while_parked() {
    let (send, seen) = mpsc::channel();
    std::thread::spawn(move || {
        let log = RefCell::new(String::new());
        // It ends when the background's communication is complete, and nothing wakes the worker.
        let next = || if log.borrow().contains('a') { Poll::Ready(None::<()>) } else { Poll::Pending };
        let mut foreground = job_fn(next, |()| Ok::<(), Error>(()));
        let mut driver = CpuDriver::new(scripted()).idle(Idle::Park);
        let steps = [[Communicate; 30].as_slice(), &[Go]].concat();
        driver.add(Scripted::new('a', &steps, &log));
        driver.run(&mut foreground).unwrap();
        send.send(log.borrow().clone()).unwrap();
    });
    assert_eq!(seen.recv_timeout(Duration::from_secs(20)).expect("it does not hang"), "a");
}

#[test]
fn over_long_background_tasklets_are_counted_by_run() {
    let log = RefCell::new(String::new());
    let mut driver = CpuDriver::new(Policy {
        background_piece: Some(Duration::ZERO),
        idle_periods: None,
        ..Policy::default()
    });
    driver.add(Scripted::new('a', &[Go; 4], &log));
    for _ in 0..2 {
        let usage = driver.run(&mut Scripted::new('F', &[Wait, Wait, Go], &log)).unwrap();
        assert_eq!(usage.background_tasklets, 2);
        assert!(usage.longest_background.is_zero() || usage.over_limit > 0);
        assert!(usage.over_limit <= 2);
    }
}

#[test]
fn requests_are_served_while_background_runs() {
    let (send, requests) = mpsc::channel();
    let client = std::thread::spawn(move || {
        (1..=10).for_each(|n| {
            std::thread::sleep(Duration::from_millis(1));
            send.send(n).unwrap();
        });
    });
    let (mut sum, mut pieces) = (0, 0);
    let usage = share(&requests, |n: u64| sum += n, || pieces += 1).unwrap();
    assert_eq!((sum, usage.foreground_tasklets, usage.background_tasklets), (55, 10, pieces));
    assert!(pieces > 0);
    client.join().unwrap();
}

#[test]
fn requests_are_served_after_the_background_has_panicked() {
    let (send, requests) = mpsc::channel();
    let client = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(1));
        send.send(7).unwrap();
    });
    let mut served = Vec::new();
    let result = share(&requests, |n: u64| served.push(n), || panic!("no more"));
    client.join().unwrap();
    assert_eq!(served, [7]);
    assert_eq!(result, Err(Error::BackgroundPanicked("no more".into())));
}

proptest! {
    #[test]
    fn any_script_runs_as_written(
        foreground in prop::collection::vec(prop_oneof![Just(Go), Just(Wait), Just(Communicate)], 0..60),
        background in prop::collection::vec(prop_oneof![Just(Go), Just(Wait)], 0..60),
    ) {
        // Every poll of the foreground that is not ready allows one step of the background.
        let mut steps = background.iter();
        let expected: String = foreground
            .iter()
            .filter_map(|step| match step {
                Wait | Communicate => steps.next().filter(|&&step| step == Go).map(|_| 'a'),
                _ => Some('F'),
            })
            .collect();
        let ran = run(&foreground, &background);
        prop_assert_eq!(&ran.log, &expected);
        let usage = ran.result.unwrap();
        prop_assert_eq!(usage.foreground_tasklets as usize, ran.log.matches('F').count());
        prop_assert_eq!(usage.background_tasklets as usize, ran.log.matches('a').count());
    }
}
