//! NCCL and devices for tests: ranks are threads, device memory is the host's. Calls are checked and counted, and can be
//! made to fail; an operation is done when all its ranks have come, like the real ones.
#![allow(unsafe_code)]

mod calls;
mod device;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

pub(super) use device::FakeDevice;
use device::FakeStream;

use super::api::Code;
use super::library::NcclLibrary;
use crate::{Element, ReduceOp, bf16, f16};

/// What the ranks of a test share.
#[derive(Debug, Default)]
pub(super) struct Fabric(Mutex<State>);

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) calls: usize,
    /// The number of the call that fails, counted from 0, NCCL's and the driver's in one.
    pub(super) failing_call: Option<usize>,
    /// What every communicator's state is from now on.
    pub(super) async_error: Option<Code>,
    /// Communicators' ends and what leads to them, in their order.
    pub(super) log: Vec<&'static str>,
    /// What should not have been called.
    pub(super) violations: Vec<String>,
    pub(super) allocations: usize,
    /// How long an abort takes once the kernels have left.
    pub(super) abort_takes: Duration,
    streams: Vec<Weak<FakeStream>>,
    ids: u64,
    comms: HashMap<usize, Comm>,
    cliques: Vec<Clique>,
}

/// A rank's end of a communicator.
#[derive(Debug)]
struct Comm {
    clique: usize,
    rank: usize,
    collectives: u64,
    splits: usize,
    /// Batches in streams that are not done.
    operations: usize,
    finalized: bool,
    /// Polls until a call is through.
    pending: u32,
}

/// All ends of a communicator.
#[derive(Debug, Default)]
struct Clique {
    id: u64,
    size: usize,
    joined: usize,
    collectives: HashMap<u64, HashMap<usize, Vec<u8>>>,
    messages: HashMap<(usize, usize), VecDeque<Vec<u8>>>,
    /// For each split who has called it: color, key, and where the handle goes.
    splits: Vec<HashMap<usize, (i32, i32, usize)>>,
}

/// A piece of a stream's work.
#[derive(Debug)]
enum Work {
    Copy { from: u64, to: u64, bytes: usize },
    Batch { comm: usize, operations: Vec<Operation>, posted: bool },
}

/// One call between the start and the end of a group.
#[derive(Debug, Clone)]
struct Operation {
    kind: Kind,
    send: u64,
    receive: u64,
    count: usize,
    element: u32,
    /// The collective's number, set when it is posted.
    number: u64,
    done: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    AllReduce(u32),
    Broadcast(usize),
    AllGather,
    ReduceScatter(u32),
    Send(usize),
    Receive(usize),
}

