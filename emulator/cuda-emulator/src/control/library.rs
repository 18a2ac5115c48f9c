//! Control of the library, which is opened by its path.
#![allow(unsafe_code)]

use super::{KernelRun, Setting};
use libloading::{Library, Symbol};
use std::{
    ffi::{CString, c_char},
    mem::ManuallyDrop,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Lock held by the test that uses the library.
static EMULATOR_LOCK: Mutex<()> = Mutex::new(());

/// Emulated driver of this process, held by one test at a time. Creating it resets the driver.
///
/// The code under test opens the same library, by its path [`Emulator::library`] or its name.
#[derive(Debug)]
pub struct Emulator {
    /// Never closed, because the code under test keeps pointers into it.
    library: ManuallyDrop<Library>,
    _guard: MutexGuard<'static, ()>,
}

/// Virtual clock of the emulated driver. It can be used from any thread.
#[derive(Debug, Clone, Copy)]
pub struct VirtualClock {
    now: unsafe extern "C" fn() -> u64,
    advance: unsafe extern "C" fn(u64),
}

impl VirtualClock {
    /// Returns the virtual time since the driver was reset.
    #[must_use]
    pub fn now(&self) -> Duration {
        // SAFETY: it may be called at any time.
        Duration::from_nanos(unsafe { (self.now)() })
    }

    /// Advances the clock and completes the work that ends meanwhile.
    pub fn advance(&self, time: Duration) {
        // SAFETY: it may be called at any time.
        unsafe { (self.advance)(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)) }
    }
}

