//! A rank's mistake or end is an error on every other rank, which names it.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use collectives::{
    Call, Communicator, Departure, ElementType, Error, Group, HostBuffer, Operation, ReduceOp, Request,
    Result, ThreadCommunicator, ThreadWorld, WaitStrategy,
};
use proptest::prelude::*;

const STRATEGIES: [WaitStrategy; 3] = [WaitStrategy::Spin, WaitStrategy::Yield, WaitStrategy::Park];

fn all_reduce_call(count: usize, op: ReduceOp, element: ElementType) -> Call {
    Call { operation: Operation::AllReduce { count, op }, element: Some(element) }
}

/// Runs three ranks, of which rank 1 calls `odd` and the others all-reduce four floats. Asserts
/// that all get a mismatch with rank 1's call, and that the group remains usable.
fn check_mismatch(odd: impl Fn(&ThreadCommunicator) -> Result<()> + Sync, odd_call: &Call) {
    let results = ThreadWorld::new(3).run(|ranks| {
        let outcome = if ranks.rank() == 1 {
            odd(&ranks)
        } else {
            ranks.all_reduce(&mut vec![0.0_f32; 4].into(), ReduceOp::Sum, &mut ())
        };
        ranks.barrier(&mut ()).map(|()| outcome)
    });
    for result in results {
        let error = result.expect("the next operation is unharmed").expect_err("the calls differ");
        let Error::Mismatch { first, first_call, second, second_call } = &error else {
            panic!("not a mismatch: {error}");
        };
        let (one, other) = if *first == 1 { (first_call, second_call) } else { (second_call, first_call) };
        assert!(*first == 1 || *second == 1, "{error}");
        assert_eq!(**one, *odd_call);
        assert_eq!(**other, all_reduce_call(4, ReduceOp::Sum, ElementType::F32));
    }
}

#[test]
fn a_different_operation_length_reduction_or_type_is_a_mismatch() {
    check_mismatch(|ranks| ranks.barrier(&mut ()), &Call { operation: Operation::Barrier, element: None });
    check_mismatch(
        |ranks| ranks.split(None, 0).map(|_| ()),
        &Call { operation: Operation::Split, element: None },
    );
    check_mismatch(
        |ranks| ranks.all_reduce(&mut vec![0.0_f32; 5].into(), ReduceOp::Sum, &mut ()),
        &all_reduce_call(5, ReduceOp::Sum, ElementType::F32),
    );
    check_mismatch(
        |ranks| ranks.all_reduce(&mut vec![0.0_f32; 4].into(), ReduceOp::Max, &mut ()),
        &all_reduce_call(4, ReduceOp::Max, ElementType::F32),
    );
    check_mismatch(
        |ranks| ranks.all_reduce(&mut vec![0_i32; 4].into(), ReduceOp::Sum, &mut ()),
        &all_reduce_call(4, ReduceOp::Sum, ElementType::I32),
    );
    check_mismatch(
        |ranks| ranks.broadcast(&mut vec![0.0_f32; 4].into(), 0, &mut ()),
        &Call { operation: Operation::Broadcast { count: 4, root: 0 }, element: Some(ElementType::F32) },
    );
}

#[test]
fn a_different_root_or_chunk_length_is_a_mismatch() {
    let results = ThreadWorld::new(2).run(|ranks| {
        let me = ranks.rank();
        let roots = ranks.broadcast(&mut vec![0_u8; 4].into(), me, &mut ());
        // Both send one element to the other, and rank 1 expects two.
        let chunks = ranks.all_to_all_v(
            &mut vec![0_u8].into(),
            &[me, 1 - me],
            &mut vec![0; 1 + me].into(),
            &[me * 2, 1 - me],
            &mut (),
        );
        (roots, chunks)
    });
    for (roots, chunks) in results {
        assert!(matches!(roots, Err(Error::Mismatch { .. })), "{roots:?}");
        assert!(matches!(chunks, Err(Error::Mismatch { .. })), "{chunks:?}");
    }
}

#[test]
fn a_message_of_a_different_length_is_a_mismatch_on_both_ranks() {
    let results = ThreadWorld::new(2).run(|ranks| {
        if ranks.rank() == 0 {
            ranks.send(&mut vec![1.0_f64; 3].into(), 1, 9, &mut ())
        } else {
            ranks.receive(&mut vec![0.0_f64; 4].into(), 0, 9, &mut ())
        }
    });
    for result in results {
        let error = result.expect_err("the lengths differ").to_string();
        assert!(error.contains("send (3 f64 to 1, tag 9)"), "{error}");
        assert!(error.contains("receive (4 f64 from 0, tag 9)"), "{error}");
    }
}

