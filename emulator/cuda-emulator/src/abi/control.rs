//! The functions by which a test controls and reads the driver. None of them is counted as a call.
#![allow(unsafe_code)]

use super::places::{give_text, string};
use crate::state::{Code, Driver, set_launch_time, with_driver};
use std::{
    ffi::c_char,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// `fallback` where the driver itself panics: nothing unwinds into the caller.
fn control<T>(fallback: T, work: impl FnOnce(&mut Driver) -> T) -> T {
    catch_unwind(AssertUnwindSafe(|| with_driver(work))).unwrap_or(fallback)
}

/// Resets everything: handles, settings, reports, errors to inject. Page-locked memory is freed.
#[unsafe(no_mangle)]
extern "C" fn cuda_emulator_reset() {
    control((), Driver::reset);
}

/// How many calls that can fail there were since the last reset.
#[unsafe(no_mangle)]
extern "C" fn cuda_emulator_calls() -> u64 {
    control(0, |driver| driver.report.calls())
}

/// Makes the call number `call`, counted from 1 since the last reset, fail with `code`; 0 for none.
#[unsafe(no_mangle)]
extern "C" fn cuda_emulator_fail_call(call: u64, code: u32) {
    control((), |driver| driver.report.fail_call(call, Code(code)));
}

/// Makes the kernel number `number` of a name, counted from 1 from now on, fail as one that accesses memory that is none: 1, or 0 for no
/// name.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuda_emulator_fail_kernel(name: *const c_char, number: u64) -> i32 {
    // SAFETY: the caller's promise.
    let Ok(Ok(name)) = (unsafe { string(name, "name") }).map(|name| name.to_str()) else { return 0 };
    control(0, |driver| {
        driver.report.fail_kernel(name, number);
        1
    })
}

/// Sets a number of `Settings` by its name: 1, or 0 for a name or a value that will not do.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuda_emulator_set(name: *const c_char, value: i64) -> i32 {
    // SAFETY: the caller's promise.
    let Ok(Ok(name)) = (unsafe { string(name, "name") }).map(|name| name.to_str()) else { return 0 };
    control(0, |driver| i32::from(driver.settings.set(name, value)))
}

/// Puts a kernel's virtual time in ns into the table: 1, or 0 for no name.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuda_emulator_set_kernel_time(name: *const c_char, nanoseconds: u64) -> i32 {
    // SAFETY: the caller's promise.
    let Ok(Ok(name)) = (unsafe { string(name, "name") }).map(|name| name.to_str()) else { return 0 };
    control(0, |driver| {
        driver.settings.set_kernel_time(name, nanoseconds);
        1
    })
}

/// Removes a function, by its whole name: 1, or 0 for no name.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuda_emulator_lack(name: *const c_char) -> i32 {
    // SAFETY: the caller's promise.
    let Ok(Ok(name)) = (unsafe { string(name, "name") }).map(|name| name.to_str()) else { return 0 };
    control(0, |driver| {
        driver.lacking.insert(name.to_string());
        1
    })
}

/// The virtual time in ns since the last reset.
#[unsafe(no_mangle)]
extern "C" fn cuda_emulator_now() -> u64 {
    control(0, |driver| driver.now())
}

/// Advances the clock.
#[unsafe(no_mangle)]
extern "C" fn cuda_emulator_advance(nanoseconds: u64) {
    control((), |driver| driver.advance(nanoseconds));
}

/// Advances the clock to the next end of a kernel or a collective, but not by more than this.
#[unsafe(no_mangle)]
extern "C" fn cuda_emulator_advance_to_end(nanoseconds: u64) {
    control((), |driver| driver.advance_to_end(nanoseconds));
}

/// Sets how long the kernels and collectives take that the calling thread launches or captures from now on, in ns each, whatever their
/// names; the largest number for what the settings say.
#[unsafe(no_mangle)]
extern "C" fn cuda_emulator_launches_take(nanoseconds: u64) {
    set_launch_time(Some(nanoseconds).filter(|time| *time != u64::MAX));
}

/// Whether the wait that was left out would have ordered anything that nothing else does: 1 or 0, or -1 where that is not known.
#[unsafe(no_mangle)]
extern "C" fn cuda_emulator_dropped_wait_orders() -> i32 {
    control(-1, |driver| driver.dropped_wait_orders().map_or(-1, i32::from))
}

/// Gives a text, cut to the room there is and ended with a zero; the room that all of it needs.
macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident = $text:expr;)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(place: *mut u8, room: usize) -> usize {
            let text: fn(&mut Driver) -> String = $text;
            let text = control(String::new(), text);
            // SAFETY: the caller's promise.
            unsafe { give_text(&text, place, room) }
        }
    )*};
}

texts! {
    /// A line for each misuse: what a correct program would not have done.
    cuda_emulator_misuse = |driver| driver.report.misuse_text();
    /// A line for each kernel that has failed.
    cuda_emulator_faults = |driver| driver.report.faults_text();
    /// A line for each two pieces of work that use the same memory and are not ordered.
    cuda_emulator_conflicts = |driver| driver.conflicts_text();
    /// A line for everything that is still alive.
    cuda_emulator_leaks = |driver| driver.leaks();
    /// A line for each call: its number, its name, its result.
    cuda_emulator_log = |driver| driver.report.log_text();
    /// A line for each kernel that has ended: when it began, ended and was enqueued, in ns, its device, its priority, whether it is a graph's, 1 or 0,
    /// its stream and its name.
    cuda_emulator_timeline = |driver| driver.timeline();
}
