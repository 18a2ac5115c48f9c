//! Decisions allocate nothing once the queues have reached their maximum length.
#![allow(unsafe_code)] // a counting allocator cannot be written without

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::num::NonZeroU32;
use std::time::Duration;

use gpu_mux::{JobId, Multiplexer, MuxCommand, MuxEvent, Policy, Tasklet, TaskletId};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is forwarded unchanged to the system's allocator; only a counter is added.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, and `pointer` came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A host with preallocated storage.
struct Host {
    mux: Multiplexer,
    now: Duration,
    number: u64,
    in_flight: Vec<TaskletId>,
    launched: usize,
}

impl Host {
    fn new(policy: Policy) -> Self {
        let in_flight = Vec::with_capacity(1000);
        Self { mux: Multiplexer::new(policy), now: Duration::ZERO, number: 0, in_flight, launched: 0 }
    }

    fn tell(&mut self, event: MuxEvent) {
        self.mux.handle(self.now, event).unwrap();
    }

    fn ready(&mut self, job: JobId, as_what: impl FnOnce(Tasklet) -> Tasklet) -> TaskletId {
        let tasklet = as_what(Tasklet::new(job, self.number));
        self.number += 1;
        self.tell(MuxEvent::Ready(tasklet));
        tasklet.id
    }

    /// Tasklets of all jobs and lanes become ready, jobs are paused and resumed, and everything is
    /// run.
    fn round(&mut self) {
        const STEPS: u32 = 50;
        let us = Duration::from_micros;
        let (first, second) = (JobId::background(0), JobId::background(1));
        for step in 0..STEPS {
            let receive =
                self.ready(JobId::FOREGROUND, |t| t.receiving().estimated(us(600)).at_site(2 * step));
            self.ready(JobId::FOREGROUND, |t| t.after(receive).estimated(us(20)).at_site(2 * step + 1));
            self.ready(first, |t| t.estimated(us(u64::from(step))));
            self.ready(second, |t| t.estimated(us(10 * u64::from(step))));
        }
        self.tell(MuxEvent::SetWeight(second, NonZeroU32::MIN.saturating_add(2)));
        self.tell(MuxEvent::Pause(first));
        let all = self.launched + 4 * STEPS as usize;
        let mut turns = 0;
        while self.launched < all {
            let wake = self.obey();
            if self.in_flight.is_empty() {
                self.now = wake.unwrap_or(self.now).max(self.now);
                self.tell(MuxEvent::Tick);
            } else {
                self.now += us(7);
                let id = self.in_flight.swap_remove(turns % self.in_flight.len());
                // Sometimes slower than expected, for feedback.
                self.tell(MuxEvent::Finished { tasklet: id, took: us(15 + turns as u64 % 20) });
            }
            turns += 1;
            if turns == 100 {
                self.tell(MuxEvent::Resume(first));
            }
        }
        while let Some(id) = self.in_flight.pop() {
            self.tell(MuxEvent::Finished { tasklet: id, took: us(1) });
        }
    }

    fn obey(&mut self) -> Option<Duration> {
        let mut wake = None;
        while let Some(command) = self.mux.poll_command() {
            match command {
                MuxCommand::Launch(id) => {
                    self.in_flight.push(id);
                    self.launched += 1;
                }
                MuxCommand::WakeAt(time) => wake = Some(time),
            }
        }
        wake
    }
}

#[test]
fn decisions_allocate_nothing_after_warm_up() {
    for (name, policy) in Policy::presets().into_iter().chain(Policy::ladder()) {
        let mut host = Host::new(policy);
        // The idle period after the last site of a round ends in the next round.
        (0..3).for_each(|_| host.round());
        let before = ALLOCATIONS.with(Cell::get);
        (0..20).for_each(|_| host.round());
        assert_eq!(ALLOCATIONS.with(Cell::get), before, "{name}");
    }
}
