use std::num::NonZeroU32;
use std::time::Duration;

use crate::Error;

/// The longest time of a kernel or a parameter: as many as fit into memory can be added up.
pub(super) const LONGEST: Duration = Duration::from_secs(3_600);

/// A kernel as a [`VirtualDevice`](crate::VirtualDevice) sees it: what it asks of the device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kernel {
    time: Duration,
    share: f64,
    memory: f64,
    waves: NonZeroU32,
}

impl Kernel {
    /// A kernel that takes `time` (at most an hour) on a device of its own, has blocks for the fraction `share` of the device's streaming
    /// multiprocessors (above 0, at most 1), and meanwhile uses the fraction `memory` of the memory's bandwidth (0 to 1).
    ///
    /// [`Error::BadFigure`] for a figure outside its range.
    pub fn new(time: Duration, share: f64, memory: f64) -> Result<Self, Error> {
        if time > LONGEST {
            let expected = "at most an hour";
            return Err(Error::BadFigure { name: "a kernel's time", value: format!("{time:?}"), expected });
        }
        if !(share > 0.0 && share <= 1.0) {
            let expected = "above 0 and at most 1";
            return Err(Error::BadFigure {
                name: "a kernel's share of the device",
                value: share.to_string(),
                expected,
            });
        }
        if !(0.0..=1.0).contains(&memory) {
            let expected = "from 0 to 1";
            let name = "a kernel's memory bandwidth";
            return Err(Error::BadFigure { name, value: memory.to_string(), expected });
        }
        Ok(Self { time, share, memory, waves: NonZeroU32::MIN })
    }

    /// The same kernel in so many waves instead of one: its thread blocks by those that the device holds at a time,
    /// rounded up.
    ///
    /// Blocks that run are not interrupted, so a kernel can only lose multiprocessors between two waves: they are then
    /// given to a kernel of higher priority if there is one. In one wave, a kernel keeps what it has got until its end.
    #[must_use]
    pub fn in_waves(self, waves: NonZeroU32) -> Self {
        Self { waves, ..self }
    }

    /// How long it takes on a device of its own.
    #[must_use]
    pub fn time(&self) -> Duration {
        self.time
    }

    /// The fraction of the device's streaming multiprocessors that it has blocks for.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.share
    }

    /// The fraction of the memory's bandwidth that it uses on a device of its own.
    #[must_use]
    pub fn memory(&self) -> f64 {
        self.memory
    }

    /// In how many waves its blocks run, one after another, on a device of its own.
    #[must_use]
    pub fn waves(&self) -> NonZeroU32 {
        self.waves
    }

    /// The same kernel with a part (0 to 1) of its samples, and so of its blocks.
    ///
    /// One that fills the device takes that part of the time, in that part of the waves. One that does not has a single wave of blocks: it takes
    /// as long as before, and fills that much less of the device.
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
