//! All-reduces around the size up to which data is sent eagerly, with the headers.
#![allow(clippy::cast_possible_wrap, reason = "bits are compared, and ranks are small numbers")]

use collectives::{
    Communicator, Element, Error, Group, HostBuffer, MpiCommunicator, MpiWorld, ReduceOp, Request, Result,
    ThreadWorld,
};

use super::start;

/// Maximum number of bytes that a rank sends eagerly to all others together.
const MAX_EAGER_BYTES: usize = 16 << 10;

/// For groups of each size and sums that round: all ranks get the same bits. Eager all-reduces also
/// get the bits of threads.
pub(crate) fn around_the_limit() {
    let world = start(&MpiWorld::new());
    for size in 1..=world.size() {
        let list: Vec<usize> = (0..size).rev().collect();
        if !list.contains(&world.rank()) {
            continue;
        }
        let group = world.group(&list).expect("the group is made");
        for op in [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min] {
            same_as_threads(&group, op, |bits| f32::from(bits as u16) / 3.0, |x: f32| x.to_bits().into());
            same_as_threads(&group, op, |bits| f64::from(bits) / 7.0, f64::to_bits);
            same_as_threads(&group, op, |bits| bits as i32, |x: i32| x as u64);
            same_as_threads(&group, op, |bits| i64::from(bits) << 31, |x: i64| x as u64);
            same_as_threads(&group, op, |bits| bits as u8, u64::from);
        }
    }
}

fn same_as_threads<T: Element>(
    group: &MpiCommunicator,
    op: ReduceOp,
    element: fn(u32) -> T,
    bits: fn(T) -> u64,
) {
    let (rank, size) = (group.rank(), group.size());
    let max = MAX_EAGER_BYTES / size_of::<T>() / (size - 1).max(1);
    for count in [0, 1, 255, 2_048 / size_of::<T>(), max - 1, max, max + 1, 3 * max] {
        let input = |rank: usize| -> HostBuffer<T> {
            let number = |i: usize| (rank * 7_919 + i + 1) as u32;
            (0..count).map(|i| element(number(i).wrapping_mul(0x9e37_79b9) >> 3)).collect()
        };
        let all = |buffer: HostBuffer<T>| -> Vec<u64> { buffer.iter().copied().map(bits).collect() };
        let mut ours = input(rank);
        group.all_reduce(&mut ours, op, &mut ()).expect("all ranks call it");
        let ours = all(ours);
        let theirs = ThreadWorld::new(size).run(|thread| {
            let mut buffer = input(thread.rank());
            thread.all_reduce(&mut buffer, op, &mut ()).map(|()| buffer)
        });
        let theirs = all(theirs[rank].clone().expect("threads have no trouble"));
        let what = format!("{op} of {count} {} on {size} ranks", T::TYPE);
        if count <= max {
            assert!(ours == theirs, "{what}: other bits than those of threads");
        }
        let mut first: HostBuffer<i64> = ours.iter().map(|&bits| bits as i64).collect();
        group.broadcast(&mut first, 0, &mut ()).expect("all ranks call it");
        assert!(first.iter().map(|bits| *bits as u64).eq(ours), "{what}: other bits than rank 0's");
    }
}

/// One rank makes another call than an eager all-reduce, while later operations are already
/// pending. All ranks get the error, and the later operations get their own data.
pub(crate) fn mismatched() {
    let ranks = start(&MpiWorld::new());
    for odd in 0..ranks.size() {
        for choice in 0..6 {
            let wrong = start_one(&ranks, if ranks.rank() == odd { choice } else { 0 }).expect("it starts");
            let (small, large) = (start_sum(&ranks, 3_000 / ranks.size()), start_sum(&ranks, 100_000));
            let outcome = wrong();
            let is_mismatch = matches!(
                &outcome,
                Err(Error::Mismatch { first, second, .. }) if *first == odd || *second == odd
            );
            assert!(is_mismatch || (choice == 0 && outcome == Ok(())), "{odd}, {choice}: {outcome:?}");
            small();
            large();
        }
    }
}

type Waiting = Box<dyn FnOnce() -> Result<()>>;

fn start_one(ranks: &MpiCommunicator, choice: usize) -> Result<Waiting> {
    fn of<R: Request + 'static>(request: R) -> Waiting {
        Box::new(|| request.wait().map(|_| ()))
    }
    let (op, queue) = (ReduceOp::Sum, &mut ());
    Ok(match choice {
        0 => of(ranks.start_all_reduce(vec![1.0_f32; 1_000].into(), op, queue)?),
        1 => of(ranks.start_all_reduce(vec![2.0_f32; 50_000].into(), op, queue)?),
        2 => of(ranks.start_all_reduce(vec![3.0_f32; 10].into(), op, queue)?),
        3 => of(ranks.start_all_reduce(vec![4_i64; 1_000].into(), op, queue)?),
        4 => of(ranks.start_broadcast(vec![5.0_f32; 1_000].into(), 0, queue)?),
        _ => of(ranks.start_barrier(queue)?),
    })
}

/// Starts to sum `count` copies of the ranks' numbers. The returned function checks the sums.
fn start_sum(ranks: &MpiCommunicator, count: usize) -> impl FnOnce() {
    let size = ranks.size() as i32;
    let input = vec![ranks.rank() as i32 + 1; count].into();
    let request = ranks.start_all_reduce(input, ReduceOp::Sum, &mut ()).expect("it starts");
    move || {
        let sums = request.wait().expect("all ranks call it");
        assert!(sums.len() == count && sums.iter().all(|&sum| sum == size * (size + 1) / 2), "{count}");
    }
}
