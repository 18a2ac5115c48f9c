use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

/// The clock of the host that drives a [`CudaDevice`](super::CudaDevice): the system's, unless the device is
/// [given another one](super::CudaDevice::with_host_clock).
pub trait HostClock: fmt::Debug + Send + Sync {
    /// The time since some moment that stays the same; it never goes back.
    fn now(&self) -> Duration;

    /// Lets about so much time pass.
    fn sleep(&self, time: Duration);

    /// Lets others run between two polls of the device, without much time passing.
    fn yield_now(&self);
}

/// The system's clock.
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
