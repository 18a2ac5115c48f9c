//! How a process ends the whole job.

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
const PATIENCE: Duration = Duration::from_secs(1);

/// From now on a panic of any thread ends the job: other ranks would wait for this one. The message of the panic comes
/// first.
pub(super) fn abort_on_panic() {
    static INSTALLED: Once = Once::new();
    IN_USE.store(true, Ordering::SeqCst);
    INSTALLED.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |information| {
            print(information);
            if IN_USE.load(Ordering::SeqCst) {
                end_job();
            }
        }));
    });
}

/// Ends the job for a panic that the hook was not told of, because the program has replaced it.
pub(super) fn end_if_panicking() {
    if thread::panicking() && IN_USE.load(Ordering::SeqCst) {
        end_job();
    }
}

/// A line on standard error, in one piece: the pieces of several ranks would be mixed.
pub(super) fn say(line: &str) {
    let line = format!("{line}\n");
    eprint!("{line}");
}

/// Panics end only their thread again.
pub(super) fn finalised() {
    IN_USE.store(false, Ordering::SeqCst);
}

/// Ends all ranks, this process at the latest in a second. Takes no lock: the thread that panics, or another one, may hold
/// any of them.
pub(super) fn end_job() -> ! {
    // Should the library be stuck, `mpirun` ends the job because of this process.
    let _ = thread::Builder::new().spawn(|| {
        thread::sleep(PATIENCE);
        process::abort();
    });
    library::abort();
    process::abort();
}
