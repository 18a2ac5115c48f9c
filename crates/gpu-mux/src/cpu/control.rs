use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use crate::idle::Bell;

/// Holds a background job of a [`CpuDriver`](crate::CpuDriver) back, or lets it go on, from any thread.
///
/// What is asked for is done as soon as the tasklet that runs at the time has ended. Clones control the same job.
#[derive(Debug, Clone)]
pub struct Control {
    asked: Arc<Asked>,
    bell: Arc<Bell>,
}

/// What has been asked for, and the worker's answer.
#[derive(Debug)]
struct Asked {
    mode: AtomicU8,
    weight: AtomicU32,
    rests: AtomicBool,
}

/// What a job is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Run,
    Pause,
    Drain,
}

impl Control {
    pub(super) fn new(bell: Arc<Bell>) -> Self {
        let asked = Asked {
            mode: AtomicU8::new(Mode::Run as u8),
            weight: AtomicU32::new(1),
            rests: AtomicBool::new(false),
        };
        Self { asked: Arc::new(asked), bell }
    }

    /// Lets the job rest: no more of it is run.
    pub fn pause(&self) {
        self.ask(Mode::Pause);
    }

    /// Lets it go on after a pause, or while it is drained.
    pub fn resume(&self) {
        self.ask(Mode::Run);
    }

    /// Lets it end: the tasklet that it has announced still runs, and then it is not asked for more.
    pub fn drain(&self) {
        self.ask(Mode::Drain);
    }

    /// Sets the job's share of the background's time: background jobs share in proportion to their weights. 1 until
    /// another is set.
    pub fn weigh(&self, weight: NonZeroU32) {
        self.asked.weight.store(weight.get(), Ordering::Release);
        self.bell.ring();
    }

    /// Whether nothing of the job runs, nor will before it is resumed: the worker has seen the pause, or the job has
    /// ended.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.asked.rests.load(Ordering::Acquire)
    }

    fn ask(&self, mode: Mode) {
        self.asked.mode.store(mode as u8, Ordering::Release);
        self.bell.ring();
    }

    pub(super) fn mode(&self) -> Mode {
        match self.asked.mode.load(Ordering::Acquire) {
            mode if mode == Mode::Pause as u8 => Mode::Pause,
            mode if mode == Mode::Drain as u8 => Mode::Drain,
            _ => Mode::Run,
        }
    }

    pub(super) fn weight(&self) -> NonZeroU32 {
        NonZeroU32::new(self.asked.weight.load(Ordering::Acquire)).unwrap_or(NonZeroU32::MIN)
    }

    pub(super) fn set_at_rest(&self, rests: bool) {
        self.asked.rests.store(rests, Ordering::Release);
    }
}
