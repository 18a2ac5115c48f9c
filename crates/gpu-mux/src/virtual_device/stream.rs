//! Streams of the virtual device, and the launches and kernels on them. Times are nanoseconds since
//! the device's epoch. Work is measured in the nanoseconds that it takes alone on a device.
//! *Partners* are the other devices that take part in a communication; *external* ones are
//! simulated by the user of the device. A *wave* is the part of a kernel's thread blocks that the
//! device holds at a time.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Kernel, Partners, VirtualWork};
use crate::{JobId, Lane, TaskletId};

/// Time of an event that is not scheduled.
pub(super) const NEVER: u64 = u64::MAX;

/// Priority of a kernel's stream, time at which the kernel became ready, and sequence number of its
/// launch. Kernels are dispatched in ascending order of it. A kernel is ready when it is first on
/// its stream and its dependencies are complete.
pub(super) type DispatchPriority = (u8, u64, u64);

/// Stream of one lane of one job, which runs its launches in order.
#[derive(Debug, Clone)]
pub(super) struct Stream {
    /// Job whose tasklets it runs.
    pub(super) job: JobId,
    /// Lane whose tasklets it runs.
    pub(super) lane: Lane,
    /// Priority for multiprocessors; a smaller number goes first.
    pub(super) priority: u8,
    /// Index of its hardware queue, which other streams may share.
    pub(super) hardware_queue: usize,
    /// Launches that have not ended; the first may be running.
    pub(super) launches: VecDeque<Launch>,
    /// Whether the launches are sorted by tasklet number.
    pub(super) in_order: bool,
    /// Kernel that runs now, which belongs to the first launch. `None` if none runs.
    pub(super) running: Option<RunningKernel>,
    /// Earliest start of the next kernel: the end of the last one plus the time between two
    /// kernels.
    pub(super) free_from: u64,
    /// End of the last tasklet.
    pub(super) last_end: u64,
}

/// Launched tasklet on its stream.
#[derive(Debug, Clone)]
pub(super) struct Launch {
    /// Identifier of the tasklet.
    pub(super) tasklet: TaskletId,
    /// Kernels or communication of the tasklet.
    pub(super) work: VirtualWork,
    /// Sequence number among all launches of the device.
    pub(super) order: u64,
    /// Number of its kernels that have started.
    pub(super) begun: usize,
    /// Time at which its first kernel reaches the device.
    pub(super) arrives: u64,
    /// Interval between the arrivals of its kernels.
    pub(super) arrival_step: u64,
    /// Time between the end of one of its kernels and the start of the next.
    pub(super) gap: u64,
    /// Tasklet that it waits for. `None` if there is none, or after that one has ended.
    pub(super) after: Option<TaskletId>,
    /// Tasklets that wait for this one.
    pub(super) waited_for_by: Vec<TaskletId>,
    /// Earliest start, given the end of the tasklet that it waited for.
    pub(super) ready_from: u64,
    /// Time at which it became first on its stream with its dependencies complete. `None` until it
    /// starts.
    pub(super) opened: Option<u64>,
    /// Time at which external partners arrive. `None` until it is set.
    pub(super) partners_at: Option<u64>,
    /// Time at which external partners finish. `None` until it is set.
    pub(super) partners_end: Option<u64>,
}

/// Kernel or communication that has started and not ended, and its progress.
#[derive(Debug, Clone)]
pub(super) struct RunningKernel {
    /// Time at which it became ready: first on its stream, with its dependencies complete.
    pub(super) ready: u64,
    /// Number of multiprocessors that it has blocks for.
    pub(super) wanted: u32,
    /// Number of multiprocessors that it holds, at most `wanted`.
    pub(super) given: u32,
    /// Fraction of the memory bandwidth, 0 to 1, that it uses when it holds all that it wants.
    pub(super) memory: f64,
    /// Phase of a communication. A compute kernel is always working.
    pub(super) phase: Phase,
    /// Time since which it has run at `rate`.
    pub(super) since: u64,
    /// Work that was left at `since`, in nanoseconds alone on a device.
    pub(super) left: f64,
    /// Work done per nanosecond. 1 is the speed alone on a device.
    pub(super) rate: f64,
    /// Work of one wave, in nanoseconds alone on a device.
    pub(super) wave: f64,
    /// Number of waves that had not ended at `since`.
    pub(super) waves_left: u32,
    /// Whether it stops at the end of its wave because a stream of higher priority waits for
    /// multiprocessors.
    pub(super) yields: bool,
    /// Time of the end of its phase, or of the wave at which it stops; [`NEVER`] while that is not
    /// known.
    pub(super) until: u64,
}

/// Phase of a running kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// A communication waits for its partners to arrive.
    Waiting,
    /// Computes, or transfers data.
    Working,
    /// A communication waits for the end of its external partners' transfers.
    Ending,
}

impl Launch {
    /// Returns the number of kernels of the tasklet. A communication is one.
    pub(super) fn kernel_count(&self) -> usize {
        match &self.work {
            VirtualWork::Compute { kernels, .. } => kernels.len(),
            VirtualWork::Communication { .. } => 1,
        }
    }