/// Errors of finding, linking and opening the library.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The library is not where Cargo puts it, or was not built.
    #[error(transparent)]
    NotFound(#[from] cuda::Error),
    /// A link cannot be created.
    #[error("{}: {source}", path.display())]
    Link {
        /// Path of the link.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The library cannot be loaded, or is not that of the emulated driver.
    #[error("{}: {source}", path.display())]
    Open {
        /// Path of the library.
        path: PathBuf,
        /// Error of the loader.
        source: libloading::Error,
    },
}

impl Emulator {
    /// Returns the path of the library, as found by [`cuda::emulated::find`] beside the running
    /// program.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no library.
    pub fn library() -> Result<PathBuf, Error> {
        Ok(cuda::emulated::find()?)
    }

    /// Creates links to the library in `folder`, under the names of CUDA's driver, NCCL, cuBLASLt
    /// and cuDNN. A program with the folder in `LD_LIBRARY_PATH` uses the library as all of them.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no library, [`Error::Link`] if a link cannot be created, for
    /// example because it exists.
    #[cfg(unix)]
    pub fn install(folder: &Path) -> Result<(), Error> {
        let library = Self::library()?;
        for (name, version) in [("cuda", 1), ("nccl", 2), ("cublasLt", 13), ("cudnn", 9)] {
            for file in [format!("lib{name}.so.{version}"), format!("lib{name}.so")] {
                let path = folder.join(file);
                std::os::unix::fs::symlink(&library, &path).map_err(|source| Error::Link { path, source })?;
            }
        }
        Ok(())
    }

    /// Waits until no other test of this process holds the library, then opens and resets it.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no library, [`Error::Open`] if it cannot be loaded.
    pub fn new() -> Result<Self, Error> {
        let guard = EMULATOR_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        let path = Self::library()?;
        // SAFETY: loading runs no code except that of Rust's standard library.
        let library =
            unsafe { Library::new(&path) }.map_err(|source| Error::Open { path: path.clone(), source })?;
        let emulator = Self { library: ManuallyDrop::new(library), _guard: guard };
        // SAFETY: the signature is that of `cuda_emulator_reset`.
        if let Err(source) = unsafe { emulator.library.get::<unsafe extern "C" fn()>(b"cuda_emulator_reset") }
        {
            return Err(Error::Open { path, source });
        }
        emulator.reset();
        Ok(emulator)
    }

    /// Destroys all objects, and resets settings, reports and injected errors.
    pub fn reset(&self) {
        // SAFETY: the signature is that of the function, which may be called at any time.
        unsafe { self.function::<unsafe extern "C" fn()>("cuda_emulator_reset")() }
    }

    /// Returns the number of calls of the emulated functions since the last reset. Functions that
    /// only name errors are not counted.
    #[must_use]
    pub fn calls(&self) -> u64 {
        // SAFETY: the signature is that of the function.
        unsafe { self.function::<unsafe extern "C" fn() -> u64>("cuda_emulator_calls")() }
    }

    /// Makes call number `call`, counted from 1 since the last reset, fail with `result`, a
    /// `CUresult`. The call has no effect, except that calls that destroy an object still destroy
    /// it. A `call` of 0 removes the injection.
    pub fn fail_call(&self, call: u64, result: u32) {
        // SAFETY: the signature is that of the function.
        unsafe { self.function::<unsafe extern "C" fn(u64, u32)>("cuda_emulator_fail_call")(call, result) }
    }

    /// Makes the `number`-th launch of the named kernel, counted from 1 from this call on, fail
    /// with an illegal address. After it, every call in the contexts of its device returns the
    /// error. A `number` of 0 removes the injection.
    ///
    /// # Panics
    /// If the name contains a zero byte.
    pub fn fail_kernel(&self, kernel: &str, number: u64) {
        let name = CString::new(kernel).expect("a kernel's name");
        // SAFETY: the signature is that of the function, and the name ends with a zero.
        unsafe {
            self.function::<unsafe extern "C" fn(*const c_char, u64) -> i32>("cuda_emulator_fail_kernel")(
                name.as_ptr(),
                number,
            )
        };
    }

    /// Sets a property of the driver or its devices. Call it before the code under test reads the
    /// property.
    ///
    /// # Panics
    /// If the value is out of range: below 0 (below -100 for `Setting::GreatestPriority`), or more
    /// than 8 devices.
    pub fn set(&self, setting: Setting, value: i64) {
        // SAFETY: the signature is that of the function, and the name ends with a zero.
        let done = unsafe {
            self.function::<unsafe extern "C" fn(*const c_char, i64) -> i32>("cuda_emulator_set")(
                setting.name().as_ptr(),
                value,
            )
        };
        assert_eq!(done, 1, "{setting:?} cannot be {value}");
    }

    /// Removes a function, such as `cuGreenCtxCreate`. Calls of it return
    /// `CUDA_ERROR_NOT_SUPPORTED`, and `cuGetProcAddress` does not find it. The loader still does.
    ///
    /// # Panics
    /// If the name contains a zero byte.
    pub fn remove_function(&self, function: &str) {
        let name = CString::new(function).expect("a function's name");
        // SAFETY: the signature is that of the function, and the name ends with a zero.
        unsafe {
            self.function::<unsafe extern "C" fn(*const c_char) -> i32>("cuda_emulator_remove_function")(
                name.as_ptr(),
            )
        };
    }

    /// Returns the virtual time since the driver was reset.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.clock().now()
    }

    /// Advances the virtual clock and completes the work that ends meanwhile.
    pub fn advance(&self, time: Duration) {
        self.clock().advance(time);
    }

    /// Sets the virtual duration of each kernel and each group of collectives that this thread
    /// launches or captures from now on, whatever its name. `None` restores the durations given by
    /// names and settings.
    pub fn set_launch_time(&self, time: Option<Duration>) {
        let nanoseconds =
            time.map_or(u64::MAX, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX - 1));
        // SAFETY: the signature is that of the function.
        unsafe { self.function::<unsafe extern "C" fn(u64)>("cuda_emulator_launches_take")(nanoseconds) }
    }

    /// Returns the virtual clock, for code that needs a clock object.
    #[must_use]
    pub fn clock(&self) -> VirtualClock {
        // SAFETY: the signatures are those of the functions. They stay loaded because the library
        // is never closed.
        unsafe {
            VirtualClock {
                now: *self.function("cuda_emulator_now"),
                advance: *self.function("cuda_emulator_advance"),
            }
        }
    }

    /// Returns one line for each misuse: a violation of the rules of the API, which a correct
    /// program would not commit.
    #[must_use]
    pub fn misuse(&self) -> Vec<String> {
        self.lines("cuda_emulator_misuse")
    }

    /// Sets the virtual duration of the named kernel. Without it, a kernel takes the time in its
    /// name (`gemm_20us`), or else that of [`Setting::KernelNs`].
    ///
    /// # Panics
    /// If the name contains a zero byte.
    pub fn set_kernel_time(&self, kernel: &str, time: Duration) {
        let name = CString::new(kernel).expect("a kernel's name");
        // SAFETY: the signature is that of the function, and the name ends with a zero.
        unsafe {
            self.function::<unsafe extern "C" fn(*const c_char, u64) -> i32>("cuda_emulator_set_kernel_time")(
                name.as_ptr(),
                time.as_nanos() as u64,
            )
        };
    }

    /// Returns one line for each kernel that failed: the device, the access, the thread and the PTX
    /// line.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        self.lines("cuda_emulator_faults")
    }

    /// Returns one line for each pair of unordered tasks that use the same bytes, at least one of
    /// which writes, allocates or frees them. Tasks are kernels, copies, fills and collectives. The
    /// result does not depend on which of the two ran first. Requires [`Setting::OrderCheck`].
    ///
    /// A task is ordered after the earlier work of its stream or graph; the events and values in
    /// memory that its stream waited for; the work that the host had waited for when it enqueued
    /// the task; work ordered by the rules of the default stream; and earlier launches of the same
    /// executable graph. A collective also orders the work after it on a rank behind the work
    /// before it on the ranks that sent data to that rank.
    ///
    /// Atomic operations need no order among themselves. Accesses of the host to page-locked memory
    /// are not checked. Once a host thread has waited for work on a device, all threads that
    /// enqueue work there are assumed to know.
    #[must_use]
    pub fn conflicts(&self) -> Vec<String> {
        self.lines("cuda_emulator_conflicts")
    }

    /// Returns whether the wait dropped by [`Setting::DropWait`] would have ordered work that
    /// nothing else orders. Returns `None` until its stream has reached the wait and the event has
    /// completed. Requires [`Setting::OrderCheck`].
    #[must_use]
    pub fn dropped_wait_is_needed(&self) -> Option<bool> {
        // SAFETY: the signature is that of the function.
        let orders = unsafe {
            self.function::<unsafe extern "C" fn() -> i32>("cuda_emulator_dropped_wait_is_needed")()
        };
        (orders >= 0).then_some(orders != 0)
    }

    /// Returns one line for each object that has not been destroyed.
    #[must_use]
    pub fn leaks(&self) -> Vec<String> {
        self.lines("cuda_emulator_leaks")
    }

    /// Returns one line for each call since the last reset: its number, name and result.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        self.lines("cuda_emulator_log")
    }

    /// Returns the kernels that have ended, in the order of their ends.
    #[must_use]
    pub fn kernels(&self) -> Vec<KernelRun> {
        self.lines("cuda_emulator_timeline").iter().filter_map(|line| KernelRun::parse(line)).collect()
    }

    fn lines(&self, name: &str) -> Vec<String> {
        // SAFETY: the signature is that of the function.
        let text = unsafe { self.function::<unsafe extern "C" fn(*mut u8, usize) -> usize>(name) };
        let mut bytes = Vec::new();
        loop {
            // SAFETY: `bytes` has room for `bytes.len()` bytes. Other threads may make the text
            // longer meanwhile.
            let needed = unsafe { text(bytes.as_mut_ptr(), bytes.len()) };
            if needed <= bytes.len() {
                bytes.truncate(needed.saturating_sub(1));
                return String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect();
            }
            bytes.resize(needed, 0);
        }
    }

    /// Returns a control function of the library. `new` has checked that this is the right library.
    ///
    /// # Safety
    /// `T` is the function's signature.
    unsafe fn function<T>(&self, name: &str) -> Symbol<'_, T> {
        // SAFETY: the caller's promise.
        unsafe { self.library.get(name) }
            .unwrap_or_else(|error| panic!("the emulated driver has no {name}: {error}"))
    }
}
