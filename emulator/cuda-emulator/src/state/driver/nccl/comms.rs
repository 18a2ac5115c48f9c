//! Creation, splitting and destruction of communicators. A handle stands for one rank of a
//! communicator (`ncclComm_t`).

use crate::{
    host::HandleSlot,
    state::{
        CallError, CallResult, Code, Handle,
        driver::Driver,
        handles::HandleKind,
        nccl::{Communicator, CommunicatorRank, NcclCode, SplitCall},
    },
};
use std::collections::{BTreeMap, VecDeque};

/// Number of polls after which a call of a non-blocking communicator is reported as complete.
const POLLS_UNTIL_COMPLETE: u32 = 2;

/// Parameters of a rank that joins a communicator.
pub(crate) struct RankParameters {
    /// Unique id of the communicator, as `ncclGetUniqueId` returned it.
    pub(crate) id: u64,
    /// Number of ranks of the communicator, as passed by the caller.
    pub(crate) ranks: i32,
    /// Rank that joins, as passed by the caller.
    pub(crate) rank: i32,
    /// Device of the rank.
    pub(crate) device: i32,
    /// Whether the communicator is blocking: the calls that create, split or finalize it return
    /// only when they are complete.
    pub(crate) blocking: bool,
}

impl Driver {
    /// Implements `ncclGetUniqueId`: returns a number that was not returned before.
    pub(crate) fn nccl_id(&mut self) -> u64 {
        self.nccl.id_count += 1;
        // Never 0, so that an uninitialised id is not valid.
        self.nccl.id_count << 16 | 0x1d
    }

    /// Implements `ncclCommInitRank`: returns the handle of the rank without waiting for the other
    /// ranks. It is an error if the rank exists, if the number of ranks differs from that of
    /// earlier calls, or if another rank has the same device.
    pub(crate) fn nccl_init(&mut self, init: &RankParameters) -> CallResult<Handle> {
        let &RankParameters { id, ranks, rank, device, blocking } = init;
        let (Ok(size @ 1..), Ok(rank)) = (usize::try_from(ranks), usize::try_from(rank)) else {
            return Err(CallError::value(format!("rank {rank} of {ranks}")));
        };
        if rank >= size {
            return Err(CallError::value(format!("rank {rank} of {size}")));
        }
        let known = self.nccl.communicators.iter().position(|communicator| communicator.id == Some(id));
        let communicator = known.unwrap_or_else(|| {
            self.nccl.communicators.push(Communicator { id: Some(id), size, ..Communicator::default() });
            self.nccl.communicators.len() - 1
        });
        let members = &self.nccl.communicators[communicator].members;
        if self.nccl.communicators[communicator].size != size || members.contains_key(&rank) {
            return Err(CallError::value(format!(
                "rank {rank} of {size} where the id is used by ranks {:?} of {}",
                members.keys().collect::<Vec<_>>(),
                self.nccl.communicators[communicator].size
            )));
        }
        let comms = &self.nccl.comms;
        let same = |member: &Handle| comms.get(member).is_some_and(|comm| comm.device == device);
        if let Some((other, _)) = members.iter().find(|(_, member)| same(member)) {
            let text = format!("ranks {other} and {rank} of a communicator both on device {device}");
            return Err(CallError::misuse(Code::ILLEGAL_STATE, text));
        }
        Ok(self.add_comm(communicator, rank, device, blocking))
    }

    fn add_comm(&mut self, communicator: usize, rank: usize, device: i32, blocking: bool) -> Handle {
        let handle = self.handles.create(HandleKind::CommunicatorRank);
        let comm = CommunicatorRank {
            communicator,
            rank,
            device,
            blocking,
            collectives: 0,
            sent: BTreeMap::new(),
            received: BTreeMap::new(),
            splits: 0,
            batches: VecDeque::new(),
            finalized: false,
            polls: POLLS_UNTIL_COMPLETE,
        };
        self.nccl.comms.insert(handle, comm);
        self.nccl.communicators[communicator].members.insert(rank, handle);
        handle
    }

    /// Returns the rank with a handle. A null, destroyed or unknown handle is an error.
    pub(super) fn comm(&self, handle: Handle) -> CallResult<&CommunicatorRank> {
        self.handles.check(HandleKind::CommunicatorRank, handle)?;
        self.nccl.comms.get(&handle).ok_or_else(|| CallError::plain(Code::INVALID_HANDLE))
    }

