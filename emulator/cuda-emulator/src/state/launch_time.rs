//! Virtual duration of the kernels and collectives that a thread launches, if a test has set it.

use std::cell::Cell;

thread_local! {
    /// Duration in ns, or `None` for that of the settings.
    static LAUNCH_TIME: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Returns the duration of the calling thread's launches in ns, or `None` for the durations given
/// by settings and names.
pub(crate) fn launch_time() -> Option<u64> {
    LAUNCH_TIME.get()
}

/// Sets the duration of the calling thread's launches in ns. `None` restores the durations given by
/// settings and names.
pub(crate) fn set_launch_time(nanoseconds: Option<u64>) {
    LAUNCH_TIME.set(nanoseconds);
}
