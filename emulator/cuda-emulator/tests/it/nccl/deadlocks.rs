//! Deadlocks and disagreements: detection, reports and aborts.

use super::{F32, Nccl, Rank, SUM, on_devices, ranks};
use crate::execution::code;
use cuda_emulator::{Emulator, Setting};
use cudarc::driver::sys::CUresult::{CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_TIMEOUT};
use std::time::Duration;

/// Synchronises the first rank, checks that the wait fails with the report `why`, and aborts all
/// communicators. Memory may be left.
#[track_caller]
fn expect_deadlock(emulator: &Emulator, nccl: &Nccl, ranks: Vec<Rank>, others: &[usize], why: &str) {
    assert_eq!(code(ranks[0].gpu.stream.synchronize()), CUDA_ERROR_LAUNCH_TIMEOUT);
    let misuse = emulator.misuse();
    assert!(misuse.iter().any(|line| line.contains(why)), "{misuse:#?}");
    for comm in ranks.iter().map(|rank| &rank.comm).chain(others) {
        assert_eq!(nccl.ncclCommAbort(*comm), 0);
    }
    ranks[0].gpu.stream.synchronize().unwrap();
    drop(ranks);
    emulator.reset();
}

#[test]
fn disagreeing_ranks_are_named_with_their_calls() {
    on_devices(|emulator, nccl| {
        let ranks = ranks(nccl, 3);
        let held: Vec<_> = ranks.iter().map(|rank| rank.held(&[1.0_f32; 4])).collect();
        assert_eq!(ranks[0].all_reduce(nccl, &held[0]), 0);
        assert_eq!(ranks[1].all_reduce(nccl, &held[1]), 0);
        let (address, stream) = (ranks[2].address(&held[2]), ranks[2].stream());
        assert_eq!(nccl.ncclAllReduce(address, address, 3, F32, SUM, ranks[2].comm, stream), 0);
        let why = "the ranks of NCCL communicator 1 disagree about its collective 1: rank 0 calls \
                   ncclAllReduce of 4 elements of type 7, reduction 0, rank 2 calls ncclAllReduce \
                   of 3 elements";
        for held in held {
            _ = held.leak();
        }
        expect_deadlock(emulator, nccl, ranks, &[], why);
    });
}

#[test]
fn opposite_orders_of_communicators_are_a_deadlock() {
    on_devices(|emulator, nccl| {
        let ranks = ranks(nccl, 2);
        let mut second = [0; 2];
        assert_eq!(nccl.ncclCommInitAll(second.as_mut_ptr(), 2, std::ptr::null()), 0);
        // Rank 0 calls the first communicator, then the second. Rank 1 calls them in the opposite
        // order.
        for (number, rank) in ranks.iter().enumerate() {
            let held = rank.held(&[1.0_f32]);
            let address = rank.address(&held);
            _ = held.leak();
            let comms = if number == 0 { [rank.comm, second[0]] } else { [second[1], rank.comm] };
            for comm in comms {
                assert_eq!(nccl.ncclAllReduce(address, address, 1, F32, SUM, comm, rank.stream()), 0);
            }
        }
        expect_deadlock(emulator, nccl, ranks, &second, "deadlock: stream ");
    });
}

#[test]
fn sends_before_receives_without_a_group_are_a_deadlock() {
    on_devices(|emulator, nccl| {
        let ranks = ranks(nccl, 3);
        for (number, rank) in ranks.iter().enumerate() {
            let held = rank.held(&[1.0_f32; 8]);
            let address = rank.address(&held);
            _ = held.leak();
            let (next, last) = ((number + 1) % 3, (number + 2) % 3);
            assert_eq!(nccl.ncclSend(address, 4, F32, next as i32, rank.comm, rank.stream()), 0);
            assert_eq!(nccl.ncclRecv(address + 16, 4, F32, last as i32, rank.comm, rank.stream()), 0);
        }
        let why = "ncclSend of 4 elements of type 7 to rank 1 by rank 0 in NCCL communicator 1, \
                   which waits for stream";
        expect_deadlock(emulator, nccl, ranks, &[], why);
    });
}