#[test]
fn a_wrong_buffer_length_of_one_rank_is_an_error_on_all() {
    let results = ThreadWorld::new(3).run(|ranks| {
        let len = if ranks.rank() == 2 { 5 } else { 6 };
        ranks.all_gather(&mut vec![0.5_f32; 2].into(), &mut vec![0.0; len].into(), &mut ())
    });
    let call = Call { operation: Operation::AllGather { count: 2 }, element: Some(ElementType::F32) };
    let expected = Error::WrongLength { rank: 2, call, buffer: "receive buffer", expected: 6, actual: 5 };
    assert_eq!(results, [Err(expected.clone()), Err(expected.clone()), Err(expected)]);
}

#[test]
fn a_rank_out_of_range_is_an_error() {
    let results = ThreadWorld::new(2).run(|ranks| {
        let buffer = || HostBuffer::from(vec![0_u8; 1]);
        [
            ranks.send(&mut buffer(), 2, 0, &mut ()),
            ranks.receive(&mut buffer(), 7, 0, &mut ()),
            ranks.broadcast(&mut buffer(), 3, &mut ()),
        ]
    });
    for outcomes in results {
        let rank = |rank| Err(Error::NoSuchRank { rank, size: 2 });
        assert_eq!(outcomes, [rank(2), rank(7), rank(3)]);
    }
}

#[test]
fn a_rank_that_leaves_is_named_in_the_error() {
    for wait in STRATEGIES {
        let results = ThreadWorld::new(3).with_wait(wait).run(|ranks| {
            let mut buffer = HostBuffer::from(vec![1_i64; 2]);
            ranks.all_reduce(&mut buffer, ReduceOp::Sum, &mut ())?;
            if ranks.rank() == 1 {
                return Ok(buffer);
            }
            ranks.all_reduce(&mut buffer, ReduceOp::Sum, &mut ())?;
            Ok(buffer)
        });
        assert_eq!(results[1], Ok(vec![3, 3].into()));
        let call = all_reduce_call(2, ReduceOp::Sum, ElementType::I64);
        let departed = Error::RankFailed { rank: 1, how: Departure::Left, call };
        for result in [&results[0], &results[2]] {
            assert_eq!(*result, Err(departed.clone()));
        }
    }
}

/// Rank 0 panics while rank 1 waits for it, rank 2 waits for rank 1 in another group, and rank 3
/// polls.
#[test]
fn a_panic_is_an_error_on_every_rank() {
    for wait in STRATEGIES {
        let outcomes = Mutex::new(Vec::new());
        let world = ThreadWorld::new(4).with_wait(wait);
        let began = Instant::now();
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            world.run(|ranks| {
                ranks.barrier(&mut ()).expect("all ranks are there");
                let outcome = match ranks.rank() {
                    0 => panic!("on purpose"),
                    1 => ranks.receive(&mut vec![0_u8].into(), 0, 0, &mut ()),
                    2 => ranks.group(&[1, 2]).and_then(|pair| pair.barrier(&mut ())),
                    _ => ranks.start_barrier(&mut ()).and_then(|mut barrier| {
                        while !barrier.test()? {}
                        Ok(())
                    }),
                };
                outcomes.lock().expect("no thread panics here").push(outcome);
            });
        }));
        assert_eq!(panic.expect_err("the panic goes on").downcast_ref(), Some(&"on purpose"));
        assert!(began.elapsed() < Duration::from_secs(5));
        let outcomes = outcomes.into_inner().expect("no thread panicked");
        assert_eq!(outcomes.len(), 3);
        for outcome in outcomes {
            assert!(
                matches!(outcome, Err(Error::RankFailed { rank: 0, how: Departure::Panicked, .. })),
                "{outcome:?}"
            );
        }
    }
}

/// Rank 0 panics later because of rank 1's panic, which is the one that propagates.
#[test]
fn the_first_panic_propagates() {
    let panic = std::panic::catch_unwind(|| {
        ThreadWorld::new(2).run(|ranks| {
            if ranks.rank() == 1 {
                std::panic::resume_unwind(Box::new("the cause"));
            }
            let outcome = ranks.barrier(&mut ());
            std::panic::resume_unwind(Box::new(outcome.expect_err("rank 1 has panicked")));
        });
    });
    assert_eq!(panic.expect_err("both panic").downcast_ref(), Some(&"the cause"));
}

