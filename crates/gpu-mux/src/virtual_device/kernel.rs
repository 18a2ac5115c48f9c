//! Kernels of the virtual device, given by the resources that they need. A *wave* is the part of a
//! kernel's thread blocks that the device holds at a time.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::Error;
use crate::seconds::seconds;

/// Maximum duration of a kernel or a parameter, so that sums do not overflow.
pub(super) const MAX_TIME: Duration = Duration::from_secs(3_600);

/// Duration and resources of a kernel on a [`VirtualDevice`](crate::VirtualDevice).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kernel {
    time: Duration,
    share: f64,
    memory: f64,
    waves: NonZeroU32,
}

impl Kernel {
    /// Creates a kernel in one wave.
    ///
    /// `time` is its duration alone on a device (at most an hour), `share` the fraction of the
    /// streaming multiprocessors that it has blocks for (above 0, at most 1), and `memory` the
    /// fraction of the memory bandwidth that it uses meanwhile (0 to 1).
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a value outside its range.
    pub fn new(time: Duration, share: f64, memory: f64) -> Result<Self, Error> {
        if time > MAX_TIME {
            let expected = "at most an hour";
            return Err(Error::OutOfRange { name: "a kernel's time", value: format!("{time:?}"), expected });
        }
        if !(share > 0.0 && share <= 1.0) {
            let expected = "above 0 and at most 1";
            return Err(Error::OutOfRange {
                name: "a kernel's share of the device",
                value: share.to_string(),
                expected,
            });
        }
        if !(0.0..=1.0).contains(&memory) {
            let expected = "from 0 to 1";
            let name = "a kernel's memory bandwidth";
            return Err(Error::OutOfRange { name, value: memory.to_string(), expected });
        }
        Ok(Self { time, share, memory, waves: NonZeroU32::MIN })
    }

    /// Sets the number of waves: its thread blocks divided by the number that the device holds at a
    /// time, rounded up.
    ///
    /// Running blocks are not interrupted, so a kernel can lose multiprocessors only between two
    /// waves, to a kernel of higher priority. A kernel in one wave keeps its multiprocessors until
    /// its end.
    #[must_use]
    pub fn in_waves(self, waves: NonZeroU32) -> Self {
        Self { waves, ..self }
    }

    /// Returns the kernel's duration alone on a device.
    #[must_use]
    pub fn time(&self) -> Duration {
        self.time
    }

    /// Returns the fraction of the device's streaming multiprocessors for which the kernel has
    /// blocks.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.share
    }

    /// Returns the fraction of the memory bandwidth that the kernel uses alone on a device.
    #[must_use]
    pub fn memory(&self) -> f64 {
        self.memory
    }

    /// Returns the number of waves in which the kernel's blocks run alone on a device.
    #[must_use]
    pub fn waves(&self) -> NonZeroU32 {
        self.waves
    }

    /// Returns the same kernel with its duration multiplied by `factor`, from 0 to an hour.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        Self { time: seconds(self.time.as_secs_f64() * factor).min(MAX_TIME), ..self }
    }

    /// Returns the same kernel for a fraction (0 to 1) of its samples, and so of its blocks.
    ///
    /// A kernel that fills the device takes that fraction of the time and of the waves. A smaller
    /// kernel has a single wave of blocks: it takes the same time and occupies that fraction of its
    /// share of the device.
    #[must_use]
    pub fn part(self, part: f64) -> Self {
        let part = part.clamp(f64::MIN_POSITIVE, 1.0);
        if self.share < 1.0 {
            Self { share: self.share * part, memory: self.memory * part, ..self }
        } else {
            let waves = (f64::from(self.waves.get()) * part).ceil() as u32;
            let waves = NonZeroU32::new(waves).unwrap_or(NonZeroU32::MIN);
            Self { time: self.time.mul_f64(part), waves, ..self }
        }
    }
}
