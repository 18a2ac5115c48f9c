//! Creation and destruction of NCCL communicators, with and without failures.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use cuda::nccl::Nccl;
use cuda::{Buffer, Context, Driver, Priority, Stream};
use cuda_emulator::{Emulator, Setting};

use super::super::NcclWorld;
use super::super::comm::{CommFailure, NO_COLOR, NcclComm, Settings};
use super::super::group::id_bytes;
use super::{
    LONG, SHORT, assert_no_leaks, context, emulator, end_calls, live_communicators, nccl, stream, upload,
};
use crate::{
    Communicator, Error, Group, Layout, Redistribution, RedistributionBuffers, ReduceOp, Request,
    WaitStrategy,
};

/// NCCL's message of `ncclRemoteError`.
const REMOTE: &str = "remote process exited or there was a network error";

/// Returns settings for a device of the emulator.
fn settings(device: usize) -> Settings {
    Settings { nccl: nccl(), context: context(device), timeout: SHORT, wait: WaitStrategy::Park }
}

fn init(size: usize) -> std::result::Result<NcclComm, CommFailure> {
    let id = nccl().unique_id().unwrap();
    NcclComm::init(&settings(0), 0, size, id)
}

#[test]
fn a_drop_without_failure_finalizes_and_destroys() {
    let emulator = emulator();
    drop(init(1).unwrap());
    assert_eq!(end_calls(&emulator), ["Finalize", "Destroy"]);
    assert_no_leaks(&emulator);
}

#[test]
fn initialization_without_a_rank_times_out_and_aborts() {
    let emulator = emulator();
    assert!(matches!(init(2), Err(CommFailure::TimedOut(waited)) if waited >= SHORT));
    assert_eq!(end_calls(&emulator), ["Abort"]);
    assert_no_leaks(&emulator);
}

#[test]
fn an_error_aborts_once_and_is_returned_by_every_call() {
    let emulator = emulator();
    let comm = init(1).unwrap();
    assert_eq!(comm.check(), Ok(()));
    emulator.set(Setting::NcclAsyncError, 6);
    let failure = CommFailure::Library(REMOTE.to_owned());
    assert_eq!(comm.check(), Err(failure.clone()));
    emulator.set(Setting::NcclAsyncError, 0);
    assert_eq!(comm.check(), Err(failure.clone()));
    assert_eq!(comm.enqueue(|_, _| 0), Err(failure.clone()));
    assert_eq!(comm.split(0, 0).unwrap_err(), failure);
    comm.abort(CommFailure::Library("again".to_owned()));
    drop(comm);
    assert_eq!(end_calls(&emulator), ["Abort"]);
    assert_no_leaks(&emulator);
}

#[test]
fn an_asynchronous_error_fails_the_operation_and_names_the_rank() {
    let emulator = emulator();
    let world = NcclWorld::new(0, 1, 0).with_timeout(SHORT).with_library(nccl());
    let ranks = world.connect_on(&context(0)).unwrap();
    let mut stream = stream(&ranks);
    let buffer = upload(&[1.0_f32; 3], &ranks);
    let mut request = ranks.start_all_reduce(buffer, ReduceOp::Sum, &mut stream).unwrap();
    emulator.set(Setting::NcclAsyncError, 6);
    let error = request.test().unwrap_err();
    assert_eq!(error.to_string(), format!("NCCL: {REMOTE} (rank 0, in all-reduce (sum of 3 f32))"));
    emulator.set(Setting::NcclAsyncError, 0);
    assert_eq!(request.test().unwrap_err(), error);
    assert_eq!(request.wait().unwrap_err(), error);
    drop((ranks, stream));
    assert_eq!(end_calls(&emulator), ["Abort"]);
    assert_no_leaks(&emulator);
}

#[test]
fn a_drop_in_a_panic_aborts() {
    let emulator = emulator();
    let comm = init(1).unwrap();
    let outcome = catch_unwind(AssertUnwindSafe(move || {
        let _comm = comm;
        panic!("on purpose");
    }));
    assert!(outcome.is_err());
    assert_eq!(end_calls(&emulator), ["Abort"]);
    assert_no_leaks(&emulator);
}

#[test]
fn a_split_returns_a_communicator_unless_the_color_is_none() {
    let emulator = emulator();
    let comm = init(1).unwrap();
    assert!(comm.split(NO_COLOR, 0).unwrap().is_none());
    let child = comm.split(3, 0).unwrap().unwrap();
    drop(comm);
    assert_eq!(child.check(), Ok(()));
    drop(child);
    assert_no_leaks(&emulator);
}

