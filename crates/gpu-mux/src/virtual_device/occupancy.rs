use std::time::Duration;

/// What the foreground does on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ForegroundState {
    /// It has compute work on the device that nothing of its own keeps back: it runs, or waits for the device.
    Computing,
    /// Not that, but a communication that transfers data, or waits for multiprocessors to do so.
    Transferring,
    /// Not that, but a communication that waits for its partners.
    Waiting,
    /// Nothing at all.
    Idle,
}

impl ForegroundState {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Computing, Self::Transferring, Self::Waiting, Self::Idle];
}

/// Where the time of a [`VirtualDevice`](crate::VirtualDevice) went, by what the foreground did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Occupancy {
    times: [Duration; 4],
    background: [Duration; 4],
}

impl Occupancy {
    /// How long the foreground was in this state.
    #[must_use]
    pub fn time(&self, state: ForegroundState) -> Duration {
        self.times[state as usize]
    }

    /// How much of that time a background tasklet was on the device: started, and not ended.
    #[must_use]
    pub fn background(&self, state: ForegroundState) -> Duration {
        self.background[state as usize]
    }

    /// What has been added since `earlier`, an occupancy of the same device.
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

    pub(super) fn record(&mut self, state: ForegroundState, background: bool, time: Duration) {
        self.times[state as usize] += time;
        if background {
            self.background[state as usize] += time;
        }
    }
}
