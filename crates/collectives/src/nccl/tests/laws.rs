//! The suite's laws on NCCL, and properties of NCCL alone.
#![allow(clippy::cast_possible_wrap, reason = "ranks and samples are small numbers")]

#[path = "../../../tests/suite/mod.rs"]
#[allow(dead_code, unused_macros, unused_imports, reason = "laws on host memory are for other backends")]
mod suite;

use std::mem;

use cudarc::driver::{CudaContext, CudaSlice, DevicePtr};
use proptest::prelude::*;

use super::{blank, run_all, upload};
use crate::nccl::{NcclBuffer, NcclCommunicator, NcclStream};
use crate::{
    Communicator, Element, Exchanged, Group, Partition, Redistribution, RedistributionRequest, ReduceOp,
    Request, Result,
};

impl suite::Ranks for NcclCommunicator {
    const CHECKS: bool = false;
    const REDUCES_HALF: bool = true;

    fn queue(&self) -> NcclStream {
        self.new_stream().unwrap()
    }
}

impl<T: Element> suite::Carries<T> for NcclCommunicator {
    fn buffer(&self, values: &[T]) -> NcclBuffer<T> {
        upload(values, &self.new_stream().unwrap())
    }

    fn values(&self, buffer: &NcclBuffer<T>) -> Vec<T> {
        buffer.download(&self.new_stream().unwrap()).unwrap()
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
        let from = Partition::from_counts(&from).unwrap();
        let to = Partition::from_counts(&to).unwrap();
        let forward = Redistribution::new(&from, &to).unwrap();
        let data = |shard: std::ops::Range<usize>| -> Vec<f32> {
            shard.flat_map(|sample| (0..sample_len).map(move |i| (sample * 10 + i) as f32)).collect()
        };
        run_all(4, |ranks| {
            let (rank, mut stream) = (ranks.rank(), ranks.new_stream().unwrap());
            let mut held = upload(&data(forward.source().shard(rank)), &stream);
            for redistribution in [forward.clone(), forward.reversed()] {
                let expected = data(redistribution.target().shard(rank));
                let mut output = blank(expected.len(), &stream);
                let address = output.device_pointer();
                let request =
                    ranks.start_redistribution(&redistribution, &held, sample_len, &mut stream).unwrap();
                request.wait_into(&mut output).unwrap();
                let arrived = output.download(&stream).unwrap();
                assert_eq!((&arrived, output.device_pointer()), (&expected, address));
                // The same without an allocation.
                let after = blank(expected.len(), &stream);
                let address = after.device_pointer();
                let moved = ranks
                    .start_redistribution_in_place(&redistribution, held, after, sample_len, &mut stream)
                    .unwrap();
                held = moved.wait().unwrap().receive;
                assert_eq!((held.download(&stream).unwrap(), held.device_pointer()), (expected, address));
            }
        });
    }
}

#[test]
fn the_same_list_returns_the_same_group() {
    run_all(2, |ranks| {
        let mut stream = ranks.new_stream().unwrap();
        // The calls match by their order, on whichever handle they are made.
        let (first, second) = (ranks.group(&[0, 1]).unwrap(), ranks.group(&[0, 1]).unwrap());
        let order = if ranks.rank() == 0 { [&first, &second] } else { [&second, &first] };
        for (i, group) in order.into_iter().enumerate() {
            let mut buffer = upload(&[i as i64], &stream);
            group.all_reduce(&mut buffer, ReduceOp::Sum, &mut stream).unwrap();
            assert_eq!(buffer.download(&stream).unwrap(), [2 * i as i64]);
        }
    });
}

/// Messages around a ring. A send completes when it is received, so one of two neighbours has to
/// send first.
#[test]
fn messages_arrive_in_order() {
    run_all(3, |ranks| {
        let (rank, size, mut stream) = (ranks.rank(), ranks.size(), ranks.new_stream().unwrap());
        let (next, last) = ((rank + 1) % size, (rank + size - 1) % size);
        let mut requests = Vec::new();
        for sends in [rank == 0, rank != 0] {
            for i in 0..5 {
                if sends {
                    let buffer =
                        upload(&[rank * 10 + i].map(|value| value as i32), &ranks.new_stream().unwrap());
                    requests.push(ranks.start_send(buffer, next, 0, &mut stream).unwrap());
                } else {
                    let mut buffer = blank::<i32>(1, &stream);
                    ranks.receive(&mut buffer, last, 0, &mut stream).unwrap();
                    assert_eq!(buffer.download(&stream).unwrap(), [(last * 10 + i) as i32]);
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
        let mut stream = ranks.new_stream().unwrap();
        drop(ranks.start_all_reduce(upload(&[1.0_f32; 8], &stream), ReduceOp::Sum, &mut stream).unwrap());
        let buffer = upload(&[2.0_f32; 8], &stream);
        let sum = ranks.start_all_reduce(buffer, ReduceOp::Sum, &mut stream).unwrap().wait().unwrap();
        assert_eq!(sum.download(&stream).unwrap(), [4.0; 8]);
    });
}

#[test]
fn a_buffer_returns_its_owner() {
    run_all(1, |ranks| {
        let mut stream = ranks.new_stream().unwrap();
        let tensor = CudaContext::new(0).unwrap().new_stream().unwrap().clone_htod(&[1.5_f64, 2.5]).unwrap();
        let pointer = tensor.device_ptr(tensor.stream()).0;
        // SAFETY: the tensor's memory does not move with it, and nothing else accesses it.
        #[allow(unsafe_code)]
        let mut buffer = unsafe { NcclBuffer::<f64>::from_raw(pointer, 2, tensor) };
        ranks.all_reduce(&mut buffer, ReduceOp::Sum, &mut stream).unwrap();
        let buffer = buffer.into_owner::<String>().unwrap_err();
        assert_eq!(buffer.device_pointer(), pointer);
        let tensor = buffer.into_owner::<CudaSlice<f64>>().unwrap();
        assert_eq!(tensor.stream().clone_dtoh(&tensor).unwrap(), [1.5, 2.5]);
        let mut empty = NcclBuffer::<f64>::default();
        let exchanged = Exchanged { send: mem::take(&mut empty), receive: NcclBuffer::default() };
        assert!(exchanged.send.is_empty() && empty.into_owner::<()>().is_err());
    });
}