impl Fabric {
    pub(super) fn library(self: &Arc<Self>) -> NcclLibrary {
        NcclLibrary { api: Arc::new(calls::FakeNccl(Arc::clone(self))) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Communicators that were neither destroyed nor aborted.
    pub(super) fn alive(&self) -> usize {
        self.lock().comms.len()
    }

    fn driver_call(&self) -> Result<(), String> {
        if self.lock().fails() { Err("the driver fails as it was made to".to_owned()) } else { Ok(()) }
    }

    /// Whether the work is done, after what can be done of it now.
    fn run(&self, work: &mut Work) -> bool {
        match work {
            Work::Copy { from, to, bytes } => {
                // SAFETY: the tests' addresses are memory of that size that stays.
                unsafe { std::ptr::copy_nonoverlapping(*from as *const u8, *to as *mut u8, *bytes) };
                true
            }
            Work::Batch { comm, operations, posted } => {
                let mut state = self.lock();
                let State { comms, cliques, .. } = &mut *state;
                // A kernel leaves when its communicator is aborted.
                let Some(comm) = comms.get_mut(comm) else { return true };
                let clique = &mut cliques[comm.clique];
                if !*posted {
                    for operation in operations.iter_mut() {
                        post(operation, comm, clique);
                    }
                    *posted = true;
                }
                for operation in operations.iter_mut().filter(|operation| !operation.done) {
                    operation.done = finish(operation, comm.rank, clique);
                }
                let done = operations.iter().all(|operation| operation.done);
                comm.operations -= usize::from(done);
                done
            }
        }
    }
}

impl State {
    fn fails(&mut self) -> bool {
        self.calls += 1;
        self.failing_call == Some(self.calls - 1)
    }
}

fn post(operation: &mut Operation, comm: &mut Comm, clique: &mut Clique) {
    let size = size_of_element(operation.element);
    let count = match operation.kind {
        Kind::ReduceScatter(_) => operation.count * clique.size,
        _ => operation.count,
    };
    let sent = || read(operation.send, count * size);
    match operation.kind {
        Kind::Receive(_) => {}
        Kind::Send(to) => clique.messages.entry((comm.rank, to)).or_default().push_back(sent()),
        _ => {
            operation.number = comm.collectives;
            comm.collectives += 1;
            clique.collectives.entry(operation.number).or_default().insert(comm.rank, sent());
        }
    }
}

fn finish(operation: &Operation, rank: usize, clique: &mut Clique) -> bool {
    match operation.kind {
        Kind::Send(_) => return true,
        Kind::Receive(from) => {
            let message = clique.messages.get_mut(&(from, rank)).and_then(VecDeque::pop_front);
            if let Some(message) = &message {
                assert_eq!(message.len(), operation.count * size_of_element(operation.element));
                write(operation.receive, message);
            }
            return message.is_some();
        }
        _ => {}
    }
    let contributions = &clique.collectives[&operation.number];
    if contributions.len() < clique.size {
        return false;
    }
    let inputs: Vec<&[u8]> = (0..clique.size).map(|rank| contributions[&rank].as_slice()).collect();
    let chunk = operation.count * size_of_element(operation.element);
    let result = match operation.kind {
        Kind::Broadcast(root) => inputs[root].to_vec(),
        Kind::AllGather => inputs.concat(),
        Kind::AllReduce(op) => reduce(operation.element, op, &inputs),
        Kind::ReduceScatter(op) => {
            reduce(operation.element, op, &inputs)[rank * chunk..(rank + 1) * chunk].to_vec()
        }
        Kind::Send(_) | Kind::Receive(_) => Vec::new(),
    };
    write(operation.receive, &result);
    true
}

fn reduce(element: u32, op: u32, inputs: &[&[u8]]) -> Vec<u8> {
    fn typed<T: Element>(op: ReduceOp, inputs: &[&[u8]]) -> Vec<u8> {
        let inputs: Vec<Vec<T>> = inputs
            .iter()
            // SAFETY: plain numbers, read from wherever they lie.
            .map(|bytes| {
                bytes.chunks(size_of::<T>()).map(|one| unsafe { one.as_ptr().cast::<T>().read_unaligned() })
            })
            .map(Iterator::collect)
            .collect();
        let inputs: Vec<&[T]> = inputs.iter().map(Vec::as_slice).collect();
        let mut output = vec![T::default(); inputs[0].len()];
        T::reduce(op, &inputs, &mut output);
        read(output.as_ptr() as u64, size_of_val(output.as_slice()))
    }
    let op = [Some(ReduceOp::Sum), None, Some(ReduceOp::Max), Some(ReduceOp::Min)][op as usize].unwrap();
    match element {
        1 => typed::<u8>(op, inputs),
        2 => typed::<i32>(op, inputs),
        4 => typed::<i64>(op, inputs),
        6 => typed::<f16>(op, inputs),
        7 => typed::<f32>(op, inputs),
        8 => typed::<f64>(op, inputs),
        9 => typed::<bf16>(op, inputs),
        other => panic!("no element type {other}"),
    }
}

fn size_of_element(element: u32) -> usize {
    [1, 1, 4, 4, 8, 8, 2, 4, 8, 2][element as usize]
}

fn read(address: u64, bytes: usize) -> Vec<u8> {
    // SAFETY: the tests' addresses are memory of that size.
    unsafe { std::slice::from_raw_parts(address as *const u8, bytes) }.to_vec()
}

fn write(address: u64, bytes: &[u8]) {
    // SAFETY: the tests' addresses are memory of that size that nothing else uses.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) };
}
