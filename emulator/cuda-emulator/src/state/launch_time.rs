//! How long what a thread launches takes, where the thread says so.

use std::cell::Cell;

thread_local! {
    /// In ns; none for what the settings say.
    static LAUNCH_TIME: Cell<Option<u64>> = const { Cell::new(None) };
}

/// How long the calling thread's launches take, in ns, if it has said so.
pub(crate) fn launch_time() -> Option<u64> {
    LAUNCH_TIME.get()
}

/// Sets it.
pub(crate) fn set_launch_time(nanoseconds: Option<u64>) {
    LAUNCH_TIME.set(nanoseconds);
}
