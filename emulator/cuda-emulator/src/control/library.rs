//! The open library.
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

/// One test at a time.
static TURN: Mutex<()> = Mutex::new(());

/// The emulated driver of this process, for one test: it is reset when this is made, and no other test has one meanwhile.
///
/// Code under test opens the same library, by [`Emulator::library`].
#[derive(Debug)]
pub struct Emulator {
    /// Never closed: the code under test holds handles of it.
    library: ManuallyDrop<Library>,
    _turn: MutexGuard<'static, ()>,
}

/// The virtual time of the emulated driver, from any thread.
#[derive(Debug, Clone, Copy)]
pub struct VirtualClock {
    now: unsafe extern "C" fn() -> u64,
    advance: unsafe extern "C" fn(u64),
}

impl VirtualClock {
    /// The time since the driver was reset.
    #[must_use]
    pub fn now(&self) -> Duration {
        // SAFETY: it may be called at any time.
        Duration::from_nanos(unsafe { (self.now)() })
    }

    /// Advances the time, and with it the work in flight.
    pub fn advance(&self, time: Duration) {
        // SAFETY: it may be called at any time.
        unsafe { (self.advance)(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)) }
    }
}

/// Why there is no [`Emulator`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Cargo has put the library elsewhere, or has not built it.
    #[error(transparent)]
    NotFound(#[from] emulated_gpus::NotFound),
    /// A link cannot be made.
    #[error("{}: {source}", path.display())]
    Link {
        /// The link.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The library cannot be opened, or is another one.
    #[error("{}: {source}", path.display())]
    Open {
        /// The library.
        path: PathBuf,
        /// The loader's error.
        source: libloading::Error,
    },
}

impl Emulator {
    /// Where the library is: as [`emulated_gpus::find`] finds it, for programs that Cargo has built beside the running one.
    pub fn library() -> Result<PathBuf, Error> {
        Ok(emulated_gpus::find()?)
    }

    /// Puts links to the library into a folder, under the names by which programs ask for CUDA's driver and for NCCL. With
    /// the folder in `LD_LIBRARY_PATH`, a program finds both there.
    #[cfg(unix)]
    pub fn install(folder: &Path) -> Result<(), Error> {
        let library = Self::library()?;
        for name in ["libcuda.so.1", "libcuda.so", "libnccl.so.2", "libnccl.so"] {
            let path = folder.join(name);
            std::os::unix::fs::symlink(&library, &path).map_err(|source| Error::Link { path, source })?;
        }
        Ok(())
    }

    /// Waits for other tests in this process, opens the library and resets it.
    pub fn new() -> Result<Self, Error> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let path = Self::library()?;
        // SAFETY: loading runs no code but that of Rust's standard library.
        let library =
            unsafe { Library::new(&path) }.map_err(|source| Error::Open { path: path.clone(), source })?;
        let emulator = Self { library: ManuallyDrop::new(library), _turn: turn };
        // SAFETY: the signature is that of `cuda_emulator_reset`.
        if let Err(source) = unsafe { emulator.library.get::<unsafe extern "C" fn()>(b"cuda_emulator_reset") }
        {
            return Err(Error::Open { path, source });
        }
        emulator.reset();
        Ok(emulator)
    }

    /// Forgets everything, and is as at the test's beginning.
    pub fn reset(&self) {
        // SAFETY: the signature is that of the function, which may be called at any time.
        unsafe { self.function::<unsafe extern "C" fn()>("cuda_emulator_reset")() }
    }

    /// How many calls that can fail there were.
    #[must_use]
    pub fn calls(&self) -> u64 {
        // SAFETY: the signature is that of the function.
        unsafe { self.function::<unsafe extern "C" fn() -> u64>("cuda_emulator_calls")() }
    }

    /// Makes the call number `call`, counted from 1, fail with a `CUresult`, without doing its work; what destroys still
    /// destroys.
    pub fn fail_call(&self, call: u64, result: u32) {
        // SAFETY: the signature is that of the function.
        unsafe { self.function::<unsafe extern "C" fn(u64, u32)>("cuda_emulator_fail_call")(call, result) }
    }

    /// Makes the kernel number `number` of this name, counted from 1 from now on, fail as one that accesses memory that is none: its
    /// device's contexts are lost.
    ///
    /// # Panics
    /// For a name with a zero in it.
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

    /// Sets a property of the driver or the device. Call it before the code under test queries it.
    ///
    /// # Panics
    /// For a value that it cannot have.
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

    /// Removes a function, such as `cuGreenCtxCreate`: calls return `CUDA_ERROR_NOT_SUPPORTED`, and `cuGetProcAddress`
    /// does not find it. (The loader still does.)
    ///
    /// # Panics
    /// For a name with a zero in it.
    pub fn lack(&self, function: &str) {
        let name = CString::new(function).expect("a function's name");
        // SAFETY: the signature is that of the function, and the name ends with a zero.
        unsafe {
            self.function::<unsafe extern "C" fn(*const c_char) -> i32>("cuda_emulator_lack")(name.as_ptr())
        };
    }

    /// The virtual time since the test began.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.clock().now()
    }

    /// Advances the virtual time, and with it the work in flight.
    pub fn advance(&self, time: Duration) {
        self.clock().advance(time);
    }

    /// Sets how long each kernel and each group of collectives takes that this thread launches or captures from now on, whatever its
    /// name; `None` for what names and settings say.
    pub fn launches_take(&self, time: Option<Duration>) {
        let nanoseconds =
            time.map_or(u64::MAX, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX - 1));
        // SAFETY: the signature is that of the function.
        unsafe { self.function::<unsafe extern "C" fn(u64)>("cuda_emulator_launches_take")(nanoseconds) }
    }

    /// The virtual clock, for code that has to have one of its own.
    #[must_use]
    pub fn clock(&self) -> VirtualClock {
        // SAFETY: the signatures are those of the functions, which stay, since the library is never closed.
        unsafe {
            VirtualClock {
                now: *self.function("cuda_emulator_now"),
                advance: *self.function("cuda_emulator_advance"),
            }
        }
    }

    /// A line for each misuse: what a correct program would not have done.
    #[must_use]
    pub fn misuse(&self) -> Vec<String> {
        self.lines("cuda_emulator_misuse")
    }

    /// Puts a kernel into the table of virtual times. Without it, a kernel takes the time that its name ends with
    /// (`gemm_20us`), or else that of [`Setting::KernelNs`].
    ///
    /// # Panics
    /// For a name with a zero in it.
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

    /// A line for each kernel that has failed: the device, what it did, by which thread, at which line.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        self.lines("cuda_emulator_faults")
    }

    /// A line for each two pieces of work that use the same bytes, of which one at least writes, allocates or frees them, and that nothing puts
    /// in an order, with [`Setting::OrderCheck`]: kernels, copies, fills and collectives with their streams and devices, whichever of
    /// them was done first here.
    ///
    /// Work comes after what was before it in its stream, or in its graph; after the events that its stream waits for, and the writes of
    /// values that it waits for; after what the host had waited for, or was told is done, when it enqueued it; by the rules of the default
    /// stream; after earlier launches of the same executable graph; and after a collective comes what is after the ranks that it has got data from.
    ///
    /// Atomic operations need no order among themselves. What the host itself does with page-locked memory is not seen. What a thread of
    /// the host has waited for on a device is taken to be known by all that enqueue work there.
    #[must_use]
    pub fn conflicts(&self) -> Vec<String> {
        self.lines("cuda_emulator_conflicts")
    }

    /// Whether the wait that [`Setting::DropWait`] has left out would have put work into an order in which nothing else puts it; with
    /// [`Setting::OrderCheck`]. None where its stream, or the event, has not come so far.
    #[must_use]
    pub fn dropped_wait_orders(&self) -> Option<bool> {
        // SAFETY: the signature is that of the function.
        let orders =
            unsafe { self.function::<unsafe extern "C" fn() -> i32>("cuda_emulator_dropped_wait_orders")() };
        (orders >= 0).then_some(orders != 0)
    }

    /// A line for everything that is still alive.
    #[must_use]
    pub fn leaks(&self) -> Vec<String> {
        self.lines("cuda_emulator_leaks")
    }

    /// A line for each call: its number, its name, its result.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        self.lines("cuda_emulator_log")
    }

    /// The kernels that have ended, in the order in which they did.
    #[must_use]
    pub fn kernels(&self) -> Vec<KernelRun> {
        self.lines("cuda_emulator_timeline").iter().filter_map(|line| KernelRun::parse(line)).collect()
    }

    fn lines(&self, name: &str) -> Vec<String> {
        // SAFETY: the signature is that of the function.
        let text = unsafe { self.function::<unsafe extern "C" fn(*mut u8, usize) -> usize>(name) };
        let mut bytes = Vec::new();
        loop {
            // SAFETY: there is room for as many bytes as it says. Other threads may make the text longer meanwhile.
            let needed = unsafe { text(bytes.as_mut_ptr(), bytes.len()) };
            if needed <= bytes.len() {
                bytes.truncate(needed.saturating_sub(1));
                return String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect();
            }
            bytes.resize(needed, 0);
        }
    }

    /// One of the library's control functions, which has all of them or is not this library.
    ///
    /// # Safety
    /// `T` is the function's signature.
    unsafe fn function<T>(&self, name: &str) -> Symbol<'_, T> {
        // SAFETY: the caller's promise.
        unsafe { self.library.get(name) }
            .unwrap_or_else(|error| panic!("the emulated driver has no {name}: {error}"))
    }
}