    /// Returns the rank with a handle, for changes. A null, destroyed or unknown handle is an
    /// error.
    pub(super) fn comm_mut(&mut self, handle: Handle) -> CallResult<&mut CommunicatorRank> {
        self.handles.check(HandleKind::CommunicatorRank, handle)?;
        self.nccl.comms.get_mut(&handle).ok_or_else(|| CallError::plain(Code::INVALID_HANDLE))
    }

    /// Returns the rank that a handle stands for, the number of ranks of its communicator, and its
    /// device.
    pub(crate) fn comm_info(&self, handle: Handle) -> CallResult<(usize, usize, i32)> {
        let comm = self.comm(handle)?;
        Ok((comm.rank, self.nccl.communicators[comm.communicator].size, comm.device))
    }

    /// Returns whether the communicator of a rank is blocking: the calls that create, split or
    /// finalize it return only when they are complete.
    pub(crate) fn is_blocking(&self, handle: Handle) -> CallResult<bool> {
        Ok(self.comm(handle)?.blocking)
    }

    /// Returns the result of a successful call that creates a communicator: `IN_PROGRESS` at once
    /// for a non-blocking one, otherwise `SUCCESS` once all ranks have called.
    pub(crate) fn comm_call_result(&mut self, handle: Handle) -> CallResult<NcclCode> {
        if !self.comm(handle)?.blocking {
            return Ok(NcclCode::IN_PROGRESS);
        }
        self.wait_for_ranks(|driver| driver.comm_is_ready(handle))?;
        Ok(NcclCode::SUCCESS)
    }

    /// Returns whether all ranks have called the initialisation and each split. True for a
    /// destroyed communicator.
    fn comm_is_ready(&self, handle: Handle) -> bool {
        let Some(comm) = self.nccl.comms.get(&handle) else { return true };
        let communicator = &self.nccl.communicators[comm.communicator];
        communicator.is_complete()
            && communicator.splits.iter().take(comm.splits).all(|split| split.len() == communicator.size)
    }

    /// Implements `ncclCommSplit`. Ranks of equal `color` join a new communicator, ordered by
    /// `key`. A rank with a negative color joins none. The new handle is written to `slot` once all
    /// ranks have called. `blocking` tells whether the new communicator is blocking; `None` copies
    /// the property of the old one.
    pub(crate) fn comm_split(
        &mut self,
        handle: Handle,
        color: i32,
        key: i32,
        slot: HandleSlot,
        blocking: Option<bool>,
    ) -> CallResult<NcclCode> {
        let comm = self.comm_mut(handle)?;
        let (parent, number, rank, device) = (comm.communicator, comm.splits, comm.rank, comm.device);
        let (pending, blocking) = (comm.batches.len(), blocking.unwrap_or(comm.blocking));
        comm.splits += 1;
        comm.polls = POLLS_UNTIL_COMPLETE;
        slot.set(0);
        let splits = &mut self.nccl.communicators[parent].splits;
        splits.resize_with(splits.len().max(number + 1), BTreeMap::new);
        splits[number].insert(rank, SplitCall { color, key, slot, device, blocking });
        if pending > 0 {
            let name = self.handles.name(handle);
            self.warn(format!("ncclCommSplit of {name} with {pending} incomplete operations"));
        }
        self.complete_split(parent, number);
        self.comm_call_result(handle)
    }

    /// Creates the communicators of a split that all ranks have called.
    fn complete_split(&mut self, parent: usize, number: usize) {
        let size = self.nccl.communicators[parent].size;
        let calls = &self.nccl.communicators[parent].splits[number];
        if calls.len() < size {
            return;
        }
        let mut members: Vec<_> = calls.iter().map(|(rank, call)| (call.color, call.key, *rank)).collect();
        members.sort_unstable();
        for group in members.chunk_by(|a, b| a.0 == b.0).filter(|group| group[0].0 >= 0) {
            let communicator = self.nccl.communicators.len();
            self.nccl.communicators.push(Communicator { size: group.len(), ..Communicator::default() });
            for (rank, (.., old)) in group.iter().enumerate() {
                let call = &self.nccl.communicators[parent].splits[number][old];
                let (device, blocking, slot) = (call.device, call.blocking, call.slot);
                slot.set(self.add_comm(communicator, rank, device, blocking));
            }
        }
    }

