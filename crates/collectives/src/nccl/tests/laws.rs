//! The suite's laws on NCCL, and properties of NCCL alone.
#![allow(clippy::cast_possible_wrap, reason = "ranks and samples are small numbers")]

#[path = "../../../tests/suite/mod.rs"]
#[allow(dead_code, unused_macros, unused_imports, reason = "laws on host memory are for other backends")]
mod suite;

use std::sync::Arc;

use cuda::{Buffer, Stream};
use proptest::prelude::*;

use super::{blank, download, run_all, stream, upload};
use crate::nccl::NcclCommunicator;
use crate::{
    Communicator, Element, Group, Layout, Redistribution, RedistributionBuffers, ReduceOp, Request, Result,
};

impl suite::Ranks for NcclCommunicator {
    const CHECKS: bool = false;
    const REDUCES_HALF: bool = true;

    fn queue(&self) -> Stream {
        stream(self)
    }
}

impl<T: Element> suite::Carries<T> for NcclCommunicator {
    fn buffer(&self, values: &[T]) -> Buffer<T> {
        upload(values, self)
    }

    fn values(&self, buffer: &Buffer<T>) -> Vec<T> {
        download(buffer, self)
    }
}

type Law = fn(&NcclCommunicator, &suite::Case) -> Result<()>;

macro_rules! laws {
    (any memory { $($any:ident)* } host memory { $($host:ident)* }) => {
        const LAWS: &[(&str, Law)] = &[$((stringify!($any), suite::$any)),*];
    };
}

suite::for_each_law!(laws);

/// Laws that do not hold for NCCL: it has no tags and no messages to oneself, and it executes a
/// communicator's operations in one order on all ranks, so that a message does not overtake a
/// barrier.
const UNSUPPORTED_LAWS: [&str; 2] =
    ["messages_arrive_in_order_with_their_tag", "no_rank_passes_a_barrier_before_the_last_arrives"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 8, ..ProptestConfig::default() })]

    /// On one to eight devices.
    #[test]
    fn the_suites_laws_hold(size in 1_usize..=8, case in suite::cases()) {
        run_all(size, |ranks| {
            for (name, law) in LAWS.iter().filter(|(name, _)| !UNSUPPORTED_LAWS.contains(name)) {
                law(&ranks, &case).unwrap_or_else(|error| panic!("{name}: {error}"));
            }
        });
    }

    #[test]
    fn redistribution_and_its_reverse_move_every_sample(
        from in proptest::collection::vec(0_usize..4, 4),
        to in proptest::collection::vec(0_usize..4, 4),
        sample_len in 1_usize..4,
    ) {
        let mut from: Vec<(usize, usize)> = from.into_iter().enumerate().collect();
        let mut to: Vec<(usize, usize)> = to.into_iter().enumerate().map(|(i, n)| (3 - i, n)).collect();
        // The same number of samples on both sides. One rank gets the difference.
        let (a, b): (usize, usize) = (from.iter().map(|c| c.1).sum(), to.iter().map(|c| c.1).sum());
        from[1].1 += b.saturating_sub(a);
        to[2].1 += a.saturating_sub(b);
        let from = Layout::from_counts(&from).unwrap();
        let to = Layout::from_counts(&to).unwrap();
        let forward = Redistribution::new(&from, &to).unwrap();
        let data = |shard: std::ops::Range<usize>| -> Vec<f32> {
            shard.flat_map(|sample| (0..sample_len).map(move |i| (sample * 10 + i) as f32)).collect()
        };
        run_all(4, |ranks| {
            let (rank, mut stream) = (ranks.rank(), stream(&ranks));
            let mut held = upload(&data(forward.source().shard(rank)), &ranks);
            let reverse = Redistribution::new(&to, &from).unwrap();
            for redistribution in [forward.clone(), reverse] {
                let expected = data(redistribution.target().shard(rank));
                let output = blank(expected.len(), &ranks);
                let address = output.address();
                let mut buffers = RedistributionBuffers { input: held, output, ..Default::default() };
                let redistribution = Arc::new(redistribution);
                ranks.redistribute(&redistribution, &mut buffers, sample_len, &mut stream).unwrap();
                held = buffers.output;
                assert_eq!((download(&held, &ranks), held.address()), (expected, address));
            }
        });
    }

    #[test]
    fn boxes_move_between_grids(case in suite::cases(), item_len in 1_usize..4) {
        let [from, to] = case.grids(4);
        let redistribution = Arc::new(Redistribution::new(&from, &to).unwrap());
        run_all(4, |ranks| {
            let (rank, mut stream) = (ranks.rank(), stream(&ranks));
            if !redistribution.ranks().contains(&rank) {
                // Rank 0 has the store by which the others find each other.
                return ranks.barrier(&mut stream).unwrap();
            }
            let group = ranks.group(redistribution.ranks()).unwrap();
            let [held, wanted] = [&from, &to].map(|layout| suite::elements(layout, rank, item_len));
            let packed = redistribution.packed_len(rank, item_len).unwrap().map(|len| blank(len, &ranks));
            let output = blank(wanted.len(), &ranks);
            let mut buffers = RedistributionBuffers { input: upload(&held, &ranks), output, packed };
            group.redistribute(&redistribution, &mut buffers, item_len, &mut stream).unwrap();
            assert_eq!(download(&buffers.output, &ranks), wanted, "{from:?} to {to:?}");
            assert_eq!(download(&buffers.input, &ranks), held);
            ranks.barrier(&mut stream).unwrap();
        });
    }
}

