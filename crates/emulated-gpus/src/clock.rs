//! The virtual clock of the emulated driver.
#![allow(unsafe_code)]

use std::mem;
use std::time::Duration;

use libloading::Library;

use crate::OpenError;

/// The virtual time of the emulated GPUs, in which their kernels and collectives run.
#[derive(Debug, Clone, Copy)]
pub struct EmulatedClock {
    now: unsafe extern "C" fn() -> u64,
    advance_to_end: unsafe extern "C" fn(u64),
    launches_take: unsafe extern "C" fn(u64),
    set: unsafe extern "C" fn(*const std::ffi::c_char, i64) -> i32,
}

impl EmulatedClock {
    /// How much time a query takes.
    pub const QUERY_TIME: Duration = Duration::from_micros(1);

    /// The clock, if emulated GPUs are asked for.
    ///
    /// # Errors
    /// In one line, where they are asked for and the library is not there, or is another one.
    pub fn open() -> Result<Option<Self>, OpenError> {
        let Some(path) = crate::library()? else { return Ok(None) };
        let failed = |source| OpenError::Library { path: path.clone(), source };
        // SAFETY: loading the emulated driver runs no code but that of Rust's standard library; it is never closed.
        let library = unsafe { Library::new(&path) }.map_err(failed)?;
        // SAFETY: the signatures are those of the library's functions.
        let clock = unsafe {
            Self {
                now: *library.get(b"cuda_emulator_now\0").map_err(failed)?,
                advance_to_end: *library.get(b"cuda_emulator_advance_to_end\0").map_err(failed)?,
                launches_take: *library.get(b"cuda_emulator_launches_take\0").map_err(failed)?,
                set: *library.get(b"cuda_emulator_set\0").map_err(failed)?,
            }
        };
        mem::forget(library);
        Ok(Some(clock))
    }

    /// The time since the driver was opened.
    #[must_use]
    pub fn now(&self) -> Duration {
        // SAFETY: it may be called at any time.
        Duration::from_nanos(unsafe { (self.now)() })
    }

    /// Lets time pass until a kernel or a collective ends, but not more than this.
    pub fn advance_to_end(&self, limit: Duration) {
        // SAFETY: as above.
        unsafe { (self.advance_to_end)(nanoseconds(limit)) }
    }

    /// Sets how long each kernel and each group of collectives takes that the calling thread launches or captures from now on; `None` for
    /// what the driver's settings say.
    pub fn launches_take(&self, time: Option<Duration>) {
        // SAFETY: as above.
        unsafe { (self.launches_take)(time.map_or(u64::MAX, nanoseconds)) }
    }

    /// Sets how much time a query of a stream or an event takes: [`QUERY_TIME`](Self::QUERY_TIME) by default, so that a host that polls
    /// gets on.
    pub fn query_time(&self, time: Duration) {
        let nanoseconds = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        // SAFETY: as above; the name ends with a zero.
        unsafe { (self.set)(c"query_ns".as_ptr(), nanoseconds) };
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX - 1)
}