#[test]
fn missing_ranks_time_out() {
    on_devices(|emulator, nccl| {
        emulator.set(Setting::RankTimeoutMs, 50);
        let ranks = ranks(nccl, 2);
        let held = ranks[0].held(&[1.0_f32]);
        assert_eq!(ranks[0].all_reduce(nccl, &held), 0);
        let started = std::time::Instant::now();
        assert_eq!(code(ranks[0].gpu.stream.synchronize()), CUDA_ERROR_LAUNCH_TIMEOUT);
        assert!(started.elapsed() >= Duration::from_millis(50));
        assert_eq!(nccl.ncclCommAbort(ranks[0].comm), 0);
        assert_eq!(ranks[0].gpu.stream.clone_dtoh(&held).unwrap(), [1.0], "nothing was done");
        assert_eq!(nccl.ncclCommAbort(ranks[1].comm), 0);
        drop((held, ranks));
        assert!(emulator.misuse()[0].contains("never ends"), "{:?}", emulator.misuse());
        emulator.reset();
    });
}

#[test]
fn invalid_memory_streams_and_ranks_are_refused() {
    on_devices(|emulator, nccl| {
        let ranks = ranks(nccl, 2);
        let held = ranks[0].held(&[1.0_f32; 4]);
        let (address, stream, comm) = (ranks[0].address(&held), ranks[0].stream(), ranks[0].comm);
        let wrong = [
            (nccl.ncclAllReduce(address, address, 5, F32, SUM, comm, stream), "20 bytes at"),
            (nccl.ncclAllReduce(address, address, 4, F32, SUM, comm, ranks[1].stream()), "is of device 1"),
            (
                nccl.ncclAllReduce(address, address, 4, F32, SUM, ranks[1].comm, ranks[1].stream()),
                "not memory of device 1",
            ),
            (nccl.ncclBroadcast(address, address, 4, F32, 2, comm, stream), "rank 2 of 2"),
            (nccl.ncclSend(address, 4, F32, -1, comm, stream), "of 2"),
        ];
        let misuse = emulator.misuse();
        assert_eq!(misuse.len(), wrong.len());
        for ((code, why), line) in wrong.iter().zip(&misuse) {
            assert_eq!(*code, 4, "ncclInvalidArgument");
            assert!(line.contains(why), "{line}");
        }
        assert!(nccl.last_error().contains("of 2"));
        assert_eq!(nccl.ncclGroupEnd(), 5, "ncclInvalidUsage");
        assert_eq!(nccl.last_error(), "no group was started");
        for rank in &ranks {
            assert_eq!(nccl.ncclCommDestroy(rank.comm), 0);
        }
        drop((held, ranks));
        emulator.reset();
    });
}

#[test]
fn other_ranks_learn_of_a_lost_device() {
    on_devices(|emulator, nccl| {
        let ranks = ranks(nccl, 2);
        let held: Vec<_> = ranks.iter().map(|rank| rank.held(&[1.0_f32; 4])).collect();
        // A kernel in the stream of rank 1 accesses the memory of the other device.
        let mut wild = ranks[0].held(&[1.0_f32; 4]);
        let kernel = ranks[1].gpu.kernel("scale");
        ranks[1].scale(&kernel, &mut wild, 1.0);
        for (rank, held) in ranks.iter().zip(&held) {
            assert_eq!(rank.all_reduce(nccl, held), 0);
        }
        assert_eq!(code(ranks[1].gpu.stream.synchronize()), CUDA_ERROR_ILLEGAL_ADDRESS);
        drop((wild, kernel));
        assert_eq!(ranks[1].all_reduce(nccl, &held[1]), 1, "ncclUnhandledCudaError");
        for held in held {
            _ = held.leak();
        }
        expect_deadlock(
            emulator,
            nccl,
            ranks,
            &[],
            "the device of rank 1 of NCCL communicator 1 is lost with operations in progress",
        );
    });
}
