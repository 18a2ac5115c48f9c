//! Control of a background job from other threads. The *worker* is the thread on which the driver
//! runs.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::idle::WakeSignal;

/// Handle by which any thread pauses, resumes or drains a background job of a
/// [`CpuDriver`](crate::CpuDriver).
///
/// A request takes effect when the currently running tasklet has ended. Requests may be made at any
/// time and in any order. Clones control the same job.
#[derive(Debug, Clone)]
pub struct Control {
    job: Arc<ControlState>,
    worker: Arc<WorkerState>,
}

/// State of a driver that the controls of its jobs share.
#[derive(Debug, Default)]
pub(super) struct WorkerState {
    /// Wakes the worker when a request is made.
    pub(super) signal: Arc<WakeSignal>,
    /// Whether a run of the driver is in progress.
    pub(super) runs: AtomicBool,
}

/// The requests for a job and the worker's acknowledgement.
#[derive(Debug)]
struct ControlState {
    /// A [`Request`].
    asked: AtomicU64,
    /// The request that the worker has last acted upon.
    seen: AtomicU64,
    ended: AtomicBool,
    weight: AtomicU32,
}

/// State that was requested for a job: whether it is to be paused and drained (two flags), and
/// above them the number of changes, so that the same flags at another time have another value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Request(u64);

const PAUSE: u64 = 1;
const DRAIN: u64 = 2;
const CHANGE: u64 = 4;

impl Control {
    /// Creates the control of a job without requests and with weight 1.
    pub(super) fn new(worker: Arc<WorkerState>) -> Self {
        let job = ControlState {
            asked: AtomicU64::new(Request::default().0),
            seen: AtomicU64::new(Request::default().0),
            ended: AtomicBool::new(false),
            weight: AtomicU32::new(1),
        };
        Self { job: Arc::new(job), worker }
    }

    /// Pauses the job: none of its tasklets run until it is [resumed](Self::resume).
    pub fn pause(&self) {
        self.ask(|flags| flags | PAUSE);
    }

    /// Resumes the job after a pause. A [drain](Self::drain) remains in effect.
    pub fn resume(&self) {
        self.ask(|flags| flags & !PAUSE);
    }

    /// Ends the job permanently: the tasklet that it has announced still runs, and it is not polled
    /// again. If the job is paused, that tasklet runs after a resume; a paused job that has
    /// announced none ends at once.
    pub fn drain(&self) {
        self.ask(|flags| flags | DRAIN);
    }

    /// Sets the job's weight. Background jobs share time in proportion to their weights; the
    /// default is 1.
    pub fn set_weight(&self, weight: NonZeroU32) {
        self.job.weight.store(weight.get(), Ordering::SeqCst);
        self.worker.signal.notify();
    }

    /// Whether no tasklet of the job runs or will run before it is [resumed](Self::resume): it has
    /// ended, or it is paused and the worker has acknowledged that. While its driver runs no
    /// foreground there is no worker, so a paused job counts as stopped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        // `asked` is read before `runs`: a run that begins after `runs` was read sees every earlier
        // request.
        let asked = self.asked();
        let acknowledged =
            self.job.seen.load(Ordering::SeqCst) == asked.0 || !self.worker.runs.load(Ordering::SeqCst);
        self.job.ended.load(Ordering::SeqCst) || (asked.pauses() && acknowledged)
    }

    /// Returns the current request for the job.
    pub(super) fn asked(&self) -> Request {
        Request(self.job.asked.load(Ordering::SeqCst))
    }

    /// Returns the weight that was set last.
    pub(super) fn weight(&self) -> NonZeroU32 {
        NonZeroU32::new(self.job.weight.load(Ordering::SeqCst)).unwrap_or(NonZeroU32::MIN)
    }

    /// Records that the worker has acted upon the request `asked`.
    pub(super) fn acknowledge(&self, asked: Request) {
        self.job.seen.store(asked.0, Ordering::SeqCst);
    }

    /// Records that the job has ended and will not be polled or run again.
    pub(super) fn ended(&self) {
        self.job.ended.store(true, Ordering::SeqCst);
    }

    fn ask(&self, change: impl Fn(u64) -> u64) {
        let changed = |asked: u64| {
            let flags = asked & (PAUSE | DRAIN);
            // A request that changes no flag needs no acknowledgement: a stopped job stays stopped.
            (change(flags) != flags).then(|| (asked - flags).wrapping_add(CHANGE) | change(flags))
        };
        if self.job.asked.fetch_update(Ordering::SeqCst, Ordering::SeqCst, changed).is_ok() {
            self.worker.signal.notify();
        }
    }
}

impl Request {
    /// Whether the job is to be paused.
    pub(super) fn pauses(self) -> bool {
        self.0 & PAUSE != 0
    }

    /// Whether the job is to be drained.
    pub(super) fn drains(self) -> bool {
        self.0 & DRAIN != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outdated_acknowledgements_do_not_count() {
        let worker = Arc::new(WorkerState::default());
        let control = Control::new(Arc::clone(&worker));
        assert!(!control.is_stopped());
        control.pause();
        assert!(control.is_stopped(), "no worker runs it");
        worker.runs.store(true, Ordering::SeqCst);
        assert!(!control.is_stopped(), "the worker may be running it");
        control.acknowledge(control.asked());
        control.pause();
        assert!(control.is_stopped(), "it was paused before");
        // The worker has seen the first pause and is about to resume the job.
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
