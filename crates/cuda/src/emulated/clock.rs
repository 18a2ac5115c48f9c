//! Virtual clock of the emulated driver, the library that programs open in place of CUDA's driver
//! and NCCL.
#![allow(unsafe_code)]

use std::time::Duration;

use libloading::Library;

use super::unavailable;
use crate::Result;

/// Virtual clock of the emulated GPUs, in which their kernels and collectives run. It is shared by
/// all threads of the process.
#[derive(Debug, Clone, Copy)]
pub struct EmulatedClock {
    // Functions of the emulated driver alone, for which there are no bindings.
    now: unsafe extern "C" fn() -> u64,
    advance_to_end: unsafe extern "C" fn(u64),
    set_launch_duration: unsafe extern "C" fn(u64),
    set: unsafe extern "C" fn(*const std::ffi::c_char, i64) -> i32,
}

impl EmulatedClock {
    /// Default duration, in virtual time, of a query of a stream or an event.
    pub const DEFAULT_QUERY_DURATION: Duration = Duration::from_micros(1);

    /// Opens the clock of the emulated driver. Returns `None` if no emulated GPUs are requested.
    ///
    /// # Errors
    /// [`Error::Unavailable`](crate::Error::Unavailable) if the library does not exist, cannot be
    /// loaded or lacks the functions of the clock.
    pub fn open() -> Result<Option<Self>> {
        let Some(path) = super::library()? else { return Ok(None) };
        let failed = |error: libloading::Error| unavailable(format!("{}: {error}", path.display()));
        // SAFETY: loading the library runs only initializers of the Rust standard library. It is
        // never closed.
        let library: &Library = Box::leak(Box::new(unsafe { Library::new(&path) }.map_err(failed)?));
        // SAFETY: the signatures equal those of the functions in the library.
        unsafe {
            Ok(Some(Self {
                now: *library.get(b"cuda_emulator_now\0").map_err(failed)?,
                advance_to_end: *library.get(b"cuda_emulator_advance_to_end\0").map_err(failed)?,
                set_launch_duration: *library.get(b"cuda_emulator_launches_take\0").map_err(failed)?,
                set: *library.get(b"cuda_emulator_set\0").map_err(failed)?,
            }))
        }
    }

    /// Returns the virtual time since the emulated driver was opened.
    #[must_use]
    pub fn now(&self) -> Duration {
        // SAFETY: the function has no preconditions.
        Duration::from_nanos(unsafe { (self.now)() })
    }

    /// Advances the virtual time to the earliest end of a running kernel or collective, but at most
    /// by `limit`. Advances it by `limit` if none is running.
    pub fn advance_to_end(&self, limit: Duration) {
        // SAFETY: the function has no preconditions.
        unsafe { (self.advance_to_end)(nanoseconds(limit)) }
    }

    /// Sets the virtual duration of each kernel and each group of collectives that the calling
    /// thread launches or captures from now on. `None` restores the durations of the driver's
    /// settings.
    pub fn set_launch_duration(&self, time: Option<Duration>) {
        // SAFETY: the function has no preconditions.
        unsafe { (self.set_launch_duration)(time.map_or(u64::MAX, nanoseconds)) }
    }

    /// Sets the virtual duration of a query of a stream or an event, by default
    /// [`DEFAULT_QUERY_DURATION`](Self::DEFAULT_QUERY_DURATION). Each query advances the virtual
    /// time by it, so that a thread that polls makes progress.
    pub fn set_query_duration(&self, time: Duration) {
        let nanoseconds = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        // SAFETY: the name is a valid C string.
        unsafe { (self.set)(c"query_ns".as_ptr(), nanoseconds) };
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX - 1)
}
