//! Fault injection: an error at every single call in turn.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use cuda::Error;
use cuda_emulator::{Emulator, Setting};

use super::assert_no_misuse_or_leaks;
use super::scenario::run_scenario;

const UNKNOWN: u32 = 999;

/// Time limit, much longer than the test takes.
const LIMIT: Duration = Duration::from_secs(120);

#[test]
fn error_at_any_call_is_returned_without_leaks() {
    let (done, all_done) = mpsc::channel();
    let tested = thread::spawn(move || {
        every_call_fails_once();
        done.send(())
    });
    match all_done.recv_timeout(LIMIT) {
        Err(RecvTimeoutError::Timeout) => panic!("timed out after {} s", LIMIT.as_secs()),
        _ => tested.join().unwrap().unwrap(),
    }
}

fn every_call_fails_once() {
    let calls = {
        let emulator = Emulator::new().unwrap();
        speed_up(&emulator);
        run_scenario().unwrap();
        assert_no_misuse_or_leaks(&emulator);
        emulator.calls()
    };
    let mut seen = std::collections::BTreeSet::new();
    for call in 1.. {
        let emulator = Emulator::new().unwrap();
        speed_up(&emulator);
        emulator.fail_call(call, UNKNOWN);
        let result = run_scenario();
        if emulator.calls() < call {
            // Past the last call.
            assert!(call > calls, "{call} of {calls}");
            break;
        }
        let log = emulator.log();
        let failed = &log[usize::try_from(call).unwrap() - 1];
        match result {
            // A library returns a code of its own.
            Err(Error::Call { call, code: UNKNOWN, .. } | Error::Library { call, .. }) => {
                assert!(failed.contains(call), "{failed}, but the error names {call}");
                seen.insert(call);
            }
            Err(Error::Unavailable { reason, .. }) if reason.contains("cuInit") => {
                seen.insert("cuInit");
            }
            // Only a query whether there are green contexts; creating one reports the error.
            Ok(()) if failed.contains("cuDeviceGetDevResource") => {}
            // The clock rate may be unknown.
            Ok(()) if failed.contains("cuDeviceGetAttribute") => {}
            other => panic!("call {call}, {failed}: {other:?}"),
        }
        // A stream destroyed while its work runs exists until the work has ended.
        emulator.advance(Duration::from_secs(1));
        assert_eq!(emulator.leaks(), [""; 0], "call {call}, {failed}: {log:#?}");
        // An aborted capture has streams that were not joined.
        let mut misuse = emulator.misuse();
        misuse.retain(|line| !line.contains("CUDA_ERROR_STREAM_CAPTURE_UNJOINED"));
        assert_eq!(misuse, [""; 0], "call {call}, {failed}: {log:#?}");
    }
    println!("{calls} calls, of {} functions: {seen:?}", seen.len());
    assert!(seen.len() > 50, "{seen:?}");
}

/// Makes work end after a few queries.
fn speed_up(emulator: &Emulator) {
    emulator.set(Setting::QueryNs, 20_000);
}
