//! Tests of the backend on the emulated NCCL and devices of `cuda-emulator`. Ranks are threads with
//! one device each.

mod comm;
mod failures;
mod late_ranks;
mod laws;

use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use cuda::nccl::Nccl;
use cuda::{Buffer, Context, Driver, Priority, Stream};
use cuda_emulator::{Emulator, Setting};

use super::{NcclCommunicator, NcclWorld};
use crate::{Element, Result, WaitStrategy};

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(400);

/// Connects the listed ranks of a world and runs each on a thread. Asserts that nothing leaks.
fn run<R: Send>(
    ranks: &[usize],
    size: usize,
    timeout: Duration,
    rank: impl Fn(Result<NcclCommunicator>) -> R + Sync,
) -> Vec<R> {
    run_on(&emulator(), ranks, size, timeout, rank)
}

/// Like [`run`], on the test's own emulator.
fn run_on<R: Send>(
    emulator: &Emulator,
    ranks: &[usize],
    size: usize,
    timeout: Duration,
    rank: impl Fn(Result<NcclCommunicator>) -> R + Sync,
) -> Vec<R> {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let results = thread::scope(|scope| {
        let threads: Vec<_> = ranks
            .iter()
            .map(|&number| {
                let rank = &rank;
                scope.spawn(move || {
                    let world = NcclWorld::new(number, size, 0)
                        .with_address("127.0.0.1", port)
                        .with_library(nccl())
                        .with_wait(WaitStrategy::Yield)
                        .with_timeout(timeout);
                    rank(world.connect_on(&context(number)))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_no_leaks(emulator);
    results
}

/// Runs all ranks of a world.
fn run_all<R: Send>(size: usize, rank: impl Fn(NcclCommunicator) -> R + Sync) -> Vec<R> {
    let ranks: Vec<usize> = (0..size).collect();
    run(&ranks, size, LONG, |communicator| rank(communicator.unwrap()))
}

/// Creates an emulator with eight devices.
fn emulator() -> Emulator {
    let emulator = Emulator::new().unwrap();
    emulator.set(Setting::Devices, 8);
    emulator
}

/// Opens the emulated NCCL, which is in the same file as the emulated driver.
fn nccl() -> Nccl {
    Nccl::open_first_of(&[Emulator::library().unwrap()]).unwrap()
}

/// Opens an emulated device.
fn context(device: usize) -> Context {
    Driver::open_first_of(&[Emulator::library().unwrap()]).unwrap().context(device).unwrap()
}

/// Asserts that every communicator was ended once, everything was freed, and no call was a misuse.
fn assert_no_leaks(emulator: &Emulator) {
    assert_eq!(emulator.misuse(), [""; 0]);
    assert_eq!(emulator.leaks(), [""; 0]);
}

/// Returns NCCL's calls that ended communicators, in their order.
fn end_calls(emulator: &Emulator) -> Vec<String> {
    let calls = emulator.log().into_iter().filter_map(|line| {
        let call = line.split([' ', ':']).nth(1)?.strip_prefix("ncclComm")?.to_owned();
        ["Finalize", "Destroy", "Abort"].contains(&call.as_str()).then_some(call)
    });
    calls.collect()
}

/// Returns the number of communicators that were neither destroyed nor aborted.
fn live_communicators(emulator: &Emulator) -> usize {
    emulator.leaks().iter().filter(|line| line.contains("NCCL communicator")).count()
}

fn stream(ranks: &NcclCommunicator) -> Stream {
    Stream::new(ranks.context(), Priority::default()).unwrap()
}

/// Creates a buffer with these elements. Neither this nor its drop waits for the rank's operations.
fn upload<T: Element>(elements: &[T], ranks: &NcclCommunicator) -> Buffer<T> {
    let stream = stream(ranks);
    let buffer = Buffer::in_stream(&stream, elements.len()).unwrap();
    buffer.upload(&stream, elements).unwrap();
    buffer
}

fn blank<T: Element>(len: usize, ranks: &NcclCommunicator) -> Buffer<T> {
    upload(&vec![T::default(); len], ranks)
}

/// Returns the elements of a buffer, which no operation uses.
fn download<T: Element>(buffer: &Buffer<T>, ranks: &NcclCommunicator) -> Vec<T> {
    buffer.to_vec(&stream(ranks)).unwrap()
}
