use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::idle::WakeSignal;

/// Holds a background job of a [`CpuDriver`](crate::CpuDriver) back, lets it go on or lets it end, from any thread.
///
/// What is asked for is done as soon as the tasklet that runs at the time has ended. Everything may be asked for at any
/// time, in any order. Clones control the same job.
#[derive(Debug, Clone)]
pub struct Control {
    job: Arc<ControlState>,
    worker: Arc<Worker>,
}

/// What the controls of all jobs of a driver need to know of it.
#[derive(Debug, Default)]
pub(super) struct Worker {
    pub(super) signal: Arc<WakeSignal>,
    /// A run is in progress.
    pub(super) runs: AtomicBool,
}

/// What has been asked for, and what the worker has acknowledged.
#[derive(Debug)]
struct ControlState {
    /// An [`Asked`].
    asked: AtomicU64,
    /// What the worker has acted upon last.
    seen: AtomicU64,
    ended: AtomicBool,
    weight: AtomicU32,
}

/// What a job is asked to do: two flags, and above them how often they have changed, so that the same flags at another
/// time have another value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Asked(u64);

const PAUSE: u64 = 1;
const DRAIN: u64 = 2;
const CHANGE: u64 = 4;

impl Control {
    pub(super) fn new(worker: Arc<Worker>) -> Self {
        let job = ControlState {
            asked: AtomicU64::new(Asked::default().0),
            seen: AtomicU64::new(Asked::default().0),
            ended: AtomicBool::new(false),
            weight: AtomicU32::new(1),
        };
        Self { job: Arc::new(job), worker }
    }

    /// Pauses the job: no more of it is run until it is [resumed](Self::resume).
    pub fn pause(&self) {
        self.ask(|flags| flags | PAUSE);
    }

    /// Lets it go on after a pause. A [drain](Self::drain) stays.
    pub fn resume(&self) {
        self.ask(|flags| flags & !PAUSE);
    }

    /// Lets it end, for good: the tasklet that it has announced still runs, and then it is not asked for more. That tasklet
    /// of a job that is paused waits until it is resumed; a paused job that has announced none ends at once.
    pub fn drain(&self) {
        self.ask(|flags| flags | DRAIN);
    }

    /// Sets the job's share of the background's time: background jobs share in proportion to their weights. 1 until
    /// another is set.
    pub fn weigh(&self, weight: NonZeroU32) {
        self.job.weight.store(weight.get(), Ordering::SeqCst);
        self.worker.signal.notify();
    }

    /// Whether nothing of the job runs, nor will before it is [resumed](Self::resume): it has ended, or it is paused and
    /// the worker has seen that. While its driver runs no foreground there is no worker: a job that is paused is stopped then.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        // In this order: a run that begins after the look at `runs` finds what was asked for before it.
        let asked = self.asked();
        let acknowledged =
            self.job.seen.load(Ordering::SeqCst) == asked.0 || !self.worker.runs.load(Ordering::SeqCst);
        self.job.ended.load(Ordering::SeqCst) || (asked.pauses() && acknowledged)
    }

    pub(super) fn asked(&self) -> Asked {
        Asked(self.job.asked.load(Ordering::SeqCst))
    }

    pub(super) fn weight(&self) -> NonZeroU32 {
        NonZeroU32::new(self.job.weight.load(Ordering::SeqCst)).unwrap_or(NonZeroU32::MIN)
    }

    /// The worker has acted upon this.
    pub(super) fn acknowledge(&self, asked: Asked) {
        self.job.seen.store(asked.0, Ordering::SeqCst);
    }

    pub(super) fn ended(&self) {
        self.job.ended.store(true, Ordering::SeqCst);
    }

    fn ask(&self, change: impl Fn(u64) -> u64) {
        let changed = |asked: u64| {
            let flags = asked & (PAUSE | DRAIN);
            // What changes nothing needs no answer: a job that is stopped stays so.
            (change(flags) != flags).then(|| (asked - flags).wrapping_add(CHANGE) | change(flags))
        };
        if self.job.asked.fetch_update(Ordering::SeqCst, Ordering::SeqCst, changed).is_ok() {
            self.worker.signal.notify();
        }
    }
}

impl Asked {
    pub(super) fn pauses(self) -> bool {
        self.0 & PAUSE != 0
    }

    pub(super) fn drains(self) -> bool {
        self.0 & DRAIN != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_acknowledgement_does_not_count() {
        let worker = Arc::new(Worker::default());
        let control = Control::new(Arc::clone(&worker));
        assert!(!control.is_stopped());
        control.pause();
        assert!(control.is_stopped(), "no worker runs it");
        worker.runs.store(true, Ordering::SeqCst);
        assert!(!control.is_stopped(), "the worker may be running it");
        control.acknowledge(control.asked());
        control.pause();
        assert!(control.is_stopped(), "it was paused before");
        // The worker has seen the first pause, and is about to let the job go on.
        control.resume();
        let asked = control.asked();
        control.pause();
        assert!(!control.is_stopped());
        control.acknowledge(asked);
        assert!(!control.is_stopped());
        control.acknowledge(control.asked());
        assert!(control.is_stopped());
        control.drain();
        control.resume();
        control.acknowledge(control.asked());
        assert!(!control.is_stopped() && control.asked().drains());
        control.ended();
        assert!(control.is_stopped());
    }
}
