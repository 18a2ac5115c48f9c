//! NCCL's functions, emulated.

use std::cell::RefCell;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use cudarc::nccl::sys;

use super::{Clique, Comm, Fabric, Kind, Operation, State, Work};
use crate::nccl::api::{Code, Handle, IN_PROGRESS, Nccl, RawStream, SUCCESS, UniqueId};

const FAILED: Code = sys::ncclResult_t::ncclInternalError as Code;

/// Polls that a call takes to be through.
const POLLS: u32 = 2;

/// The library.
#[derive(Debug)]
pub(super) struct FakeNccl(pub(super) Arc<Fabric>);

/// What a thread has called since it started a group: its communicator, stream and operations.
type Grouped = Vec<(usize, usize, Operation)>;

thread_local! {
    static GROUP: RefCell<Option<Grouped>> = const { RefCell::new(None) };
}

impl FakeNccl {
    /// One call that may be made to fail.
    fn call(&self, action: impl FnOnce(&mut State) -> Code) -> Code {
        let mut state = self.0.lock();
        if state.fails() { FAILED } else { action(&mut state) }
    }

    fn operation(
        &self,
        kind: Kind,
        (send, receive): (u64, u64),
        count: usize,
        element: u32,
        at: (Handle, RawStream),
    ) -> Code {
        let operation = Operation { kind, send, receive, count, element, number: 0, done: false };
        self.call(|state| {
            let comm = at.0 as usize;
            let bad = count == 0 || (send == 0 && receive == 0) || !state.comms.contains_key(&comm);
            GROUP.with_borrow_mut(|group| match group {
                Some(group) if !bad => group.push((comm, at.1 as usize, operation)),
                _ => state.violations.push(format!("{kind:?} of {count} where it is not allowed")),
            });
            SUCCESS
        })
    }

    /// Ends a communicator.
    fn end(&self, comm: Handle, how: &'static str) -> Code {
        let mut state = self.0.lock();
        state.log.push(how);
        let fails = state.fails();
        match state.comms.remove(&(comm as usize)) {
            None => state.violations.push(format!("{how} of a communicator that is no more")),
            Some(comm) if how == "destroy" && !comm.finalized => {
                state.violations.push("destroy before finalize".to_owned());
            }
            Some(_) => {}
        }
        let takes = state.abort_takes;
        drop(state);
        if how == "abort" {
            std::thread::sleep(takes);
        }
        if fails { FAILED } else { SUCCESS }
    }
}

impl State {
    fn add(&mut self, clique: usize, rank: usize) -> usize {
        self.ids += 1;
        let handle = self.ids as usize;
        let comm =
            Comm { clique, rank, collectives: 0, splits: 0, operations: 0, finalized: false, pending: POLLS };
        self.comms.insert(handle, comm);
        self.cliques[clique].joined += 1;
        handle
    }

    /// Makes the communicators of a split that all ranks have called.
    fn complete_split(&mut self, parent: usize, number: usize) {
        let choices = self.cliques[parent].splits[number].clone();
        if choices.len() < self.cliques[parent].size {
            return;
        }
        let mut members: Vec<_> =
            choices.into_iter().map(|(rank, (color, key, slot))| (color, key, rank, slot)).collect();
        members.sort_unstable();
        for group in members.chunk_by(|a, b| a.0 == b.0).filter(|group| group[0].0 >= 0) {
            let clique = self.cliques.len();
            self.cliques.push(Clique { size: group.len(), ..Clique::default() });
            for (rank, (.., slot)) in group.iter().enumerate() {
                let handle = self.add(clique, rank);
                // SAFETY: the slot stays as long as the split may write to it.
                unsafe { (*slot as *mut Handle).write_volatile(handle as Handle) };
            }
        }
    }
}

impl Nccl for FakeNccl {
    fn error_string(&self, code: Code) -> String {
        format!("fake error {code}")
    }

    unsafe fn last_error(&self, _: Handle) -> String {
        String::new()
    }

    unsafe fn get_version(&self, version: *mut c_int) -> Code {
        self.call(|_| {
            // SAFETY: as the caller promises.
            unsafe { version.write(22_809) };
            SUCCESS
        })
    }

    unsafe fn get_unique_id(&self, id: *mut UniqueId) -> Code {
        self.call(|state| {
            state.ids += 1;
            let mut internal = [0; 128];
            for (byte, value) in internal.iter_mut().zip(state.ids.to_ne_bytes()) {
                *byte = std::ffi::c_char::from_ne_bytes([value]);
            }
            // SAFETY: as the caller promises.
            unsafe { id.write(UniqueId { internal }) };
            SUCCESS
        })
    }

    unsafe fn init_rank(
        &self,
        comm: *mut Handle,
        ranks: c_int,
        id: UniqueId,
        rank: c_int,
        config: *mut sys::ncclConfig_t,
    ) -> Code {
        self.call(|state| {
            // SAFETY: as the caller promises.
            let config = unsafe { config.read() };
            if config.magic != 0xcafe_beef || config.blocking != 0 || config.size != size_of_val(&config) {
                state.violations.push("a configuration that is none, or blocks".to_owned());
            }
            let bytes: Vec<u8> = id.internal[..8].iter().map(|byte| byte.to_ne_bytes()[0]).collect();
            let id = u64::from_ne_bytes(bytes.try_into().unwrap());
            let clique = state.cliques.iter().position(|clique| clique.id == id).unwrap_or_else(|| {
                state.cliques.push(Clique { id, size: ranks as usize, ..Clique::default() });
                state.cliques.len() - 1
            });
            let handle = state.add(clique, rank as usize);
            // SAFETY: as the caller promises.
            unsafe { comm.write(handle as Handle) };
            IN_PROGRESS
        })
    }

