//! NCCL, under its names in `nccl.h` (2.28). The library also replaces `libnccl.so.2`.
#![allow(unsafe_code, non_snake_case)]

use super::pointers::OutPointer;
use crate::{
    host::HandleSlot,
    state::{
        Call, CallError, CallResult, Code, Driver, Handle, NcclCode, Operation, OperationGroup,
        OperationKind, RankParameters, launch_time,
    },
};
use std::{
    cell::RefCell,
    ffi::{CString, c_char},
    ptr::NonNull,
};

/// Version 2.28.9 in the encoding of `ncclGetVersion`.
const VERSION: i32 = 22_809;

/// Memory layout of `ncclUniqueId`. The first 8 bytes hold the id.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct UniqueId([u8; 128]);

/// Memory layout of the first fields of `ncclConfig_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Configuration {
    size: usize,
    magic: u32,
    version: u32,
    blocking: i32,
}

const MAGIC: u32 = 0xcafe_beef;

/// Calls of a thread since it started a group.
#[derive(Default)]
struct GroupCalls {
    /// Nesting depth of groups.
    depth: usize,
    operations: Vec<(Handle, Handle, Operation)>,
    /// Communicators initialised in the group, whose other ranks may be in the same group.
    initialised: Vec<Handle>,
}

thread_local! {
    static GROUP: RefCell<GroupCalls> = RefCell::default();
    /// Text of the thread's last error.
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Runs an NCCL function and records its error for `ncclGetLastError`.
fn run(name: &'static str, work: impl FnOnce(&mut Driver) -> CallResult<NcclCode>) -> u32 {
    Call::always(name).run_nccl(|driver| recording_error(driver, work))
}

fn recording_error(
    driver: &mut Driver,
    work: impl FnOnce(&mut Driver) -> CallResult<NcclCode>,
) -> CallResult<NcclCode> {
    let outcome = work(driver);
    if let Err(error) = &outcome {
        let text = error.misuse.clone().unwrap_or_default();
        LAST_ERROR.set(CString::new(text).unwrap_or_default());
    }
    outcome
}

fn success(outcome: CallResult<()>) -> CallResult<NcclCode> {
    outcome.map(|()| NcclCode::SUCCESS)
}

/// Writes the emulated version of NCCL.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGetVersion(version: *mut i32) -> u32 {
    run("ncclGetVersion", |_| {
        // SAFETY: the caller's promise.
        unsafe { OutPointer::new(version, "version")? }.set(VERSION);
        Ok(NcclCode::SUCCESS)
    })
}

/// Returns a description of an `ncclResult_t`.
#[unsafe(no_mangle)]
extern "C" fn ncclGetErrorString(code: u32) -> *const c_char {
    NcclCode(code).describe().map_or(c"unknown result code", |(_, text)| text).as_ptr()
}

/// Returns the text of the thread's last error. It is valid until the thread's next call.
#[unsafe(no_mangle)]
extern "C" fn ncclGetLastError(_comm: Handle) -> *const c_char {
    LAST_ERROR.with_borrow(|text| text.as_ptr())
}

/// Writes an id that was not returned before.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGetUniqueId(id: *mut UniqueId) -> u32 {
    run("ncclGetUniqueId", |driver| {
        // SAFETY: the caller's promise.
        let id = unsafe { OutPointer::new(id, "uniqueId")? };
        let mut bytes = [0; 128];
        bytes[..8].copy_from_slice(&driver.nccl_id().to_le_bytes());
        id.set(UniqueId(bytes));
        Ok(NcclCode::SUCCESS)
    })
}

/// Creates rank `rank` of a communicator of `ranks` ranks on the current device, and waits for the
/// other ranks unless the call is in a group.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommInitRank(comm: *mut Handle, ranks: i32, id: UniqueId, rank: i32) -> u32 {
    run("ncclCommInitRank", |driver| {
        // SAFETY: the caller's promise.
        unsafe { init(driver, comm, ranks, id, rank, true) }
    })
}

/// Creates a rank like `ncclCommInitRank`. Of the configuration, `blocking` is used; with 0, the
/// call does not wait.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommInitRankConfig(
    comm: *mut Handle,
    ranks: i32,
    id: UniqueId,
    rank: i32,
    configuration: *const Configuration,
) -> u32 {
    run("ncclCommInitRankConfig", |driver| {
        // SAFETY: the caller's promise.
        unsafe {
            let blocking = blocking_setting(configuration)?.unwrap_or(true);
            init(driver, comm, ranks, id, rank, blocking)
        }
    })
}

/// Creates one communicator for each device, all in the calling thread.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommInitAll(comms: *mut Handle, count: i32, devices: *const i32) -> u32 {
    run("ncclCommInitAll", |driver| {
        let size = usize::try_from(count).unwrap_or(0);
        let mut devices = if devices.is_null() {
            (0..count).collect()
        } else {
            // SAFETY: the caller's promise.
            unsafe { super::pointers::read_array(devices, size, "devlist")? }
        };
        devices.truncate(size);
        let id = driver.nccl_id();
        for (rank, device) in (0..count).zip(devices) {
            driver.check_device(device)?;
            let handle =
                driver.nccl_init(&RankParameters { id, ranks: count, rank, device, blocking: true })?;
            // SAFETY: the caller's promise: there is room for `count` handles.
            unsafe { OutPointer::new(comms.wrapping_add(rank as usize), "comm")? }.set(handle);
        }
        Ok(NcclCode::SUCCESS)
    })
}

