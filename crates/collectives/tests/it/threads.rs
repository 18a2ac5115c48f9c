//! The suite's laws on threads, and properties of threads alone.

use collectives::{
    Communicator, Element, Group, ReduceOp, Request, Result, ThreadCommunicator, ThreadWorld, WaitStrategy,
    bf16, f16,
};
use proptest::prelude::*;

use crate::suite::{self, Case};

suite::host_memory!(ThreadCommunicator, checks: true, reduces_half: true);

fn worlds() -> impl Strategy<Value = ThreadWorld> {
    let wait = prop_oneof![Just(WaitStrategy::Yield), Just(WaitStrategy::Park), Just(WaitStrategy::Spin)];
    // Spinning ranks that outnumber the cores only waste time: two ranks cover that code.
    (1..=8_usize, wait).prop_map(|(size, wait)| {
        let size = if wait == WaitStrategy::Spin { size.min(2) } else { size };
        ThreadWorld::new(size).with_wait(wait)
    })
}

/// Unwraps what each rank returned.
fn all_ok<R>(results: Vec<Result<R>>) -> Vec<R> {
    results.into_iter().map(|result| result.expect("the operation succeeds")).collect()
}

fn check(world: &ThreadWorld, case: &Case, law: fn(&ThreadCommunicator, &Case) -> Result<()>) {
    all_ok(world.run(|ranks| law(&ranks, case)));
}

macro_rules! laws {
    (any memory { $($any:ident)* } host memory { $($host:ident)* }) => {
        proptest! {
            #![proptest_config(ProptestConfig::with_cases(32))]
            $(
                #[test]
                fn $any(world in worlds(), case in suite::cases()) {
                    check(&world, &case, suite::$any);
                }
            )*
            $(
                #[test]
                fn $host(world in worlds(), case in suite::cases()) {
                    check(&world, &case, suite::$host);
                }
            )*
        }
    };
}

suite::for_each_law!(laws);

/// Returns a rank's input: numbers whose float sums depend on the order of summation.
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

/// Reduces all ranks' inputs, one element at a time in the order of the ranks.
fn reduced<T: Element>(op: ReduceOp, inputs: &[Vec<T>]) -> Vec<T> {
    let mut result = inputs[0].clone();
    for (i, element) in result.iter_mut().enumerate() {
        let column: Vec<&[T]> = inputs.iter().map(|input| &input[i..=i]).collect();
        T::reduce(op, &column, std::slice::from_mut(element));
    }
    result
}

fn check_rank_order<T: Element>(world: &ThreadWorld, case: &Case, from_bits: fn(u64) -> T) {
    let results = all_ok(world.run(|ranks| {
        let mut buffer = suite::host_buffer(&input(ranks.rank(), case.len, from_bits));
        ranks.all_reduce(&mut buffer, case.op, &mut ())?;
        Ok(buffer)
    }));
    let inputs: Vec<_> = (0..results.len()).map(|rank| input(rank, case.len, from_bits)).collect();
    let expected = reduced(case.op, &inputs);
    for result in results {
        assert_eq!(result, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn all_reduce_is_bitwise_the_reduction_in_rank_order(world in worlds(), case in suite::cases()) {
        check_rank_order(&world, &case, float);
        check_rank_order(&world, &case, integer);
        check_rank_order(&world, &case, |bits| bits as u8);
        check_rank_order(&world, &case, |bits| f16::from_f32(float(bits)));
        check_rank_order(&world, &case, |bits| bf16::from_f32(float(bits)));
    }
}

#[test]
fn a_busy_rank_does_not_delay_the_others() {
    let done = std::sync::Barrier::new(3);
    let results = ThreadWorld::new(3).run(|ranks| {
        let request = ranks.start_all_reduce(vec![1.5_f64; 9_000].into(), ReduceOp::Sum, &mut ())?;
        if ranks.rank() == 0 {
            // Rank 0 is busy until the others are done: they must execute its units, too.
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

/// After each rank has tested a ready operation once, it is complete: a test does the share of its
/// rank, and not only a part of it.
#[test]
fn a_test_does_the_share_of_its_rank() {
    for (ranks, count) in [(2, 1), (2, 1 << 20), (3, (1 << 20) + 7), (4, 100_000)] {
        let turn = std::sync::Barrier::new(ranks);
        let tested = all_ok(ThreadWorld::new(ranks).run(|rank| {
            let mut request = rank.start_all_reduce(vec![1_i64; count].into(), ReduceOp::Sum, &mut ())?;
            let mut is_complete = false;
            turn.wait();
            for other in 0..ranks {
                if other == rank.rank() {
                    is_complete = request.test()?;
                }
                turn.wait();
            }
            let reduced = request.wait()?;
            assert!(reduced.iter().all(|&sum| Ok(sum) == i64::try_from(ranks)));
            Ok(is_complete)
        }));
        assert!(tested[ranks - 1], "{count} elements on {ranks} ranks: {tested:?}");
    }
}
