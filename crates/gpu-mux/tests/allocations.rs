//! Deciding allocates nothing once the queues have grown.
#![allow(unsafe_code)] // a counting allocator cannot be written without

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use gpu_mux::{Command, Event, JobId, Multiplexer, Policy, Tasklet};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed on to the system's allocator as it came; only a counter is kept beside it.
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

/// One round: tasklets of both jobs become ready, and everything is run.
fn round(mux: &mut Multiplexer, round: u64) {
    let now = Duration::from_micros(round);
    for number in (round * 100)..(round * 100 + 100) {
        for job in [JobId::FOREGROUND, JobId::BACKGROUND] {
            let tasklet =
                Tasklet::new(job, number).estimated(Duration::from_nanos(1)).at_site(number as u32 % 100);
            mux.handle(now, Event::Ready(tasklet)).unwrap();
        }
    }
    let mut finished = 0;
    while let Some(Command::Launch(tasklet)) = mux.poll_command() {
        mux.handle(now, Event::Finished { tasklet, took: Duration::ZERO }).unwrap();
        finished += 1;
    }
    assert_eq!(finished, 200);
}

#[test]
fn none_after_warm_up() {
    for (name, policy) in Policy::presets() {
        let mut mux = Multiplexer::new(policy);
        // The gap after the last site of a round ends in the next.
        (0..2).for_each(|number| round(&mut mux, number));
        let before = ALLOCATIONS.with(Cell::get);
        (2..50).for_each(|number| round(&mut mux, number));
        assert_eq!(ALLOCATIONS.with(Cell::get), before, "{name}");
    }
}
