//! Every collective equals its sequential definition, on any number of ranks.
#![expect(clippy::cast_possible_wrap, reason = "ranks and samples are small numbers")]

use collectives::{
    Communicator, Element, Group, ReduceOp, Request, Result, ThreadWorld, WaitStrategy, bf16, f16,
};
use proptest::prelude::*;

/// Rank `rank`'s input: numbers whose float sums depend on the order of summation.
fn input<T: Element>(rank: usize, len: usize, from_bits: impl Fn(u64) -> T) -> Vec<T> {
    (0..len)
        .map(|i| from_bits((rank as u64 * 7_919 + i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        .collect()
}

fn float(bits: u64) -> f32 {
    (bits >> 40) as f32 / 1e4 - 800.0
}

fn integer(bits: u64) -> i64 {
    i64::from_ne_bytes(bits.to_ne_bytes())
}

/// The reduction of all ranks' inputs, one element at a time in the order of the ranks.
fn reduced<T: Element>(op: ReduceOp, inputs: &[Vec<T>]) -> Vec<T> {
    let mut result = inputs[0].clone();
    for (i, element) in result.iter_mut().enumerate() {
        let column: Vec<&[T]> = inputs.iter().map(|input| &input[i..=i]).collect();
        T::reduce(op, &column, std::slice::from_mut(element));
    }
    result
}

/// Unwraps what each rank returned.
fn all_ok<R>(results: Vec<Result<R>>) -> Vec<R> {
    results.into_iter().map(|result| result.expect("the operation succeeds")).collect()
}

fn worlds() -> impl Strategy<Value = ThreadWorld> {
    let wait = prop_oneof![Just(WaitStrategy::Yield), Just(WaitStrategy::Park), Just(WaitStrategy::Spin)];
    // Spinning ranks that outnumber the cores only waste time slices: two are enough to run that code.
    (1..=8_usize, wait).prop_map(|(size, wait)| {
        let size = if wait == WaitStrategy::Spin { size.min(2) } else { size };
        ThreadWorld::new(size).with_wait(wait)
    })
}

fn ops() -> impl Strategy<Value = ReduceOp> {
    prop_oneof![Just(ReduceOp::Sum), Just(ReduceOp::Max), Just(ReduceOp::Min)]
}

/// Lengths with the corner cases: nothing, less than a rank each, and enough for an all-reduce in several pieces.
fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0), 1..10_usize, 10..2_000_usize, 9_000..20_000_usize]
}