/// # Safety
/// The pointer is null or valid for a write.
unsafe fn init(
    driver: &mut Driver,
    comm: *mut Handle,
    ranks: i32,
    UniqueId(id): UniqueId,
    rank: i32,
    blocking: bool,
) -> CallResult<NcclCode> {
    // SAFETY: the caller's promise.
    let place = unsafe { OutPointer::new(comm, "comm")? };
    let id = u64::from_le_bytes(std::array::from_fn(|index| id[index]));
    let device = driver.current_device()?;
    let handle = driver.nccl_init(&RankParameters { id, ranks, rank, device, blocking })?;
    place.set(handle);
    let grouped = GROUP.with_borrow_mut(|calls| {
        let grouped = calls.depth > 0;
        if grouped {
            calls.initialised.push(handle);
        }
        grouped
    });
    if grouped { Ok(NcclCode::SUCCESS) } else { driver.comm_call_result(handle) }
}

/// Returns whether calls block, if the configuration sets it.
///
/// # Safety
/// `configuration` is null or begins with the fields of [`Configuration`].
unsafe fn blocking_setting(configuration: *const Configuration) -> CallResult<Option<bool>> {
    if configuration.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise; not null.
    let Configuration { size, magic, blocking, .. } = unsafe { configuration.read() };
    if magic != MAGIC || size < size_of::<Configuration>() {
        return Err(CallError::value("a configuration that was not initialised"));
    }
    Ok((blocking != i32::MIN).then_some(blocking != 0))
}

/// Creates communicators of the ranks of equal `color`, ordered by `key`. The handle is written to
/// `new` once all ranks have called.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommSplit(
    comm: Handle,
    color: i32,
    key: i32,
    new: *mut Handle,
    configuration: *const Configuration,
) -> u32 {
    run("ncclCommSplit", |driver| {
        let place = NonNull::new(new).ok_or_else(|| CallError::value("newcomm is null"))?;
        // SAFETY: the caller's promise.
        let (slot, blocking) = unsafe { (HandleSlot::new(place), blocking_setting(configuration)?) };
        driver.comm_split(comm, color, key, slot, blocking)
    })
}

/// Writes the state of the last call with a non-blocking communicator, or the error of the
/// settings.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommGetAsyncError(comm: Handle, state: *mut u32) -> u32 {
    run("ncclCommGetAsyncError", |driver| {
        // SAFETY: the caller's promise.
        let state = unsafe { OutPointer::new(state, "asyncError")? };
        state.set(driver.comm_async_error(comm)?.0);
        Ok(NcclCode::SUCCESS)
    })
}

/// Waits for the operations of a rank if its communicator is blocking.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommFinalize(comm: Handle) -> u32 {
    run("ncclCommFinalize", |driver| driver.comm_finalize(comm))
}

/// Destroys a rank, after its operations if its communicator is blocking.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommDestroy(comm: Handle) -> u32 {
    Call::always("ncclCommDestroy")
        .destroying()
        .run_nccl(|driver| recording_error(driver, |driver| success(driver.comm_destroy(comm))))
}

/// Destroys a rank. Its operations are removed from their streams.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommAbort(comm: Handle) -> u32 {
    Call::always("ncclCommAbort")
        .destroying()
        .run_nccl(|driver| recording_error(driver, |driver| success(driver.comm_abort(comm))))
}

