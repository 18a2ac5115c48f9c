//! Background jobs controlled from another thread.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use gpu_mux::{CpuDriver, Error, Idle, JobOutcome, Policy, job_fn};

use super::jobs::ScriptStep::{self, Communicate, Go, Wait};
use super::jobs::Scripted;

/// Waits until a condition holds, with a time limit.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what} did not happen in time");
        thread::sleep(Duration::from_micros(100));
    }
}

#[test]
fn pause_resume_and_drain_take_effect() {
    for idle in [Idle::Yield, Idle::Park] {
        let (over, ran, other) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        let count = |counter: &'static str| {
            let counter = if counter == "ran" { &ran } else { &other };
            job_fn(
                || Poll::Ready(Some(())),
                move |()| {
                    counter.fetch_add(1, Ordering::SeqCst);
                    Ok::<(), Error>(())
                },
            )
        };
        let next = || if over.load(Ordering::SeqCst) { Poll::Ready(None::<()>) } else { Poll::Pending };
        let mut foreground = job_fn(next, |()| Ok::<(), Error>(()));
        let mut driver = CpuDriver::new(Policy::default()).idle(idle);
        let control = driver.add(count("ran"));
        driver.add(count("other"));
        let waker = driver.waker();
        thread::scope(|scope| {
            scope.spawn(|| {
                let now = || ran.load(Ordering::SeqCst);
                until("a first tasklet", || now() > 0);
                assert!(!control.is_stopped());

                control.pause();
                until("the pause", || control.is_stopped());
                let (paused_at, elsewhere) = (now(), other.load(Ordering::SeqCst));
                until("the other job", || other.load(Ordering::SeqCst) > elsewhere + 10);
                assert_eq!(now(), paused_at, "a paused job");

                control.resume();
                until("a tasklet after the pause", || now() > paused_at);

                control.clone().drain();
                until("the end", || control.is_stopped());
                let ended = now();
                control.resume();
                let elsewhere = other.load(Ordering::SeqCst);
                until("the other job", || other.load(Ordering::SeqCst) > elsewhere + 10);
                assert_eq!(now(), ended, "a job that has ended");
                over.store(true, Ordering::SeqCst);
                waker.wake_by_ref();
            });
            driver.run(&mut foreground).unwrap();
        });
        assert_eq!(driver.background()[0].outcome(), Some(&JobOutcome::Drained));
        assert_eq!(driver.background()[0].tasklets(), ran.load(Ordering::SeqCst));
        assert_eq!(driver.background()[1].outcome(), None);
    }
}

#[test]
fn requests_before_the_run_take_effect() {
    let (mut paused_ran, mut drained_ran) = (0, 0);
    let mut polls = 0;
    let next = || {
        polls += 1;
        if polls < 50 { Poll::Pending } else { Poll::Ready(None::<()>) }
    };
    let mut foreground = job_fn(next, |()| Ok::<(), Error>(()));
    let endless = || Poll::Ready(Some(()));
    let mut paused = job_fn(endless, |()| -> Result<(), Error> {
        paused_ran += 1;
        Ok(())
    });
    let mut drained = job_fn(endless, |()| -> Result<(), Error> {
        drained_ran += 1;
        Ok(())
    });
    let mut driver: CpuDriver<&mut dyn gpu_mux::PolledJob<Error = Error>> = CpuDriver::new(Policy::default());
    driver.add(&mut paused).pause();
    driver.add(&mut drained).drain();
    driver.run(&mut foreground).unwrap();
    assert_eq!(
        (driver.background()[0].outcome(), driver.background()[1].outcome()),
        (None, Some(&JobOutcome::Drained))
    );
    drop(driver);
    assert_eq!((paused_ran, drained_ran), (0, 0));
}

#[test]
fn announced_tasklet_of_a_drained_job_runs_after_resume() {
    let log = RefCell::new(String::new());
    let mut driver = CpuDriver::new(Policy::artifact());
    let control = driver.add(Scripted::new('a', &[Go; 9], &log));
    let run = |driver: &mut CpuDriver<_>, foreground: &[ScriptStep]| {
        driver.run(&mut Scripted::new('F', foreground, &log)).unwrap();
        log.take()
    };
    // Announced, and withheld beside communication.
    assert_eq!(run(&mut driver, &[Communicate, Go]), "F");
    control.pause();
    control.drain();
    assert!(control.is_stopped(), "no worker runs it");
    assert_eq!(run(&mut driver, &[Wait, Wait, Go]), "F");
    assert!(control.is_stopped() && driver.background()[0].outcome().is_none());
    control.resume();
    assert!(!control.is_stopped(), "the next run continues the job");
    assert_eq!(run(&mut driver, &[Wait, Wait, Wait, Go]), "aF");
    assert_eq!(driver.background()[0].outcome(), Some(&JobOutcome::Drained));
    assert!(control.is_stopped());
}
