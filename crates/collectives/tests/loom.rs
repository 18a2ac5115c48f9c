//! Model checking of the threads' synchronization with [loom](https://docs.rs/loom), in every order of
//! events that the memory model allows, up to a bound on preemptions:
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" cargo test --release -p collectives --test loom
//! ```
//!
//! The model checker also tracks every access to an element of a shared buffer and every sleep. A
//! data race, a lost wake-up or a wrong result is a failure. Its clock does not run, so no time-out
//! hides a rank that is never woken.
#![cfg(loom)]

use std::time::Duration;

use collectives::{
    Communicator, Departure, Error, Group, HostBuffer, ReduceOp, Request, Result, ThreadCommunicator,
    ThreadWorld, WaitStrategy,
};
use loom::model::Builder;
use loom::thread;

/// Runs `rank` on one thread for each of `size` ranks, in every order with at most `preemptions`
/// preemptions, and checks the results.
fn explore<R: Send + 'static>(
    size: usize,
    wait: WaitStrategy,
    preemptions: usize,
    rank: fn(ThreadCommunicator) -> R,
    check: impl Fn(Vec<R>) + Send + Sync + 'static,
) {
    let mut model = Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 100_000;
    model.check(move || {
        let world = ThreadWorld::new(size).with_wait(wait).with_timeout(Duration::from_secs(1 << 30));
        let mut communicators = world.communicators();
        let mine = communicators.remove(0);
        let others: Vec<_> =
            communicators.into_iter().map(|communicator| thread::spawn(move || rank(communicator))).collect();
        let mut results = vec![rank(mine)];
        results.extend(others.into_iter().map(|thread| thread.join().expect("no rank panics")));
        check(results);
    });
}

const STRATEGIES: [WaitStrategy; 2] = [WaitStrategy::Yield, WaitStrategy::Park];

/// In this build, three elements are two units of work.
fn all_reduce(ranks: ThreadCommunicator) -> Result<Vec<f32>> {
    let mut buffer = HostBuffer::from(vec![ranks.rank() as f32 + 1.0; 3]);
    ranks.all_reduce(&mut buffer, ReduceOp::Sum, &mut ())?;
    Ok(buffer.into_vec())
}

#[test]
fn two_ranks_all_reduce() {
    for wait in STRATEGIES {
        explore(2, wait, 3, all_reduce, |results| assert_eq!(results, vec![Ok(vec![3.0; 3]); 2]));
    }
}

#[test]
fn three_parking_ranks_all_reduce() {
    explore(3, WaitStrategy::Park, 2, all_reduce, |results| assert_eq!(results, vec![Ok(vec![6.0; 3]); 3]));
}

#[test]
fn three_yielding_ranks_all_reduce() {
    // A yield is no preemption: threads still change places at every poll.
    explore(3, WaitStrategy::Yield, 0, all_reduce, |results| assert_eq!(results, vec![Ok(vec![6.0; 3]); 3]));
}

/// Consecutive operations reuse the group's table while slower ranks still finish the first one.
#[test]
fn consecutive_operations_complete() {
    explore(
        2,
        WaitStrategy::Park,
        2,
        |ranks| -> Result<Vec<u8>> {
            ranks.barrier(&mut ())?;
            let mut gathered = HostBuffer::from(vec![0_u8; 2]);
            ranks.all_gather(&mut vec![ranks.rank() as u8 + 5].into(), &mut gathered, &mut ())?;
            Ok(gathered.into_vec())
        },
        |results| assert_eq!(results, vec![Ok(vec![5, 6]); 2]),
    );
}

/// A rank that only starts its part completes it after the other rank has all its data.
#[test]
fn concurrent_operations_complete_in_any_order() {
    explore(
        2,
        WaitStrategy::Park,
        2,
        |ranks| -> Result<(Vec<i32>, Vec<i32>)> {
            let first = ranks.start_all_reduce(vec![1].into(), ReduceOp::Sum, &mut ())?;
            let second = ranks.start_all_reduce(vec![2].into(), ReduceOp::Sum, &mut ())?;
            // The ranks wait in opposite orders.
            if ranks.rank() == 0 {
                let second = second.wait()?;
                Ok((first.wait()?.into_vec(), second.into_vec()))
            } else {
                Ok((first.wait()?.into_vec(), second.wait()?.into_vec()))
            }
        },
        |results| assert_eq!(results, vec![Ok((vec![2], vec![4])); 2]),
    );
}

#[test]
fn a_message_arrives() {
    explore(
        2,
        WaitStrategy::Park,
        3,
        |ranks| -> Result<Vec<f64>> {
            let mut buffer = HostBuffer::from(vec![ranks.rank() as f64; 2]);
            if ranks.rank() == 0 {
                ranks.send(&mut buffer, 1, 7, &mut ())?;
            } else {
                ranks.receive(&mut buffer, 0, 7, &mut ())?;
            }
            Ok(buffer.into_vec())
        },
        |results| assert_eq!(results, vec![Ok(vec![0.0; 2]); 2]),
    );
}

/// A rank that leaves wakes the ranks that wait for it with an error.
#[test]
fn a_departure_wakes_waiting_ranks() {
    fn leave(ranks: ThreadCommunicator) -> Option<Result<()>> {
        (ranks.rank() != 1).then(|| ranks.barrier(&mut ()))
    }
    for (size, preemptions) in [(2, 3), (3, 2)] {
        explore(size, WaitStrategy::Park, preemptions, leave, |results| {
            for (rank, result) in results.into_iter().enumerate() {
                match result {
                    None => assert_eq!(rank, 1),
                    Some(result) => assert!(
                        matches!(result, Err(Error::RankFailed { rank: 1, how: Departure::Left, .. })),
                        "{result:?}"
                    ),
                }
            }
        });
    }
}

/// Both ranks get the error of mismatched calls, and the group remains usable.
#[test]
fn a_mismatch_is_an_error_on_both_ranks() {
    explore(
        2,
        WaitStrategy::Park,
        2,
        |ranks| {
            let mut buffer = HostBuffer::from(vec![0_u8; 1 + ranks.rank()]);
            let mismatch = ranks.all_reduce(&mut buffer, ReduceOp::Max, &mut ());
            (mismatch, ranks.barrier(&mut ()))
        },
        |results| {
            for (mismatch, afterwards) in results {
                assert!(matches!(mismatch, Err(Error::Mismatch { .. })), "{mismatch:?}");
                assert_eq!(afterwards, Ok(()));
            }
        },
    );
}
