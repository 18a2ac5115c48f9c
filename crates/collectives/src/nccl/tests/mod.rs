//! The backend on the [`fake`](super::fake) library and devices.

mod comm;
mod failures;
mod late;
mod laws;

use std::net::TcpListener;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::fake::{Fabric, FakeDevice};
use super::{NcclBuffer, NcclCommunicator, NcclStream, NcclWorld};
use crate::{Element, Result, WaitStrategy};

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(400);

/// Connects the ranks of a world that are listed and runs each on a thread of its own. Afterwards nothing is left over.
fn run<R: Send>(
    ranks: &[usize],
    size: usize,
    timeout: Duration,
    rank: impl Fn(Result<NcclCommunicator>) -> R + Sync,
) -> Vec<R> {
    run_on(&Arc::default(), ranks, size, timeout, rank)
}

/// As [`run`], on a library and devices that the test has a hand in.
fn run_on<R: Send>(
    fabric: &Arc<Fabric>,
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
                        .with_token("secret")
                        .with_wait(WaitStrategy::Yield)
                        .with_timeout(timeout);
                    rank(world.connect_with(fabric.library(), Arc::new(FakeDevice(Arc::clone(fabric)))))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    nothing_is_left(fabric);
    results
}

/// Runs all ranks of a world.
fn run_all<R: Send>(size: usize, rank: impl Fn(NcclCommunicator) -> R + Sync) -> Vec<R> {
    let ranks: Vec<usize> = (0..size).collect();
    run(&ranks, size, LONG, |communicator| rank(communicator.unwrap()))
}

/// Every communicator was ended once, every buffer freed, and nothing called that must not be.
fn nothing_is_left(fabric: &Fabric) {
    assert_eq!(fabric.lock().violations, Vec::<String>::new());
    assert_eq!((fabric.alive(), fabric.lock().allocations), (0, 0), "communicators and buffers left over");
}

fn upload<T: Element>(elements: &[T], stream: &NcclStream) -> NcclBuffer<T> {
    NcclBuffer::upload(elements, stream).unwrap()
}

fn blank<T: Element>(len: usize, stream: &NcclStream) -> NcclBuffer<T> {
    upload(&vec![T::default(); len], stream)
}