    /// Implements `ncclCommGetAsyncError`: returns `IN_PROGRESS` until the last call with a
    /// non-blocking communicator is complete, and then `SUCCESS`. If the settings have an error,
    /// returns that instead.
    pub(crate) fn comm_async_error(&mut self, handle: Handle) -> CallResult<NcclCode> {
        self.execute_ready_work();
        let through = self.comm_is_ready(handle);
        let injected = self.settings.nccl_async_error as u32;
        let comm = self.comm_mut(handle)?;
        comm.polls = comm.polls.saturating_sub(1);
        let (polls, ended) = (comm.polls, !comm.finalized || comm.batches.is_empty());
        Ok(match injected {
            0 if through && polls == 0 && ended => NcclCode::SUCCESS,
            0 => NcclCode::IN_PROGRESS,
            error => NcclCode(error),
        })
    }

    /// Implements `ncclCommFinalize`. With a blocking communicator it waits for the operations of
    /// the rank.
    pub(crate) fn comm_finalize(&mut self, handle: Handle) -> CallResult<NcclCode> {
        let comm = self.comm_mut(handle)?;
        (comm.finalized, comm.polls) = (true, POLLS_UNTIL_COMPLETE);
        if !comm.blocking {
            return Ok(NcclCode::IN_PROGRESS);
        }
        self.wait_for_ranks(move |driver| driver.has_no_operations(handle))?;
        Ok(NcclCode::SUCCESS)
    }

    fn has_no_operations(&self, handle: Handle) -> bool {
        self.nccl.comms.get(&handle).is_none_or(|comm| comm.batches.is_empty())
    }

    /// Implements `ncclCommDestroy`. With a blocking communicator it waits for the operations of
    /// the rank. A non-blocking one should be finalized before.
    pub(crate) fn comm_destroy(&mut self, handle: Handle) -> CallResult<()> {
        let comm = self.comm(handle)?;
        let (blocking, finalized) = (comm.blocking, comm.finalized);
        if blocking {
            self.wait_for_ranks(move |driver| driver.has_no_operations(handle))?;
        } else if !finalized {
            let name = self.handles.name(handle);
            self.warn(format!("ncclCommDestroy of {name} before ncclCommFinalize"));
        }
        self.drop_comm(handle);
        Ok(())
    }

    /// Implements `ncclCommAbort`. The operations of the rank are removed from their streams
    /// without being completed.
    pub(crate) fn comm_abort(&mut self, handle: Handle) -> CallResult<()> {
        self.comm(handle)?;
        self.drop_comm(handle);
        let until =
            std::time::Instant::now() + std::time::Duration::from_millis(self.settings.nccl_abort_ms as u64);
        while self.yield_to_other_threads(until, true) {}
        self.execute_ready_work();
        Ok(())
    }

    fn drop_comm(&mut self, handle: Handle) {
        self.handles.destroy(handle);
        let Some(comm) = self.nccl.comms.remove(&handle) else { return };
        let communicator = &mut self.nccl.communicators[comm.communicator];
        communicator.members.insert(comm.rank, 0);
        communicator.pending_calls.retain(|_, calls| {
            calls.retain(|_, (batch, _)| !comm.batches.contains(batch));
            !calls.is_empty()
        });
        for batch in comm.batches {
            self.nccl.batches.remove(&batch);
        }
    }
}

impl Driver {
    /// Marks each communicator with operations in progress on a lost device as failed, so that its
    /// other ranks fail too.
    pub(in crate::state) fn fail_comms(&mut self, device: i32) {
        let nccl = &mut self.nccl;
        for comm in nccl.comms.values().filter(|comm| comm.device == device && !comm.batches.is_empty()) {
            let communicator = &mut nccl.communicators[comm.communicator];
            communicator.disagreement.get_or_insert(format!(
                "the device of rank {} of NCCL communicator {} is lost with operations in progress",
                comm.rank,
                comm.communicator + 1
            ));
        }
    }
}