    /// Returns the next compute kernel to start. `None` if all have started, and for a
    /// communication.
    pub(super) fn next_kernel(&self) -> Option<Kernel> {
        match &self.work {
            VirtualWork::Compute { kernels, .. } => kernels.get(self.begun).copied(),
            VirtualWork::Communication { .. } => None,
        }
    }

    /// Whether all kernels of the launch have started.
    pub(super) fn is_begun(&self) -> bool {
        self.begun == self.kernel_count()
    }

    /// Whether it is a communication whose partners are [`Partners::External`].
    pub(super) fn has_external_partners(&self) -> bool {
        matches!(self.work, VirtualWork::Communication { partners: Partners::External, .. })
    }

    /// Returns the time at which the next kernel to start reaches the device.
    pub(super) fn next_arrival(&self) -> u64 {
        self.arrives.saturating_add(self.arrival_step.saturating_mul(self.begun as u64))
    }
}

impl Stream {
    /// Returns the earliest time at which the next kernel of the first launch can start, given the
    /// events so far. `None` if a kernel runs, the launch waits for another tasklet, or there is
    /// none.
    pub(super) fn head_opens(&self) -> Option<u64> {
        let head = self.launches.front().filter(|head| self.running.is_none() && head.after.is_none())?;
        Some(head.next_arrival().max(self.free_from).max(head.ready_from))
    }

    /// Returns the index of a tasklet among the launches that have not ended, or `None` if it is
    /// not on this stream.
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

    /// Returns the time of this stream's next event, or [`NEVER`] if none is scheduled. Without a
    /// running kernel, only events after `now` count.
    pub(super) fn next_event(&self, now: u64) -> u64 {
        if let Some(running) = &self.running {
            return running.until;
        }
        let Some(opens) = self.head_opens() else { return NEVER };
        let arrives = self.launches.front().map_or(NEVER, |head| head.arrives);
        [arrives, opens].into_iter().filter(|&time| time > now).min().unwrap_or(NEVER)
    }

    /// Whether work with no unfinished dependency has reached the device by `now`.
    pub(super) fn is_busy(&self, now: u64) -> bool {
        self.launches
            .front()
            .is_some_and(|head| head.after.is_none() && (head.begun > 0 || head.arrives <= now))
    }

    /// Whether the first launch has started and not ended.
    pub(super) fn is_begun(&self) -> bool {
        self.launches.front().is_some_and(|head| head.opened.is_some())
    }

    /// Returns the sequence number of the oldest launch with a kernel that has not started, or
    /// `None` if there is none.
    pub(super) fn oldest_to_begin(&self) -> Option<u64> {
        self.launches.iter().find(|launch| !launch.is_begun()).map(|launch| launch.order)
    }

    /// Returns the dispatch priority of the stream among those that wait for multiprocessors: that
    /// of its running kernel, or of its next one.
    pub(super) fn dispatch_priority(&self) -> DispatchPriority {
        let running = self.running.as_ref().map(|running| running.ready);
        let ready = running.or_else(|| self.head_opens()).unwrap_or(NEVER);
        (self.priority, ready, self.launches.front().map_or(NEVER, |head| head.order))
    }
}

impl RunningKernel {
    /// Returns the fraction of the wanted multiprocessors that it holds, 0 to 1.
    pub(super) fn part(&self) -> f64 {
        if self.wanted == 0 { 1.0 } else { f64::from(self.given) / f64::from(self.wanted) }
    }

    /// Changes the rate from `now` on and schedules the end of the kernel, or of its wave if it
    /// `yields` its multiprocessors then.
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

    /// Whether its scheduled end is that of a wave and not that of the kernel.
    pub(super) fn stops_at_a_wave(&self) -> bool {
        self.phase == Phase::Working && self.yields && self.waves_left > 1
    }

    /// Ends its wave at `now` and returns the number of multiprocessors that it gives up.
    ///
    /// The wave may have ended a fraction of a nanosecond ago. Nothing of the next wave has been
    /// done since.
    pub(super) fn stop(&mut self, now: u64) -> u32 {
        self.waves_left -= 1;
        (self.since, self.left) = (now, self.wave * f64::from(self.waves_left));
        (self.rate, self.until) = (0.0, NEVER);
        std::mem::take(&mut self.given)
    }

    /// Accounts for the work done until `now`.
    fn settle(&mut self, now: u64) {
        self.left = (self.left - (now - self.since) as f64 * self.rate).max(0.0);
        self.since = now;
        // A wave that ends exactly now has not ended: its multiprocessors may be given to others.
        let waves = ((self.left + ROUNDING) / self.wave).ceil() as u32;
        self.waves_left = self.waves_left.min(waves).max(1);
    }
}

/// Tolerance for rounding, in nanoseconds.
const ROUNDING: f64 = 1e-6;

/// Returns a duration in nanoseconds. Above 584 years it is clamped.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