#[test]
fn a_missing_rank_is_named_and_gets_the_error_itself() {
    for wait in STRATEGIES {
        let late = std::sync::Barrier::new(3);
        let world = ThreadWorld::new(3).with_wait(wait).with_timeout(Duration::from_millis(30));
        let results = world.run(|ranks| {
            if ranks.rank() == 2 {
                late.wait();
                ranks.barrier(&mut ())
            } else {
                let outcome = ranks.barrier(&mut ());
                late.wait();
                outcome
            }
        });
        for result in results {
            let Err(Error::TimedOut { missing, call, waited }) = result else { panic!("{result:?}") };
            assert_eq!((missing, call.operation), (vec![2], Operation::Barrier));
            assert!(waited >= Duration::from_millis(30) && waited < Duration::from_secs(5), "{waited:?}");
        }
    }
}

#[test]
fn an_expired_limit_is_no_failure() {
    let late = std::sync::Barrier::new(2);
    let results = ThreadWorld::new(2).run(|ranks| {
        if ranks.rank() == 1 {
            late.wait();
            return ranks.barrier(&mut ());
        }
        let mut barrier = ranks.start_barrier(&mut ())?;
        assert_eq!(barrier.wait_timeout(Duration::from_millis(5)), Ok(false));
        late.wait();
        barrier.wait()
    });
    assert_eq!(results, [Ok(()), Ok(())]);
}

/// Moment of an operation at which a rank ends.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// Before its call.
    Before,
    /// Between its call and the end of the operation, after at most one unit of work.
    Within,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// A rank ends before or during a random operation, by a return or a panic, while the others
    /// are anywhere in it. All other ranks fail in the same operation, the first that cannot
    /// complete, and name that rank.
    #[test]
    fn the_end_of_any_rank_at_any_time_is_reported_by_all(
        size in 2..=6_usize,
        victim in 0..6_usize,
        end in 0..20_usize,
        moment in prop_oneof![Just(Moment::Before), Just(Moment::Within)],
        panics in any::<bool>(),
        len in prop_oneof![Just(64_usize), Just(200_000)],
        wait in prop_oneof![Just(WaitStrategy::Spin), Just(WaitStrategy::Yield), Just(WaitStrategy::Park)],
    ) {
        let victim = victim % size;
        let world = ThreadWorld::new(size).with_wait(wait).with_timeout(Duration::from_secs(20));
        let threads: Vec<_> = world.communicators().into_iter().map(|ranks| {
            std::thread::spawn(move || -> (usize, Result<()>) {
                let mut buffer = HostBuffer::from(vec![0.5_f32; len]);
                for step in 0..20 {
                    if ranks.rank() == victim && step == end {
                        if let Moment::Within = moment {
                            let request = ranks.start_all_reduce(buffer, ReduceOp::Max, &mut ());
                            let _ = request.and_then(|mut request| request.test());
                        }
                        if panics {
                            // Unwinds like a panic, without a message on the terminal.
                            std::panic::resume_unwind(Box::new(()));
                        }
                        return (step, Ok(()));
                    }
                    if let Err(error) = ranks.all_reduce(&mut buffer, ReduceOp::Max, &mut ()) {
                        return (step, Err(error));
                    }
                    assert_eq!(buffer, vec![0.5; len]);
                }
                (20, Ok(()))
            })
        }).collect();
        let mut failed_in = Vec::new();
        for (rank, thread) in threads.into_iter().enumerate().filter(|(rank, _)| *rank != victim) {
            let (step, result) = thread.join().expect("only the victim panics");
            failed_in.push(step);
            if step == 20 {
                prop_assert_eq!(result, Ok(()), "rank {}", rank);
                continue;
            }
            // An operation fails once, for all: no error names a rank that left because of the
            // victim.
            let Err(Error::RankFailed { rank: named, how, call }) = result else { panic!("{result:?}") };
            let expected = if panics { Departure::Panicked } else { Departure::Left };
            prop_assert_eq!((named, how), (victim, expected));
            prop_assert_eq!(call, all_reduce_call(len, ReduceOp::Max, ElementType::F32));
        }
        failed_in.dedup();
        let possible = match moment {
            Moment::Before => end..=end,
            // The others execute its units, unless one of them is later than the panic, which fails
            // operations that have not begun.
            Moment::Within if panics => end..=end + 1,
            Moment::Within => end + 1..=end + 1,
        };
        prop_assert!(matches!(failed_in[..], [step] if possible.contains(&step)), "{:?}", failed_in);
    }
}
