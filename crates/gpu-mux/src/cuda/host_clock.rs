use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

/// The host's clock for a [`CudaDevice`](super::CudaDevice). The default is the system's monotonic
/// clock; see [`with_host_clock`](super::CudaDevice::with_host_clock).
pub trait HostClock: fmt::Debug + Send + Sync {
    /// Returns the time since a fixed moment. It never decreases.
    fn now(&self) -> Duration;

    /// Sleeps for about this time.
    fn sleep(&self, time: Duration);

    /// Yields to other threads between two polls of the device.
    fn yield_now(&self);
}

/// The system's monotonic clock.
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
