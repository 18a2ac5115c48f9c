//! Long-running calls that Ctrl-C ends.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use deeppool::burst_planner::Stop;
use pyo3::prelude::*;

/// Interval between checks for a signal.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs `work` on another thread without the interpreter's lock, and returns its result. `work`
/// receives a flag that is set when a signal handler of Python raises an exception, such as
/// `KeyboardInterrupt`; it should then return early.
///
/// # Errors
/// The exception of the signal handler, or the error of `work`.
pub(crate) fn interruptible<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&Stop) -> PyResult<T> + Send,
) -> PyResult<T> {
    let stop = &Stop::default();
    py.detach(|| {
        std::thread::scope(|scope| {
            let (sender, receiver) = channel();
            let worker = scope.spawn(move || {
                let done = work(stop);
                // The receiver is gone after an interruption.
                _ = sender.send(());
                done
            });
            let interruption = loop {
                match receiver.recv_timeout(POLL_INTERVAL) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => break None,
                }
                if let Some(raised) = Python::attach(|py| py.check_signals().err()) {
                    stop.stop();
                    break Some(raised);
                }
            };
            let done = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            interruption.map_or(done, Err)
        })
    })
}
