use std::collections::VecDeque;
use std::time::Duration;

use super::{Kernel, Partners, VirtualWork};
use crate::{JobId, Lane, TaskletId};

/// Nothing is known to happen.
pub(super) const NEVER: u64 = u64::MAX;

/// Which kernel is given multiprocessors first, the smaller before the larger: its stream's priority, and then the place
/// of its launch in the order of all launches.
pub(super) type DispatchPriority = (u8, u64);

/// What runs in order on the device: one lane of one job. Times are nanoseconds since the device's epoch.
#[derive(Debug, Clone)]
pub(super) struct Stream {
    pub(super) job: JobId,
    pub(super) lane: Lane,
    /// Smaller goes first.
    pub(super) priority: u8,
    pub(super) hardware_queue: usize,
    /// Launched and not ended; the first may be running.
    pub(super) launches: VecDeque<Launch>,
    /// Whether they are in the order of their numbers.
    pub(super) in_order: bool,
    pub(super) running: Option<Running>,
    /// The gap after the last kernel ends here.
    pub(super) free_from: u64,
    /// When the last tasklet ended.
    pub(super) last_end: u64,
}

/// A tasklet on its stream.
#[derive(Debug, Clone)]
pub(super) struct Launch {
    pub(super) tasklet: TaskletId,
    pub(super) work: VirtualWork,
    /// Its place in the order of all launches.
    pub(super) order: u64,
    /// Kernels that have started.
    pub(super) begun: usize,
    /// When its first kernel reaches the device.
    pub(super) arrives: u64,
    /// How long after it the next kernel does.
    pub(super) arrival_step: u64,
    /// Between the end of one of its kernels and the start of the next.
    pub(super) gap: u64,
    /// A tasklet that has not ended, and must have.
    pub(super) after: Option<TaskletId>,
    /// Those that it must end before.
    pub(super) waited_for_by: Vec<TaskletId>,
    /// Not before this.
    pub(super) ready_from: u64,
    /// Since when it has been its turn on its stream; known when it has started.
    pub(super) opened: Option<u64>,
    /// When external partners come and when they end, as far as it has been set.
    pub(super) partners_at: Option<u64>,
    pub(super) partners_end: Option<u64>,
}

/// A kernel that holds a part of the device.
#[derive(Debug, Clone)]
pub(super) struct Running {
    /// Multiprocessors that it has blocks for, and those it has got.
    pub(super) wanted: u32,
    pub(super) given: u32,
    pub(super) memory: f64,
    pub(super) phase: Phase,
    /// Since when it has run at `rate`, and what was left to do then, in nanoseconds alone.
    pub(super) since: u64,
    pub(super) left: f64,
    pub(super) rate: f64,
    /// One of its waves, in nanoseconds alone, and those that had not ended at `since`.
    pub(super) wave: f64,
    pub(super) waves_left: u32,
    /// Whether it stops at the end of its wave, because one that goes first wants multiprocessors.
    pub(super) yields: bool,
    /// When its phase ends, or the wave at whose end it stops.
    pub(super) until: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// For its partners.
    Waiting,
    Working,
    /// For the end of its external partners.
    Ending,
}

impl Launch {
    pub(super) fn kernel_count(&self) -> usize {
        match &self.work {
            VirtualWork::Compute { kernels, .. } => kernels.len(),
            VirtualWork::Communication { .. } => 1,
        }
    }

    /// The compute kernel that is next; `None` for a communication.
    pub(super) fn next_kernel(&self) -> Option<Kernel> {
        match &self.work {
            VirtualWork::Compute { kernels, .. } => kernels.get(self.begun).copied(),
            VirtualWork::Communication { .. } => None,
        }
    }

    pub(super) fn is_begun(&self) -> bool {
        self.begun == self.kernel_count()
    }

    pub(super) fn has_external_partners(&self) -> bool {
        matches!(self.work, VirtualWork::Communication { partners: Partners::External, .. })
    }

    pub(super) fn next_arrival(&self) -> u64 {
        self.arrives.saturating_add(self.arrival_step.saturating_mul(self.begun as u64))
    }
}