#[test]
fn a_split_without_a_rank_aborts_the_communicator() {
    let emulator = emulator();
    let id = nccl().unique_id().unwrap();
    thread::scope(|scope| {
        let other = scope.spawn(|| NcclComm::init(&settings(1), 1, 2, id).unwrap());
        let comm = NcclComm::init(&settings(0), 0, 2, id).unwrap();
        let other = other.join().unwrap();
        assert!(matches!(comm.split(0, 0), Err(CommFailure::TimedOut(_))));
        assert!(matches!(comm.check(), Err(CommFailure::TimedOut(_))));
        drop(other);
    });
    assert_eq!(end_calls(&emulator), ["Abort", "Finalize", "Destroy"]);
    assert_no_leaks(&emulator);
}

/// Without a GPU, the library creates identifiers and fails only when a communicator is created.
#[test]
fn the_real_library_without_a_device_fails_with_one_line() {
    let library = match Nccl::open() {
        Ok(library) => library,
        Err(error) => return println!("SKIPPED: {error}"),
    };
    assert!(library.version().unwrap() >= 21_800);
    let ids = [library.unique_id().unwrap(), library.unique_id().unwrap()];
    assert_ne!(id_bytes(&ids[0]), id_bytes(&ids[1]));
    if Context::open(0).is_ok() {
        return println!("SKIPPED: there is a CUDA device, which tests/it/nccl.rs uses");
    }
    let world = NcclWorld::new(0, 1, 0).with_timeout(LONG).with_library(library);
    let _fake = emulator();
    let error = world.connect_on(&context(0)).unwrap_err();
    println!("{error}");
    assert!(matches!(error, Error::Library { backend: "NCCL", rank: 0, .. }), "{error:?}");
    assert_eq!(error.to_string().lines().count(), 1, "{error}");
}

/// Calls a variety of operations on one rank.
fn call_many_operations() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let library = [Emulator::library()?];
    let (nccl, context) = (Nccl::open_first_of(&library)?, Driver::open_first_of(&library)?.context(0)?);
    let world = NcclWorld::new(0, 1, 0).with_timeout(LONG).with_wait(WaitStrategy::Yield).with_library(nccl);
    let ranks = world.connect_on(&context)?;
    let mut stream = Stream::new(&context, Priority::default())?;
    let new = |len| Buffer::<f32>::in_stream(&stream, len);
    let (mut one, mut more, output) = (new(2)?, new(2)?, new(2)?);
    one.upload(&stream, &[1.0, 2.0])?;
    ranks.all_reduce(&mut one, ReduceOp::Sum, &mut stream)?;
    ranks.barrier(&mut stream)?;
    let part = ranks.split(Some(1), 0)?;
    let same = ranks.group(&[0])?;
    same.all_gather(&mut one, &mut more, &mut stream)?;
    let identity = Redistribution::new(&Layout::even(2, &[0])?, &Layout::even(2, &[0])?)?;
    let buffers = RedistributionBuffers { input: more, output, ..Default::default() };
    let request = same.start_redistribution(&Arc::new(identity), buffers, 1, &mut stream)?;
    drop(part);
    assert_eq!(request.wait()?.output.to_vec(&stream)?, [1.0, 2.0]);
    drop(ranks.start_all_reduce(one, ReduceOp::Max, &mut stream)?);
    ranks.synchronize(&stream)?;
    Ok(())
}

#[test]
fn any_failing_call_returns_an_error_and_leaks_nothing() {
    let mut failed = 0;
    for call in 1.. {
        let emulator = emulator();
        emulator.fail_call(call, 999);
        let outcome = call_many_operations();
        if let Err(error) = &outcome {
            failed += 1;
            let message = error.to_string();
            assert!(message.contains("unknown error") || message.contains("internal error"), "{message}");
            if let Some(error) = error.downcast_ref() {
                let is_expected =
                    matches!(error, Error::Library { .. } | Error::Cuda { .. } | Error::Unavailable { .. });
                assert!(is_expected, "{error:?}");
            }
        }
        assert_eq!(emulator.misuse(), [""; 0], "call {call}: {outcome:?}");
        assert_eq!(live_communicators(&emulator), 0, "call {call}: {outcome:?}");
        // Memory is leaked only if the device no longer reports whether it still accesses it.
        if emulator.calls() < call {
            assert_no_leaks(&emulator);
            assert!(outcome.is_ok());
            break;
        }
    }
    // Most calls contribute to a result. The others finalize communicators.
    assert!(failed > 40, "{failed}");
}
