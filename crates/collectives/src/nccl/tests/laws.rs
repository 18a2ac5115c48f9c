//! What the operations give, against their definitions on the host.
#![allow(clippy::cast_possible_wrap, reason = "ranks and samples are small numbers")]

use std::mem;

use proptest::prelude::*;

use super::{blank, run_all, upload};
use crate::nccl::{DeviceBuffer, NcclCommunicator};
use crate::{
    Communicator, Element, Exchanged, Group, Partition, Redistribution, ReduceOp, Request, bf16, f16,
};

/// Small whole numbers, so that every order of additions gives the same.
fn values<T: Element>(rank: usize, len: usize, number: impl Fn(u8) -> T) -> Vec<T> {
    (0..len).map(|i| number(((i * 7 + rank * 5) % 11) as u8)).collect()
}

/// Every collective on one element type.
fn collectives<T: Element>(ranks: &NcclCommunicator, len: usize, number: impl Fn(u8) -> T + Copy) {
    let (rank, size) = (ranks.rank(), ranks.size());
    let mut stream = ranks.new_stream().unwrap();
    let of = |rank: usize, len: usize| values(rank, len, number);
    let everyones = |len: usize| (0..size).map(|rank| of(rank, len)).collect::<Vec<_>>();
    let reduced = |op, len: usize| {
        let (inputs, mut output) = (everyones(len), vec![T::default(); len]);
        T::reduce(op, &inputs.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut output);
        output
    };
    for op in [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min] {
        let mut buffer = upload(&of(rank, len), &stream);
        ranks.all_reduce(&mut buffer, op, &mut stream).unwrap();
        assert_eq!(buffer.download(&stream).unwrap(), reduced(op, len));

        let (mut send, mut receive) = (upload(&of(rank, len * size), &stream), blank(len, &stream));
        ranks.reduce_scatter(&mut send, &mut receive, op, &mut stream).unwrap();
        assert_eq!(receive.download(&stream).unwrap(), reduced(op, len * size)[rank * len..(rank + 1) * len]);
    }
    for root in 0..size {
        let mut buffer = upload(&of(rank, len), &stream);
        ranks.broadcast(&mut buffer, root, &mut stream).unwrap();
        assert_eq!(buffer.download(&stream).unwrap(), of(root, len));
    }
    let (mut send, mut receive) = (upload(&of(rank, len), &stream), blank(len * size, &stream));
    ranks.all_gather(&mut send, &mut receive, &mut stream).unwrap();
    assert_eq!(receive.download(&stream).unwrap(), everyones(len).concat());
    assert_eq!(send.download(&stream).unwrap(), of(rank, len));
    ranks.barrier(&mut stream).unwrap();
}

