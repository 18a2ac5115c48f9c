//! Late ranks, streams that wait for missing ranks, and polls while another thread diagnoses a
//! failure.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cuda::Stream;
use cuda_emulator::Setting;

use super::{LONG, SHORT, download, emulator, live_communicators, run, run_all, run_on, stream, upload};
use crate::nccl::{NcclCommunicator, NcclRequest};
use crate::{Communicator, Error, Group, ReduceOp, Request, Result};

fn start(ranks: &NcclCommunicator, stream: &mut Stream) -> NcclRequest<f32> {
    ranks.start_all_reduce(upload(&[1.0_f32; 4], ranks), ReduceOp::Sum, stream).unwrap()
}

fn missing(outcome: Result<()>) -> Vec<usize> {
    match outcome.unwrap_err() {
        Error::TimedOut { missing, .. } => missing,
        other => panic!("not a time-out: {other}"),
    }
}

#[test]
fn aborted_operations_are_not_reported_as_complete() {
    let emulator = emulator();
    emulator.set(Setting::NcclAbortMs, 300);
    let (started, connected, over) = (Barrier::new(3), Barrier::new(2), Barrier::new(2));
    let outcomes = run_on(&emulator, &[0, 1], 2, LONG, |ranks| {
        let ranks = ranks.unwrap();
        connected.wait();
        let wait = || {
            let mut stream = stream(&ranks);
            let request = start(&ranks, &mut stream);
            started.wait();
            request.wait().map(drop)
        };
        let outcomes = (ranks.rank() == 0).then(|| {
            thread::scope(|scope| {
                let threads = [scope.spawn(wait), scope.spawn(wait)];
                started.wait();
                emulator.set(Setting::NcclAsyncError, 6);
                threads.map(|thread| thread.join().unwrap())
            })
        });
        over.wait();
        outcomes
    });
    for outcome in outcomes.into_iter().flatten().flatten() {
        assert!(matches!(outcome, Err(Error::Library { .. })), "{outcome:?}");
    }
}

#[test]
fn a_test_does_not_wait_for_another_threads_diagnosis() {
    let emulator = emulator();
    emulator.set(Setting::NcclAbortMs, 1000);
    let (failed, connected, over) = (AtomicBool::new(false), Barrier::new(2), Barrier::new(2));
    let tested = run_on(&emulator, &[0, 1], 2, LONG, |ranks| {
        let ranks = ranks.unwrap();
        connected.wait();
        let tested = (ranks.rank() == 0).then(|| {
            let mut stream = stream(&ranks);
            let [first, mut second] = [start(&ranks, &mut stream), start(&ranks, &mut stream)];
            emulator.set(Setting::NcclAsyncError, 6);
            thread::scope(|scope| {
                scope.spawn(|| {
                    let error = first.wait().unwrap_err();
                    failed.store(true, Ordering::SeqCst);
                    error
                });
                while live_communicators(&emulator) == 2 {
                    thread::yield_now();
                }
                (second.test(), failed.load(Ordering::SeqCst))
            })
        });
        over.wait();
        tested
    });
    assert_eq!(tested[0], Some((Ok(false), false)), "incomplete, and no wait for the other thread");
}

#[test]
fn a_late_rank_is_not_reported_as_missing() {
    let (timeout, over) = (Duration::from_secs(3), Barrier::new(3));
    let outcomes = run(&[0, 1, 2], 3, timeout, |ranks| {
        let ranks = ranks.unwrap();
        if ranks.rank() == 1 {
            thread::sleep(timeout / 2);
        }
        let outcome = (ranks.rank() != 2).then(|| {
            let mut stream = stream(&ranks);
            start(&ranks, &mut stream).wait().map(drop)
        });
        over.wait();
        outcome
    });
    for outcome in outcomes.into_iter().flatten() {
        assert_eq!(missing(outcome), [2]);
    }
}

#[test]
fn waiting_for_a_stream_ends_if_an_operation_in_it_times_out() {
    for dropped in [false, true] {
        let over = Barrier::new(2);
        run(&[0, 1], 2, SHORT, |ranks| {
            let ranks = ranks.unwrap();
            if ranks.rank() == 0 {
                let mut other = stream(&ranks);
                let mut stream = stream(&ranks);
                let request = Some(start(&ranks, &mut stream)).filter(|_| !dropped);
                // There is no operation in it.
                ranks.synchronize(&other).unwrap();
                assert_eq!(missing(ranks.synchronize(&stream)), [1]);
                assert!(request.is_none_or(|request| request.wait().is_err()));
                // The error was returned once, and the kernel has left the device.
                ranks.synchronize(&stream).unwrap();
                assert_eq!(missing(ranks.barrier(&mut other)), [1]);
            }
            over.wait();
        });
    }
}

