//! Progress bars on standard error, which are hidden if it is no terminal.

use std::io::{IsTerminal, stderr};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use burst_planner::Stop;
use indicatif::{ProgressBar, ProgressStyle};

use super::output::micros;

/// Minimum duration of work before progress is shown.
const MIN_DURATION: Duration = Duration::from_secs(1);
/// Interval between updates of a spinner.
const TICK: Duration = Duration::from_millis(100);

/// Returns a progress bar of `iterations` iterations.
pub(crate) fn progress_bar(iterations: u64) -> ProgressBar {
    progress_bar_of(iterations, "iterations")
}

/// Returns a progress bar of `count` units of work. `things` is the plural noun for the units,
/// which the bar shows.
pub(crate) fn progress_bar_of(count: u64, things: &str) -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template(&format!("{{bar:30}} {{pos}}/{{len}} {things}, {{msg}}, {{eta}} left"));
    ProgressBar::new(count).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Returns a callback that takes the finished fraction of the work (0 to 1) and shows it in a bar
/// once the work has taken a second. `what` describes the work.
pub(crate) fn fraction_progress(what: &'static str) -> impl FnMut(f64) {
    const PARTS: f64 = 1000.0;
    let bar = if stderr().is_terminal() { ProgressBar::new(PARTS as u64) } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template("{bar:30} {percent}%, {msg}, {eta} left");
    let bar = bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())).with_message(what);
    let begin = Instant::now();
    move |part| {
        if part >= 1.0 {
            bar.finish_and_clear();
        } else if begin.elapsed() > MIN_DURATION {
            bar.set_position((PARTS * part) as u64);
        }
    }
}

/// As [`with_spinner`], for a search for a plan with the switch `stop`, whose progress is shown.
pub(crate) fn with_search_progress<T>(stop: &Stop, work: impl FnOnce() -> T) -> T {
    let message = || {
        let progress = stop.progress();
        if progress.operations == 0 {
            return format!("searching for a plan: {} evaluated", progress.evaluations);
        }
        format!(
            "plan found; proving a lower bound: {} after {} operations; Ctrl-C ends the proof",
            micros(progress.lower_bound_us),
            progress.operations
        )
    };
    with_message(message, work)
}

/// Runs `work` of unknown duration and returns its result, with a spinner and the elapsed time once
/// it has taken a second. `what` describes the work.
pub(crate) fn with_spinner<T>(what: &'static str, work: impl FnOnce() -> T) -> T {
    with_message(|| what.into(), work)
}

/// As [`with_spinner`]. `message` returns the description of the current step.
fn with_message<T>(message: impl Fn() -> String + Sync, work: impl FnOnce() -> T) -> T {
    if !stderr().is_terminal() {
        return work();
    }
    let (done, is_done) = channel::<()>();
    let message = &message;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if is_done.recv_timeout(MIN_DURATION) == Err(RecvTimeoutError::Timeout) {
                let style = ProgressStyle::with_template("{spinner} {msg}, {elapsed}");
                let bar = ProgressBar::new_spinner().with_elapsed(MIN_DURATION);
                bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
                // Ends when the sender is dropped.
                while is_done.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                    bar.set_message(message());
                    bar.tick();
                }
                bar.finish_and_clear();
            }
        });
        // Dropped at the end of this block, also on a panic, so that the other thread ends.
        let _done = done;
        work()
    })
}
