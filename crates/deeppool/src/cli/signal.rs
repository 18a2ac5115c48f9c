//! Ctrl-C, and what else ends a process.

use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;

use super::launched;

/// Set once the process is asked to end.
static STOP: AtomicBool = AtomicBool::new(false);

/// What an interrupted process returns to a shell.
const INTERRUPTED: i32 = 130;

/// What becomes true when the process is interrupted (Ctrl-C) or told to terminate (SIGTERM, SIGHUP). The second time it ends at once.
pub(crate) fn stop_signal() -> anyhow::Result<&'static AtomicBool> {
    let stop = || {
        if STOP.swap(true, Ordering::Relaxed) {
            exit(INTERRUPTED);
        }
        if launched::is_first() {
            eprintln!("stopping; once more ends at once");
        }
    };
    ctrlc::set_handler(stop).context("cannot react to Ctrl-C")?;
    Ok(&STOP)
}

/// Whether the process was asked to end.
pub(crate) fn is_stopped() -> bool {
    STOP.load(Ordering::Relaxed)
}
