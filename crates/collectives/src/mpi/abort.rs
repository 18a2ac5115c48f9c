//! How a process aborts the whole job.

use std::panic;
use std::process;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::library;

/// Whether MPI is initialised, and not finalised.
static IN_USE: AtomicBool = AtomicBool::new(false);

/// How long the library may take to end the job.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);

/// From now on a panic of any thread aborts the job, after its message: other ranks would wait for this one.
pub(super) fn abort_on_panic() {
    static INSTALLED: Once = Once::new();
    IN_USE.store(true, Ordering::SeqCst);
    INSTALLED.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |information| {
            print(information);
            if IN_USE.load(Ordering::SeqCst) {
                abort_job();
            }
        }));
    });
}

/// Aborts the job for a panic of which the hook did not run, because the program has replaced it.
pub(super) fn abort_if_panicking() {
    if thread::panicking() && IN_USE.load(Ordering::SeqCst) {
        abort_job();
    }
}

/// A line on standard error, in one piece: the pieces of several ranks would be mixed.
pub(super) fn print_line(line: &str) {
    let line = format!("{line}\n");
    eprint!("{line}");
}

/// From now on a panic ends only its thread again.
pub(super) fn finalised() {
    IN_USE.store(false, Ordering::SeqCst);
}

/// Aborts all ranks, this process within a second. Takes no lock: the thread that panics, or another one, may hold any of
/// them.
pub(super) fn abort_job() -> ! {
    // If the library hangs, `mpirun` ends the job because this process has aborted.
    let _ = thread::Builder::new().spawn(|| {
        thread::sleep(ABORT_TIMEOUT);
        process::abort();
    });
    library::abort();
    process::abort();
}