#[test]
fn a_split_waits_for_pending_operations() {
    let sums = run_all(2, |ranks| {
        let mut other = stream(&ranks);
        let mut stream = stream(&ranks);
        if ranks.rank() == 1 {
            thread::sleep(SHORT);
        }
        let kept = start(&ranks, &mut stream);
        drop(start(&ranks, &mut other));
        // The emulator reports a split with pending operations as misuse.
        let all = ranks.split(Some(0), 0).unwrap().unwrap();
        start(&all, &mut stream).wait().unwrap();
        download(&kept.wait().unwrap(), &ranks)
    });
    assert_eq!(sums, [[2.0; 4], [2.0; 4]]);
}

#[test]
fn a_split_fails_with_the_operation_it_waits_for() {
    let over = Barrier::new(2);
    run(&[0, 1], 2, SHORT, |ranks| {
        let ranks = ranks.unwrap();
        if ranks.rank() == 0 {
            let mut stream = stream(&ranks);
            let request = start(&ranks, &mut stream);
            let error = ranks.split(Some(0), 0).unwrap_err();
            assert_eq!(request.wait().unwrap_err(), error);
            assert_eq!(missing(Err(error)), [1]);
        }
        over.wait();
    });
}

#[test]
fn a_rank_that_is_late_for_a_split_fails_at_once() {
    let (given_up, over) = (Barrier::new(2), Barrier::new(2));
    let timeout = Duration::from_secs(2);
    run(&[0, 1], 2, timeout, |ranks| {
        let ranks = ranks.unwrap();
        if ranks.rank() == 0 {
            assert_eq!(missing(ranks.split(Some(0), 0).map(drop)), [1]);
            given_up.wait();
        } else {
            given_up.wait();
            let started = Instant::now();
            let error = ranks.split(Some(0), 0).unwrap_err();
            assert!(error.to_string().contains("ranks [0] no longer waited for it"), "{error}");
            assert!(started.elapsed() < timeout);
        }
        // The next split is not mistaken for the failed one.
        assert!(ranks.split(Some(0), 0).is_err());
        over.wait();
    });
}

#[test]
fn a_group_whose_creation_failed_can_be_created_later() {
    let (given_up, reported) = (Barrier::new(2), Barrier::new(2));
    run(&[0, 1], 2, SHORT, |ranks| {
        let ranks = ranks.unwrap();
        if ranks.rank() == 0 {
            assert_eq!(missing(ranks.group(&[0, 1]).map(drop)), [1]);
            given_up.wait();
        } else {
            given_up.wait();
            let error = ranks.group(&[0, 1]).unwrap_err();
            assert!(error.to_string().contains("ranks [0] no longer waited for it"), "{error}");
        }
        reported.wait();
        let group = ranks.group(&[0, 1]).unwrap();
        start(&group, &mut stream(&ranks)).wait().unwrap();
    });
}

#[test]
fn a_wrong_color_does_not_shift_later_splits() {
    let next = Barrier::new(2);
    run(&[0, 1], 2, SHORT, |ranks| {
        let ranks = ranks.unwrap();
        let first = ranks.split(Some(if ranks.rank() == 0 { u32::MAX } else { 1 }), 0).map(drop);
        if ranks.rank() == 0 {
            assert!(first.unwrap_err().to_string().contains("a color is at most"));
        } else {
            assert_eq!(missing(first), [0]);
        }
        for _ in 0..2 {
            next.wait();
            // The group has failed on rank 1, so every split fails.
            assert!(ranks.split(Some(1), 0).is_err());
        }
        next.wait();
    });
}

#[test]
fn a_request_outlives_its_communicator() {
    run(&[0, 1], 2, LONG, |ranks| {
        let ranks = ranks.unwrap();
        let mut stream = stream(&ranks);
        if ranks.rank() == 1 {
            thread::sleep(SHORT);
        }
        let request = start(&ranks, &mut stream);
        drop(ranks);
        // Memory that the device may still write to would be reported as a leak.
        drop(request);
    });
}