fn check_all_reduce<T: Element>(world: &ThreadWorld, op: ReduceOp, len: usize, from_bits: fn(u64) -> T) {
    let results = all_ok(world.run(|ranks| {
        let mut buffer = input(ranks.rank(), len, from_bits);
        ranks.all_reduce(&mut buffer, op, &mut ())?;
        Ok(buffer)
    }));
    let inputs: Vec<_> = (0..results.len()).map(|rank| input(rank, len, from_bits)).collect();
    let expected = reduced(op, &inputs);
    for result in results {
        assert_eq!(result, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn all_reduce_is_the_reduction_in_rank_order(world in worlds(), op in ops(), len in lengths()) {
        check_all_reduce(&world, op, len, float);
        check_all_reduce(&world, op, len, integer);
        check_all_reduce(&world, op, len, |bits| bits as u8);
        check_all_reduce(&world, op, len, |bits| f16::from_f32(float(bits)));
        check_all_reduce(&world, op, len, |bits| bf16::from_f32(float(bits)));
    }

    #[test]
    fn reduce_scatter_then_all_gather_is_all_reduce(world in worlds(), op in ops(), chunk in 0..6_000_usize) {
        let results = all_ok(world.run(|ranks| {
            let (rank, size) = (ranks.rank(), ranks.size());
            let mut whole = input(rank, chunk * size, float);
            let mut mine = vec![0.0; chunk];
            ranks.reduce_scatter(&mut whole, &mut mine, op, &mut ())?;
            let untouched = whole == input(rank, chunk * size, float);
            let mut gathered = vec![0.0; chunk * size];
            ranks.all_gather(&mut mine, &mut gathered, &mut ())?;
            ranks.all_reduce(&mut whole, op, &mut ())?;
            Ok((untouched, gathered, whole))
        }));
        for (untouched, gathered, reduced) in results {
            prop_assert!(untouched, "a send buffer comes back as it was");
            prop_assert_eq!(gathered, reduced);
        }
    }

    #[test]
    fn broadcast_copies_the_root(world in worlds(), root in 0..8_usize, len in lengths()) {
        let results = all_ok(world.run(|ranks| {
            let root = root % ranks.size();
            let mut buffer = input(ranks.rank(), len, integer);
            ranks.broadcast(&mut buffer, root, &mut ())?;
            Ok((buffer, input(root, len, integer)))
        }));
        for (copy, original) in results {
            prop_assert_eq!(copy, original);
        }
    }

    #[test]
    fn all_gather_concatenates(world in worlds(), len in lengths()) {
        let results = all_ok(world.run(|ranks| {
            let mut gathered = vec![0; len * ranks.size()];
            ranks.all_gather(&mut input(ranks.rank(), len, integer), &mut gathered, &mut ())?;
            Ok(gathered)
        }));
        let expected: Vec<i64> = (0..results.len()).flat_map(|rank| input(rank, len, integer)).collect();
        for gathered in results {
            prop_assert_eq!(&gathered, &expected);
        }
    }

    #[test]
    fn all_to_all_v_transposes(
        world in worlds(),
        counts in prop::collection::vec(prop::collection::vec(0..40_usize, 8), 8),
    ) {
        // `counts[s][r]` elements go from s to r, each worth 1000 s + r.
        let results = all_ok(world.run(|ranks| {
            let (rank, size) = (ranks.rank(), ranks.size());
            let chunk = |from: usize, to: usize| vec![(1_000 * from + to) as i32; counts[from][to]];
            let mut send: Vec<i32> = (0..size).flat_map(|to| chunk(rank, to)).collect();
            let expected: Vec<i32> = (0..size).flat_map(|from| chunk(from, rank)).collect();
            let receive_counts: Vec<usize> = (0..size).map(|from| counts[from][rank]).collect();
            let mut receive = vec![0; expected.len()];
            ranks.all_to_all_v(&mut send, &counts[rank][..size], &mut receive, &receive_counts, &mut ())?;
            Ok((receive, expected))
        }));
        for (received, expected) in results {
            prop_assert_eq!(received, expected);
        }
    }

    #[test]
    fn messages_arrive_in_order_under_their_tag(
        world in worlds(),
        messages in prop::collection::vec((0..8_usize, 0..8_usize, 0..3_u32, 0..50_usize), 0..20),
    ) {
        // All receives are started before the first send is waited for, so that any pattern of senders is fine.
        let results = world.run(|ranks| {
            let (rank, size) = (ranks.rank(), ranks.size());
            let (mut sends, mut receives) = (Vec::new(), Vec::new());
            for (i, &(from, to, tag, len)) in messages.iter().enumerate() {
                if from % size == rank {
                    sends.push(ranks.start_send(input(i, len, float), to % size, tag, &mut ())?);
                }
                if to % size == rank {
                    receives.push((i, len, ranks.start_receive(vec![0.0; len], from % size, tag, &mut ())?));
                }
            }
            for (i, len, receive) in receives.into_iter().rev() {
                assert_eq!(receive.wait()?, input(i, len, float));
            }
            sends.into_iter().try_for_each(|send| send.wait().map(|_| ()))
        });
        all_ok(results);
    }

    #[test]
    fn requests_complete_in_any_order(
        world in worlds(),
        orders in prop::collection::vec(Just((0..6_usize).collect::<Vec<_>>()).prop_shuffle(), 8),
        polls in any::<bool>(),
    ) {
        let results = world.run(|ranks| {
            let (rank, size) = (ranks.rank() as i64, ranks.size() as i64);
            let mut requests = (0..6_i64)
                .map(|i| ranks.start_all_reduce(vec![i * 100 + rank; 3], ReduceOp::Sum, &mut ()).map(Some))
                .collect::<Result<Vec<_>>>()?;
            for &i in &orders[ranks.rank()] {
                let mut request = requests[i].take().expect("each is waited for once");
                while polls && !request.test()? {
                    std::thread::yield_now();
                }
                let sum = i as i64 * 100 * size + size * (size - 1) / 2;
                assert_eq!(request.wait()?, [sum; 3]);
            }
            Ok(())
        });
        all_ok(results);
    }
}

#[test]
fn a_barrier_lets_nobody_pass_before_the_last_has_come() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let world = ThreadWorld::new(5);
    for _ in 0..50 {
        let come = AtomicUsize::new(0);
        let seen = all_ok(world.run(|ranks| {
            come.fetch_add(1, Ordering::SeqCst);
            ranks.barrier(&mut ())?;
            Ok(come.load(Ordering::SeqCst))
        }));
        assert_eq!(seen, [5; 5]);
    }
}

#[test]
fn a_rank_that_only_started_holds_nobody_up() {
    let done = std::sync::Barrier::new(3);
    let results = ThreadWorld::new(3).run(|ranks| {
        let request = ranks.start_all_reduce(vec![1.5_f64; 9_000], ReduceOp::Sum, &mut ())?;
        if ranks.rank() == 0 {
            // Rank 0 is busy until the others are done: they must finish its part too.
            done.wait();
            request.wait()
        } else {
            let sums = request.wait();
            done.wait();
            sums
        }
    });
    for sums in all_ok(results) {
        assert_eq!(sums, vec![4.5; 9_000]);
    }
}

#[test]
fn a_dropped_request_does_not_disturb_the_others() {
    let results = ThreadWorld::new(3).run(|ranks| {
        let request = ranks.start_all_reduce(vec![1], ReduceOp::Sum, &mut ())?;
        if ranks.rank() == 1 {
            drop(request);
            return ranks.barrier(&mut ()).map(|()| 3);
        }
        let sum = request.wait()?[0];
        ranks.barrier(&mut ())?;
        Ok(sum)
    });
    assert_eq!(all_ok(results), [3_i32; 3]);
}

#[test]
fn a_buffer_comes_back_in_its_own_memory() {
    let results = ThreadWorld::new(2).run(|ranks| {
        let mut buffer = vec![1_i32; 20_000];
        let address = buffer.as_ptr() as usize;
        ranks.all_reduce(&mut buffer, ReduceOp::Sum, &mut ())?;
        Ok(buffer.as_ptr() as usize == address)
    });
    assert_eq!(all_ok(results), [true, true]);
}