impl Stream {
    /// When the kernel at the head could start, if nothing that has not happened yet keeps it.
    pub(super) fn head_opens(&self) -> Option<u64> {
        let head = self.launches.front().filter(|head| self.running.is_none() && head.after.is_none())?;
        Some(head.next_arrival().max(self.free_from).max(head.ready_from))
    }

    /// A tasklet's place among the launches.
    pub(super) fn find(&self, tasklet: TaskletId) -> Option<usize> {
        if tasklet.job != self.job {
            return None;
        }
        if self.in_order {
            return self.launches.binary_search_by_key(&tasklet.number, |launch| launch.tasklet.number).ok();
        }
        self.launches.iter().position(|launch| launch.tasklet == tasklet)
    }

    /// Appends a launch.
    pub(super) fn push(&mut self, launch: Launch) {
        let last = self.launches.back().map(|last| last.tasklet.number);
        self.in_order = last.is_none_or(|last| self.in_order && last < launch.tasklet.number);
        self.launches.push_back(launch);
    }

    /// When something happens here by itself, after `now`.
    pub(super) fn next_event(&self, now: u64) -> u64 {
        if let Some(running) = &self.running {
            return running.until;
        }
        let Some(opens) = self.head_opens() else { return NEVER };
        let arrives = self.launches.front().map_or(NEVER, |head| head.arrives);
        [arrives, opens].into_iter().filter(|&time| time > now).min().unwrap_or(NEVER)
    }

    /// Whether work that nothing keeps back has reached the device.
    pub(super) fn is_busy(&self, now: u64) -> bool {
        self.launches
            .front()
            .is_some_and(|head| head.after.is_none() && (head.begun > 0 || head.arrives <= now))
    }

    /// Whether a tasklet has started and not ended.
    pub(super) fn is_begun(&self) -> bool {
        self.launches.front().is_some_and(|head| head.opened.is_some())
    }

    /// The oldest launch of which some kernel has not started; those without kernels have none.
    pub(super) fn oldest_to_begin(&self) -> Option<u64> {
        self.launches.iter().find(|launch| !launch.is_begun()).map(|launch| launch.order)
    }

    /// Its place among the streams that wait for multiprocessors.
    pub(super) fn dispatch_priority(&self) -> DispatchPriority {
        (self.priority, self.launches.front().map_or(NEVER, |head| head.order))
    }
}

impl Running {
    /// What it has been given of what it wants.
    pub(super) fn part(&self) -> f64 {
        if self.wanted == 0 { 1.0 } else { f64::from(self.given) / f64::from(self.wanted) }
    }

    /// Goes on at another rate from `now` on, to its end or to that of its wave.
    pub(super) fn set_rate(&mut self, now: u64, rate: f64, yields: bool) {
        if rate.to_bits() == self.rate.to_bits() && yields == self.yields {
            return;
        }
        self.settle(now);
        (self.rate, self.yields) = (rate, yields);
        let stop = if yields { self.wave * f64::from(self.waves_left - 1) } else { 0.0 };
        self.until = if rate > 0.0 {
            now.saturating_add(((self.left - stop) / rate - ROUNDING).ceil() as u64)
        } else {
            NEVER
        };
    }

    /// Whether it is the end of a wave that it runs to, and not its own.
    pub(super) fn stops_at_a_wave(&self) -> bool {
        self.phase == Phase::Working && self.yields && self.waves_left > 1
    }

    /// Ends its wave, and takes from it what it has been given: how much that was.
    ///
    /// The wave may have ended a part of a nanosecond ago. Nothing of the next has been done since.
    pub(super) fn stop(&mut self, now: u64) -> u32 {
        self.waves_left -= 1;
        (self.since, self.left) = (now, self.wave * f64::from(self.waves_left));
        (self.rate, self.until) = (0.0, NEVER);
        std::mem::take(&mut self.given)
    }

    /// Accounts for what it has done by `now`.
    fn settle(&mut self, now: u64) {
        self.left = (self.left - (now - self.since) as f64 * self.rate).max(0.0);
        self.since = now;
        // One that ends right now has not ended: others may be given what it had.
        let waves = ((self.left + ROUNDING) / self.wave).ceil() as u32;
        self.waves_left = self.waves_left.min(waves).max(1);
    }
}

/// Nanoseconds that are rounding, not work.
const ROUNDING: f64 = 1e-6;

pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