#[test]
fn the_same_list_returns_the_same_group() {
    run_all(2, |ranks| {
        let mut stream = stream(&ranks);
        // The calls match by their order, on whichever handle they are made.
        let (first, second) = (ranks.group(&[0, 1]).unwrap(), ranks.group(&[0, 1]).unwrap());
        let order = if ranks.rank() == 0 { [&first, &second] } else { [&second, &first] };
        for (i, group) in order.into_iter().enumerate() {
            let mut buffer = upload(&[i as i64], &ranks);
            group.all_reduce(&mut buffer, ReduceOp::Sum, &mut stream).unwrap();
            assert_eq!(download(&buffer, &ranks), [2 * i as i64]);
        }
    });
}

/// Messages around a ring. A send completes when it is received, so one of two neighbours has to
/// send first.
#[test]
fn messages_arrive_in_order() {
    run_all(3, |ranks| {
        let (rank, size, mut stream) = (ranks.rank(), ranks.size(), stream(&ranks));
        let (next, last) = ((rank + 1) % size, (rank + size - 1) % size);
        let mut requests = Vec::new();
        for sends in [rank == 0, rank != 0] {
            for i in 0..5 {
                if sends {
                    let buffer = upload(&[rank * 10 + i].map(|value| value as i32), &ranks);
                    requests.push(ranks.start_send(buffer, next, 0, &mut stream).unwrap());
                } else {
                    let mut buffer = blank::<i32>(1, &ranks);
                    ranks.receive(&mut buffer, last, 0, &mut stream).unwrap();
                    assert_eq!(download(&buffer, &ranks), [(last * 10 + i) as i32]);
                }
            }
        }
        for request in requests {
            assert_eq!(request.wait().unwrap().len(), 1);
        }
    });
}

#[test]
fn memory_of_a_dropped_request_is_kept_until_the_device_is_done() {
    run_all(2, |ranks| {
        let mut stream = stream(&ranks);
        drop(ranks.start_all_reduce(upload(&[1.0_f32; 8], &ranks), ReduceOp::Sum, &mut stream).unwrap());
        let buffer = upload(&[2.0_f32; 8], &ranks);
        let sum = ranks.start_all_reduce(buffer, ReduceOp::Sum, &mut stream).unwrap().wait().unwrap();
        assert_eq!(download(&sum, &ranks), [4.0; 8]);
    });
}

#[test]
fn memory_and_streams_of_another_owner_are_used_and_released() {
    run_all(1, |ranks| {
        let theirs = stream(&ranks);
        let tensor = Arc::new(upload(&[1.5_f64, 2.5], &ranks));
        // SAFETY: the stream and the memory, which nothing else accesses, outlive the operation.
        #[allow(unsafe_code)]
        let (mut queue, buffer) = unsafe {
            let queue = Stream::borrow(ranks.context(), theirs.as_raw());
            (queue, Buffer::<f64>::from_raw(ranks.context(), tensor.address(), 2, Arc::clone(&tensor)))
        };
        let reduced = ranks.start_all_reduce(buffer, ReduceOp::Sum, &mut queue).unwrap().wait().unwrap();
        assert_eq!((reduced.address(), Arc::strong_count(&tensor)), (tensor.address(), 2));
        assert_eq!(reduced.to_vec(&theirs).unwrap(), [1.5, 2.5]);
        drop(reduced);
        assert_eq!(Arc::strong_count(&tensor), 1);
    });
}
