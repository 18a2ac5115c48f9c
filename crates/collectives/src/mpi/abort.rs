//! Abort of the job: of all processes that `mpirun` has started.

use std::panic;
use std::process;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::library;

/// Whether MPI is initialized and not finalized.
static IN_USE: AtomicBool = AtomicBool::new(false);

/// Maximum time that the library may take to end the job.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);

/// Makes a panic of any thread abort the job after its message, because other ranks would wait for
/// this one.
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

/// Aborts the job if this thread panics. Needed if the program has replaced the panic hook.
pub(super) fn abort_if_panicking() {
    if thread::panicking() && IN_USE.load(Ordering::SeqCst) {
        abort_job();
    }
}

/// Prints `line` and a line break on standard error in one write, so that the lines of several
/// ranks do not mix.
pub(super) fn print_line(line: &str) {
    let line = format!("{line}\n");
    eprint!("{line}");
}

/// Reverts [`abort_on_panic`]: a panic then ends only its thread.
pub(super) fn stop_aborting_on_panic() {
    IN_USE.store(false, Ordering::SeqCst);
}

/// Aborts all ranks of the job, and this process within a second. Takes no lock, because a
/// panicking or any other thread may hold it.
pub(super) fn abort_job() -> ! {
    // If the library hangs, `mpirun` ends the job because this process aborts.
    let _ = thread::Builder::new().spawn(|| {
        thread::sleep(ABORT_TIMEOUT);
        process::abort();
    });
    library::abort();
    process::abort();
}
