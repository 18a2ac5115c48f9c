//! Ctrl-C, and what else ends a process.

use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;

use super::launched::Launched;

/// Set once the process is asked to end.
static STOP: AtomicBool = AtomicBool::new(false);

/// What an interrupted process returns to a shell.
const INTERRUPTED: i32 = 130;

/// What becomes true when the process is interrupted (Ctrl-C) or told to terminate (SIGTERM, SIGHUP). The second time it ends at once,
/// unless a launcher started it: Slurm tells ranks twice within milliseconds when it preempts them, and ends those itself that do not.
pub(crate) fn stop_signal() -> anyhow::Result<&'static AtomicBool> {
    let stop = || {
        let is_again = STOP.swap(true, Ordering::Relaxed);
        match Launched::here() {
            None if is_again => exit(INTERRUPTED),
            None => eprintln!("stopping; once more ends at once"),
            Some(Launched { rank: 0, .. }) if !is_again => eprintln!("stopping"),
            Some(_) => {}
        }
    };
    ctrlc::set_handler(stop).context("cannot react to Ctrl-C")?;
    Ok(&STOP)
}

/// Whether the process was asked to end.
pub(crate) fn is_stopped() -> bool {
    STOP.load(Ordering::Relaxed)
}