    unsafe fn split(
        &self,
        comm: Handle,
        color: c_int,
        key: c_int,
        new: *mut Handle,
        _: *mut sys::ncclConfig_t,
    ) -> Code {
        self.call(|state| {
            let Some(comm) = state.comms.get_mut(&(comm as usize)) else { return FAILED };
            let (parent, number, rank) = (comm.clique, comm.splits, comm.rank);
            let operations = comm.operations;
            comm.splits += 1;
            comm.pending = POLLS;
            let splits = &mut state.cliques[parent].splits;
            splits.resize(splits.len().max(number + 1), std::collections::HashMap::new());
            splits[number].insert(rank, (color, key, new as usize));
            state.complete_split(parent, number);
            if operations > 0 {
                state.violations.push(format!("a split with {operations} pending operations"));
            }
            IN_PROGRESS
        })
    }

    unsafe fn async_error(&self, comm: Handle, current: *mut Code) -> Code {
        self.call(|state| {
            let error = state.async_error;
            let Some(comm) = state.comms.get_mut(&(comm as usize)) else {
                state.violations.push("a question about a communicator that is no more".to_owned());
                return FAILED;
            };
            let clique = &state.cliques[comm.clique];
            let all_here = clique.joined == clique.size
                && clique.splits.iter().take(comm.splits).all(|split| split.len() == clique.size);
            comm.pending = comm.pending.saturating_sub(1);
            let progress = if all_here && comm.pending == 0 { SUCCESS } else { IN_PROGRESS };
            // SAFETY: as the caller promises.
            unsafe { current.write(error.unwrap_or(progress)) };
            SUCCESS
        })
    }

    unsafe fn finalize(&self, comm: Handle) -> Code {
        self.call(|state| {
            state.log.push("finalize");
            let Some(comm) = state.comms.get_mut(&(comm as usize)) else { return FAILED };
            (comm.finalized, comm.pending) = (true, POLLS);
            IN_PROGRESS
        })
    }

    unsafe fn destroy(&self, comm: Handle) -> Code {
        self.end(comm, "destroy")
    }

    unsafe fn abort(&self, comm: Handle) -> Code {
        self.end(comm, "abort")
    }

    unsafe fn group_start(&self) -> Code {
        self.call(|state| {
            if GROUP.replace(Some(Vec::new())).is_some() {
                state.violations.push("a group within a group".to_owned());
            }
            SUCCESS
        })
    }

    unsafe fn group_end(&self) -> Code {
        let Some(group) = GROUP.take() else {
            self.0.lock().violations.push("the end of no group".to_owned());
            return FAILED;
        };
        let code = self.call(|_| SUCCESS);
        let Some(&(comm, stream, _)) = group.first().filter(|_| code == SUCCESS) else { return code };
        let streams: Vec<_> = self.0.lock().streams.iter().filter_map(std::sync::Weak::upgrade).collect();
        let operations = group.into_iter().map(|(.., operation)| operation).collect();
        if let Some(comm) = self.0.lock().comms.get_mut(&comm) {
            comm.operations += 1;
        }
        match streams.iter().find(|known| Arc::as_ptr(known) as usize == stream) {
            Some(stream) => stream.push(Work::Batch { comm, operations, posted: false }),
            None => self.0.lock().violations.push("a stream that is no more".to_owned()),
        }
        IN_PROGRESS
    }

    unsafe fn all_reduce(
        &self,
        send: *const c_void,
        receive: *mut c_void,
        count: usize,
        element: c_uint,
        op: c_uint,
        comm: Handle,
        stream: RawStream,
    ) -> Code {
        self.operation(Kind::AllReduce(op), (send as u64, receive as u64), count, element, (comm, stream))
    }

    unsafe fn broadcast(
        &self,
        send: *const c_void,
        receive: *mut c_void,
        count: usize,
        element: c_uint,
        root: c_int,
        comm: Handle,
        stream: RawStream,
    ) -> Code {
        self.operation(
            Kind::Broadcast(root as usize),
            (send as u64, receive as u64),
            count,
            element,
            (comm, stream),
        )
    }

    unsafe fn all_gather(
        &self,
        send: *const c_void,
        receive: *mut c_void,
        count: usize,
        element: c_uint,
        comm: Handle,
        stream: RawStream,
    ) -> Code {
        self.operation(Kind::AllGather, (send as u64, receive as u64), count, element, (comm, stream))
    }

    unsafe fn reduce_scatter(
        &self,
        send: *const c_void,
        receive: *mut c_void,
        count: usize,
        element: c_uint,
        op: c_uint,
        comm: Handle,
        stream: RawStream,
    ) -> Code {
        self.operation(Kind::ReduceScatter(op), (send as u64, receive as u64), count, element, (comm, stream))
    }

    unsafe fn send(
        &self,
        buffer: *const c_void,
        count: usize,
        element: c_uint,
        peer: c_int,
        comm: Handle,
        stream: RawStream,
    ) -> Code {
        self.operation(Kind::Send(peer as usize), (buffer as u64, 0), count, element, (comm, stream))
    }

    unsafe fn receive(
        &self,
        buffer: *mut c_void,
        count: usize,
        element: c_uint,
        peer: c_int,
        comm: Handle,
        stream: RawStream,
    ) -> Code {
        self.operation(Kind::Receive(peer as usize), (0, buffer as u64), count, element, (comm, stream))
    }
}
