//! The host's clock, which may be replaced by the virtual clock of an emulated driver.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

/// Clock of the host for a [`CudaDevice`](super::CudaDevice). The default is the system's monotonic
/// clock; see [`with_host_clock`](super::CudaDevice::with_host_clock).
pub trait HostClock: fmt::Debug + Send + Sync {
    /// Returns the time since a fixed moment that the clock chooses. It never decreases.
    fn now(&self) -> Duration;

    /// Sleeps for approximately this time.
    fn sleep(&self, time: Duration);

    /// Yields the core to other threads between two polls of the device.
    fn yield_now(&self);
}

/// System's monotonic clock. Its time is 0 at its creation.
#[derive(Debug)]
pub(super) struct SystemClock(Instant);

impl Default for SystemClock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl HostClock for SystemClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn sleep(&self, time: Duration) {
        thread::sleep(time);
    }

    fn yield_now(&self) {
        thread::yield_now();
    }
}