#[test]
fn collectives_are_what_they_are_defined_to_be_on_every_element_type() {
    for size in 1..=4 {
        run_all(size, |ranks| {
            for len in [0, 1, 13] {
                collectives(&ranks, len, f32::from);
                collectives(&ranks, len, f64::from);
                collectives(&ranks, len, i32::from);
                collectives(&ranks, len, i64::from);
                collectives(&ranks, len, |value| value);
                collectives(&ranks, len, |value| f16::from_f32(value.into()));
                collectives(&ranks, len, |value| bf16::from_f32(value.into()));
            }
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn all_to_all_v_brings_every_chunk(counts in proptest::collection::vec(proptest::collection::vec(0_usize..5, 4), 4), size in 1_usize..=4) {
        // From `from` to `to`, the elements (from, to, 0), (from, to, 1), ...
        let chunk = |from: usize, to: usize| (0..counts[from][to]).map(move |i| (from * 100 + to * 10 + i) as i32);
        run_all(size, |ranks| {
            let (me, mut stream) = (ranks.rank(), ranks.new_stream().unwrap());
            let sent: Vec<i32> = (0..size).flat_map(|to| chunk(me, to)).collect();
            let expected: Vec<i32> = (0..size).flat_map(|from| chunk(from, me)).collect();
            let receive_counts: Vec<usize> = (0..size).map(|from| counts[from][me]).collect();
            let (mut send, mut receive) = (upload(&sent, &stream), blank(expected.len(), &stream));
            ranks.all_to_all_v(&mut send, &counts[me][..size], &mut receive, &receive_counts, &mut stream).unwrap();
            assert_eq!(receive.download(&stream).unwrap(), expected);
        });
    }

    #[test]
    fn redistribution_brings_every_sample_once_and_back_again(
        from in proptest::collection::vec(0_usize..4, 4),
        to in proptest::collection::vec(0_usize..4, 4),
        sample_len in 1_usize..4,
    ) {
        let mut from: Vec<(usize, usize)> = from.into_iter().enumerate().collect();
        let mut to: Vec<(usize, usize)> = to.into_iter().enumerate().map(|(i, n)| (3 - i, n)).collect();
        // The same number of samples on both sides, the rest on one rank.
        let (a, b): (usize, usize) = (from.iter().map(|c| c.1).sum(), to.iter().map(|c| c.1).sum());
        from[1].1 += b.saturating_sub(a);
        to[2].1 += a.saturating_sub(b);
        let there = Redistribution::new(&Partition::from_counts(&from).unwrap(), &Partition::from_counts(&to).unwrap()).unwrap();
        let data = |shard: std::ops::Range<usize>| -> Vec<f32> {
            shard.flat_map(|sample| (0..sample_len).map(move |i| (sample * 10 + i) as f32)).collect()
        };
        run_all(4, |ranks| {
            let (rank, mut stream) = (ranks.rank(), ranks.new_stream().unwrap());
            let mut held = upload(&data(there.source().shard(rank)), &stream);
            for way in [there.clone(), there.reversed()] {
                let expected = data(way.target().shard(rank));
                let output = blank(expected.len(), &stream);
                let request = ranks.start_redistribution(&way, held, sample_len, output, &mut stream).unwrap();
                held = request.wait().unwrap().receive;
                assert_eq!(held.download(&stream).unwrap(), expected);
            }
        });
    }
}

#[test]
fn groups_and_splits_work_side_by_side() {
    let sums = run_all(4, |ranks| {
        let mut stream = ranks.new_stream().unwrap();
        let mut sum = |group: &NcclCommunicator| {
            let mut buffer = upload(&[ranks.rank() as i32 + 1], &stream);
            group.all_reduce(&mut buffer, ReduceOp::Sum, &mut stream).unwrap();
            (group.rank(), buffer.download(&stream).unwrap()[0])
        };
        let halves = ranks.split(Some(ranks.rank() as u32 % 2), -(ranks.rank() as i32)).unwrap().unwrap();
        let but_one = ranks.split((ranks.rank() != 1).then_some(7), 0).unwrap();
        let listed: Vec<usize> = if ranks.rank() < 2 { vec![1, 0] } else { vec![2, 3] };
        let listed = ranks.group(&listed).unwrap();
        let again = listed.group(&[0, 1]).unwrap().group(&[0, 1]).unwrap();
        (sum(&halves), but_one.map(|group| sum(&group)), sum(&listed), sum(&again), sum(&ranks))
    });
    assert_eq!(sums[0], ((1, 4), Some((0, 8)), (1, 3), (1, 3), (0, 10)));
    assert_eq!(sums[1], ((1, 6), None, (0, 3), (0, 3), (1, 10)));
    assert_eq!(sums[2], ((0, 4), Some((1, 8)), (0, 7), (0, 7), (2, 10)));
    assert_eq!(sums[3], ((0, 6), Some((2, 8)), (1, 7), (1, 7), (3, 10)));
}

#[test]
fn a_group_that_is_asked_for_again_is_the_same() {
    run_all(2, |ranks| {
        let mut stream = ranks.new_stream().unwrap();
        // One rank's first call meets the other's, whichever of its two handles that was made on.
        let (first, second) = (ranks.group(&[0, 1]).unwrap(), ranks.group(&[0, 1]).unwrap());
        let order = if ranks.rank() == 0 { [&first, &second] } else { [&second, &first] };
        for (i, group) in order.into_iter().enumerate() {
            let mut buffer = upload(&[i as i64], &stream);
            group.all_reduce(&mut buffer, ReduceOp::Sum, &mut stream).unwrap();
            assert_eq!(buffer.download(&stream).unwrap(), [2 * i as i64]);
        }
    });
}

#[test]
fn messages_arrive_in_their_order() {
    run_all(3, |ranks| {
        let (rank, size, mut stream) = (ranks.rank(), ranks.size(), ranks.new_stream().unwrap());
        let (next, last) = ((rank + 1) % size, (rank + size - 1) % size);
        let mut requests = Vec::new();
        for i in 0..5 {
            let buffer = upload(&[rank * 10 + i].map(|value| value as i32), &stream);
            requests.push(ranks.start_send(buffer, next, 0, &mut stream).unwrap());
        }
        for i in 0..5 {
            let mut buffer = blank::<i32>(1, &stream);
            ranks.receive(&mut buffer, last, 0, &mut stream).unwrap();
            assert_eq!(buffer.download(&stream).unwrap(), [(last * 10 + i) as i32]);
        }
        for request in requests {
            assert_eq!(request.wait().unwrap().len(), 1);
        }
    });
}

#[test]
fn memory_of_a_dropped_request_stays_until_the_device_is_done() {
    run_all(2, |ranks| {
        let mut stream = ranks.new_stream().unwrap();
        drop(ranks.start_all_reduce(upload(&[1.0_f32; 8], &stream), ReduceOp::Sum, &mut stream).unwrap());
        let buffer = upload(&[2.0_f32; 8], &stream);
        let sum = ranks.start_all_reduce(buffer, ReduceOp::Sum, &mut stream).unwrap().wait().unwrap();
        assert_eq!(sum.download(&stream).unwrap(), [4.0; 8]);
    });
}

#[test]
fn requests_are_tested_and_waited_for_in_any_order() {
    run_all(2, |ranks| {
        let mut stream = ranks.new_stream().unwrap();
        let mut started: Vec<_> = (0..4_i64)
            .map(|i| ranks.start_all_reduce(upload(&[i], &stream), ReduceOp::Sum, &mut stream).unwrap())
            .collect();
        while !started[0].test().unwrap() {}
        for (i, request) in started.into_iter().enumerate().rev() {
            assert_eq!(request.wait().unwrap().download(&stream).unwrap(), [2 * i as i64]);
        }
    });
}

#[test]
fn a_buffer_gives_its_owner_back() {
    run_all(1, |ranks| {
        let mut stream = ranks.new_stream().unwrap();
        let mut tensor = vec![1.5_f64, 2.5];
        let pointer = tensor.as_mut_ptr() as u64;
        // SAFETY: the vector's memory does not move with it, and nobody else uses it.
        #[allow(unsafe_code)]
        let mut buffer = unsafe { DeviceBuffer::<f64>::from_raw(pointer, 2, tensor) };
        ranks.all_reduce(&mut buffer, ReduceOp::Sum, &mut stream).unwrap();
        let buffer = buffer.into_owner::<String>().unwrap_err();
        assert_eq!(buffer.device_pointer(), pointer);
        assert_eq!(buffer.into_owner::<Vec<f64>>().unwrap(), [1.5, 2.5]);
        let mut empty = DeviceBuffer::<f64>::default();
        let exchanged = Exchanged { send: mem::take(&mut empty), receive: DeviceBuffer::default() };
        assert!(exchanged.send.is_empty() && empty.into_owner::<()>().is_err());
    });
}