fn saturating_i32(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Defines functions that return one number about a communicator.
macro_rules! info_functions {
    ($($name:ident: $select:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(comm: Handle, number: *mut i32) -> u32 {
            run(stringify!($name), |driver| {
                // SAFETY: the caller's promise.
                let number = unsafe { OutPointer::new(number, "the place of the result")? };
                let select: fn((usize, usize, i32)) -> i32 = $select;
                number.set(select(driver.comm_info(comm)?));
                Ok(NcclCode::SUCCESS)
            })
        }
    )*};
}

info_functions! {
    ncclCommUserRank: |(rank, ..)| saturating_i32(rank);
    ncclCommCount: |(_, ranks, _)| saturating_i32(ranks);
    ncclCommCuDevice: |(.., device)| device;
}

/// Starts a group, or a nested one, in the calling thread.
#[unsafe(no_mangle)]
extern "C" fn ncclGroupStart() -> u32 {
    run("ncclGroupStart", |_| {
        GROUP.with_borrow_mut(|calls| calls.depth += 1);
        Ok(NcclCode::SUCCESS)
    })
}

/// Ends a group, whatever the call returns. The end of the outermost group enqueues its operations.
#[unsafe(no_mangle)]
extern "C" fn ncclGroupEnd() -> u32 {
    let ended = GROUP.with_borrow_mut(|calls| match calls.depth {
        0 => None,
        1 => Some(std::mem::take(calls)),
        _ => {
            calls.depth -= 1;
            Some(GroupCalls::default())
        }
    });
    run("ncclGroupEnd", |driver| {
        let Some(GroupCalls { operations, initialised, .. }) = ended else {
            return Err(CallError::misuse(Code::ILLEGAL_STATE, "no group was started"));
        };
        let mut code = NcclCode::SUCCESS;
        for (stream, group) in group_operations(operations) {
            let blocking = driver.is_blocking(group.comm)?;
            driver.submit_group(stream, group)?;
            if !blocking {
                code = NcclCode::IN_PROGRESS;
            }
        }
        for comm in initialised {
            if driver.comm_call_result(comm)? != NcclCode::SUCCESS {
                code = NcclCode::IN_PROGRESS;
            }
        }
        Ok(code)
    })
}

/// Groups operations by communicator and stream, in the order of their calls.
fn group_operations(operations: Vec<(Handle, Handle, Operation)>) -> Vec<(Handle, OperationGroup)> {
    let mut groups: Vec<(Handle, OperationGroup)> = Vec::new();
    for (comm, stream, operation) in operations {
        match groups.iter_mut().find(|(other, group)| *other == stream && group.comm == comm) {
            Some((_, group)) => group.operations.push(operation),
            None => groups.push((
                stream,
                OperationGroup { comm, operations: vec![operation], duration_ns: launch_time().unwrap_or(0) },
            )),
        }
    }
    groups
}

/// Submits an operation, or adds it to the thread's open group. An operation on no elements does
/// nothing on any rank.
fn submit_operation(name: &'static str, comm: Handle, stream: Handle, operation: Operation) -> u32 {
    run(name, |driver| {
        driver.check_operation(comm, stream, &operation)?;
        if operation.count == 0 {
            return Ok(NcclCode::SUCCESS);
        }
        let grouped = GROUP.with_borrow_mut(|calls| {
            let grouped = calls.depth > 0;
            if grouped {
                calls.operations.push((comm, stream, operation));
            }
            grouped
        });
        if !grouped {
            driver.submit_group(
                stream,
                OperationGroup { comm, operations: vec![operation], duration_ns: launch_time().unwrap_or(0) },
            )?;
        }
        Ok(NcclCode::SUCCESS)
    })
}

/// Enqueues an all-reduce of `count` elements.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclAllReduce(
    send: u64,
    receive: u64,
    count: usize,
    element: u32,
    reduction: u32,
    comm: Handle,
    stream: Handle,
) -> u32 {
    let kind = OperationKind::AllReduce { reduction };
    submit_operation("ncclAllReduce", comm, stream, Operation { kind, send, receive, count, element })
}

/// Enqueues a reduction of `count` elements to rank `root`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclReduce(
    send: u64,
    receive: u64,
    count: usize,
    element: u32,
    reduction: u32,
    root: i32,
    comm: Handle,
    stream: Handle,
) -> u32 {
    let kind = OperationKind::Reduce { reduction, root: rank_index(root) };
    submit_operation("ncclReduce", comm, stream, Operation { kind, send, receive, count, element })
}

/// Enqueues a broadcast of `count` elements from rank `root`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclBroadcast(
    send: u64,
    receive: u64,
    count: usize,
    element: u32,
    root: i32,
    comm: Handle,
    stream: Handle,
) -> u32 {
    let kind = OperationKind::Broadcast { root: rank_index(root) };
    submit_operation("ncclBroadcast", comm, stream, Operation { kind, send, receive, count, element })
}

/// Enqueues an all-gather of `count` elements of each rank.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclAllGather(
    send: u64,
    receive: u64,
    count: usize,
    element: u32,
    comm: Handle,
    stream: Handle,
) -> u32 {
    let kind = OperationKind::AllGather;
    submit_operation("ncclAllGather", comm, stream, Operation { kind, send, receive, count, element })
}

/// Enqueues a reduce-scatter, of whose result each rank gets `count` elements.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclReduceScatter(
    send: u64,
    receive: u64,
    count: usize,
    element: u32,
    reduction: u32,
    comm: Handle,
    stream: Handle,
) -> u32 {
    let kind = OperationKind::ReduceScatter { reduction };
    submit_operation("ncclReduceScatter", comm, stream, Operation { kind, send, receive, count, element })
}

/// Enqueues a message of `count` elements to rank `peer`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclSend(
    send: u64,
    count: usize,
    element: u32,
    peer: i32,
    comm: Handle,
    stream: Handle,
) -> u32 {
    let kind = OperationKind::Send { to: rank_index(peer) };
    submit_operation("ncclSend", comm, stream, Operation { kind, send, receive: 0, count, element })
}

/// Enqueues the receipt of a message of `count` elements from rank `peer`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclRecv(
    receive: u64,
    count: usize,
    element: u32,
    peer: i32,
    comm: Handle,
    stream: Handle,
) -> u32 {
    let kind = OperationKind::Receive { from: rank_index(peer) };
    submit_operation("ncclRecv", comm, stream, Operation { kind, send: 0, receive, count, element })
}

/// Converts a rank. Negative ranks become one that is too large, and are refused as such.
fn rank_index(number: i32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
