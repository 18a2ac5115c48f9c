//! Handling of signals that end the process.

use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use burst_planner::Stop;

use super::launched::Launched;

/// Whether a signal was received.
static STOP: AtomicBool = AtomicBool::new(false);

/// Exit code of an interrupted process.
const INTERRUPTED: i32 = 130;

/// Installs a handler for SIGINT (Ctrl-C), SIGTERM and SIGHUP, and returns the flag that it sets.
///
/// A second signal ends the process at once, unless a launcher started it: Slurm sends two signals
/// within milliseconds when it preempts a job.
///
/// # Errors
/// If the handler cannot be installed, such as a second time.
pub(crate) fn stop_signal() -> anyhow::Result<&'static AtomicBool> {
    let stop = || {
        let is_again = STOP.swap(true, Ordering::Relaxed);
        match Launched::from_env() {
            None if is_again => exit(INTERRUPTED),
            None => eprintln!("stopping; once more ends at once"),
            Some(Launched { rank: 0, .. }) if !is_again => eprintln!("stopping"),
            Some(_) => {}
        }
    };
    ctrlc::set_handler(stop).context("cannot react to Ctrl-C")?;
    Ok(&STOP)
}

/// Installs a handler for SIGINT (Ctrl-C), SIGTERM and SIGHUP, and returns the switch of a search
/// for a plan. A signal ends the process during the search, as there is no plan yet. The first
/// signal during the proof of its lower bound ends the proof, and the second one the process.
///
/// # Errors
/// If the handler cannot be installed, such as a second time.
pub(crate) fn plan_stop() -> anyhow::Result<Stop> {
    let stop = Stop::default();
    let of_handler = stop.clone();
    let handler = move || {
        if of_handler.progress().operations == 0 || STOP.swap(true, Ordering::Relaxed) {
            exit(INTERRUPTED);
        }
        of_handler.stop();
    };
    ctrlc::set_handler(handler).context("cannot react to Ctrl-C")?;
    Ok(stop)
}

/// Returns whether a signal that ends the process was received since the handler was installed.
pub(crate) fn is_stopped() -> bool {
    STOP.load(Ordering::Relaxed)
}
