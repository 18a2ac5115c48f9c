//! Time of the virtual device by the state of the foreground.

use std::ops::Add;
use std::time::Duration;

/// Activity of the foreground on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ForegroundState {
    /// The foreground has compute work on the device with no unfinished dependency, running or
    /// waiting for multiprocessors.
    Computing,
    /// The foreground does not compute. A communication transfers data or waits for multiprocessors
    /// to do so.
    Transferring,
    /// The foreground does not compute. A communication waits for the other devices that take part
    /// in it.
    Waiting,
    /// The foreground has no work on the device.
    Idle,
}

impl ForegroundState {
    /// All states, in the order of declaration.
    pub const ALL: [Self; 4] = [Self::Computing, Self::Transferring, Self::Waiting, Self::Idle];
}

/// Time of a [`VirtualDevice`](crate::VirtualDevice) by the state of the foreground.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Occupancy {
    times: [Duration; 4],
    background: [Duration; 4],
}

impl Occupancy {
    /// Returns the time that the foreground spent in this state.
    #[must_use]
    pub fn time(&self, state: ForegroundState) -> Duration {
        self.times[state as usize]
    }

    /// Returns the part of that time in which a background tasklet was on the device (started and
    /// not ended).
    #[must_use]
    pub fn background(&self, state: ForegroundState) -> Duration {
        self.background[state as usize]
    }

    /// Returns the time added since `earlier`, an occupancy of the same device.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let minus = |all: [Duration; 4], before: [Duration; 4]| {
            std::array::from_fn(|state| all[state].saturating_sub(before[state]))
        };
        Self {
            times: minus(self.times, earlier.times),
            background: minus(self.background, earlier.background),
        }
    }

    /// Adds `time` to a state of the foreground. `background` is whether a background tasklet was
    /// on the device meanwhile.
    pub(super) fn record(&mut self, state: ForegroundState, background: bool, time: Duration) {
        self.times[state as usize] += time;
        if background {
            self.background[state as usize] += time;
        }
    }
}

impl Add for Occupancy {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let sum = |all: [Duration; 4], more: [Duration; 4]| {
            std::array::from_fn(|state| all[state].saturating_add(more[state]))
        };
        Self { times: sum(self.times, other.times), background: sum(self.background, other.background) }
    }
}
