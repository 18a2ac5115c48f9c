//! A worker that has nothing to do.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;
use std::{fs, thread};

use gpu_mux::{CpuDriver, Error, Idle, Policy, job_fn};

/// Returns the time that this thread has spent on a core.
fn cpu_time() -> Option<Duration> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(Duration::from_nanos(text.split_whitespace().next()?.parse().ok()?))
}

#[test]
fn a_parked_worker_uses_no_cpu_and_wakes_up_for_work() {
    let (work, over, served) = (AtomicU64::new(0), AtomicBool::new(false), AtomicU64::new(0));
    let next = || match served.load(Ordering::SeqCst) {
        done if done < work.load(Ordering::SeqCst) => Poll::Ready(Some(())),
        _ if over.load(Ordering::SeqCst) => Poll::Ready(None),
        _ => Poll::Pending,
    };
    let mut foreground = job_fn(next, |()| {
        served.fetch_add(1, Ordering::SeqCst);
        Ok::<(), Error>(())
    });
    // It stalls, and must be polled again when work may have arrived.
    let background = job_fn(|| Poll::<Option<()>>::Pending, |()| Ok::<(), Error>(()));
    let mut driver = CpuDriver::new(Policy::default()).idle(Idle::Park);
    driver.add(background);
    let waker = driver.waker();
    let (usage, used) = thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..3 {
                thread::sleep(Duration::from_millis(70));
                work.fetch_add(1, Ordering::SeqCst);
                waker.wake_by_ref();
            }
            over.store(true, Ordering::SeqCst);
            waker.wake_by_ref();
        });
        let before = cpu_time();
        let usage = driver.run(&mut foreground).unwrap();
        (usage, cpu_time().zip(before).map(|(after, before)| after.saturating_sub(before)))
    });
    assert_eq!((usage.foreground_tasklets, served.load(Ordering::SeqCst)), (3, 3));
    match used {
        Some(used) => {
            println!("{used:?} on a core of {:?}", usage.elapsed);
            assert!(used < usage.elapsed / 20, "{used:?} of {:?}", usage.elapsed);
        }
        None => println!("SKIPPED: the system does not report the CPU time of a thread"),
    }
}
