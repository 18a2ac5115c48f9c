//! Functions by which a test controls and inspects the driver. They are not counted as calls.
#![allow(unsafe_code)]

use super::pointers::{read_string, write_text};
use crate::state::{Code, Driver, set_launch_time, with_driver};
use std::{
    ffi::c_char,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// Runs `work` on the driver. Returns `fallback` if it panics, so that nothing unwinds into the
/// caller.
fn control<T>(fallback: T, work: impl FnOnce(&mut Driver) -> T) -> T {
    catch_unwind(AssertUnwindSafe(|| with_driver(work))).unwrap_or(fallback)
}

/// Resets handles, settings, reports and injected errors, and frees page-locked memory.
#[unsafe(no_mangle)]
extern "C" fn cuda_emulator_reset() {
    control((), Driver::reset);
}

/// Returns the number of counted calls since the last reset.
#[unsafe(no_mangle)]
extern "C" fn cuda_emulator_calls() -> u64 {
    control(0, |driver| driver.report.calls())
}

/// Makes call number `call`, counted from 1 since the last reset, fail with `code`. 0 removes the
/// injection.
#[unsafe(no_mangle)]
extern "C" fn cuda_emulator_fail_call(call: u64, code: u32) {
    control((), |driver| driver.report.fail_call(call, Code(code)));
}

/// Makes the `number`-th launch of the named kernel, counted from 1 from this call on, fail with an
/// illegal address. Returns 1, or 0 if `name` is not valid text.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuda_emulator_fail_kernel(name: *const c_char, number: u64) -> i32 {
    // SAFETY: the caller's promise.
    let Ok(Ok(name)) = (unsafe { read_string(name, "name") }).map(|name| name.to_str()) else { return 0 };
    control(0, |driver| {
        driver.report.fail_kernel(name, number);
        1
    })
}

/// Sets the field of `Settings` called `name`. Returns 1, or 0 if the name is unknown or the value
/// out of range.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuda_emulator_set(name: *const c_char, value: i64) -> i32 {
    // SAFETY: the caller's promise.
    let Ok(Ok(name)) = (unsafe { read_string(name, "name") }).map(|name| name.to_str()) else { return 0 };
    control(0, |driver| i32::from(driver.settings.set(name, value)))
}

/// Sets the virtual duration of the named kernel, in ns. Returns 1, or 0 if `name` is not valid
/// text.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuda_emulator_set_kernel_time(name: *const c_char, nanoseconds: u64) -> i32 {
    // SAFETY: the caller's promise.
    let Ok(Ok(name)) = (unsafe { read_string(name, "name") }).map(|name| name.to_str()) else { return 0 };
    control(0, |driver| {
        driver.settings.set_kernel_time(name, nanoseconds);
        1
    })
}

/// Removes the function with the given full name. Returns 1, or 0 if `name` is not valid text.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuda_emulator_remove_function(name: *const c_char) -> i32 {
    // SAFETY: the caller's promise.
    let Ok(Ok(name)) = (unsafe { read_string(name, "name") }).map(|name| name.to_str()) else { return 0 };
    control(0, |driver| {
        driver.removed_functions.insert(name.to_string());
        1
    })
}

/// Returns the virtual time since the last reset, in ns.
#[unsafe(no_mangle)]
extern "C" fn cuda_emulator_now() -> u64 {
    control(0, |driver| driver.now())
}

/// Advances the virtual clock.
#[unsafe(no_mangle)]
extern "C" fn cuda_emulator_advance(nanoseconds: u64) {
    control((), |driver| driver.advance(nanoseconds));
}

/// Advances the virtual clock to the next end of a kernel or collective, by at most `nanoseconds`.
#[unsafe(no_mangle)]
extern "C" fn cuda_emulator_advance_to_end(nanoseconds: u64) {
    control((), |driver| driver.advance_to_end(nanoseconds));
}

/// Sets the duration in ns of each kernel and collective that the calling thread launches or
/// captures from now on, whatever its name. `u64::MAX` restores the durations of the settings.
#[unsafe(no_mangle)]
extern "C" fn cuda_emulator_launches_take(nanoseconds: u64) {
    set_launch_time(Some(nanoseconds).filter(|time| *time != u64::MAX));
}

/// Returns 1 if the dropped wait would have ordered work that nothing else orders, 0 if not, and -1
/// if that is not known.
#[unsafe(no_mangle)]
extern "C" fn cuda_emulator_dropped_wait_is_needed() -> i32 {
    control(-1, |driver| driver.dropped_wait_is_needed().map_or(-1, i32::from))
}

/// Defines functions that write a text, truncated to `room` bytes with its terminating zero, and
/// return the room that the whole text needs.
macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident = $text:expr;)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(place: *mut u8, room: usize) -> usize {
            let text: fn(&mut Driver) -> String = $text;
            let text = control(String::new(), text);
            // SAFETY: the caller's promise.
            unsafe { write_text(&text, place, room) }
        }
    )*};
}

texts! {
    /// Writes one line for each misuse.
    cuda_emulator_misuse = |driver| driver.report.misuse_text();
    /// Writes one line for each kernel that failed.
    cuda_emulator_faults = |driver| driver.report.faults_text();
    /// Writes one line for each pair of unordered tasks that use the same memory.
    cuda_emulator_conflicts = |driver| driver.conflicts_text();
    /// Writes one line for each object that is still alive.
    cuda_emulator_leaks = |driver| driver.leaks();
    /// Writes one line for each call: its number, name and result.
    cuda_emulator_log = |driver| driver.report.log_text();
    /// Writes one line for each kernel that ended: start, end and time of enqueueing in ns, device,
    /// priority, 1 for a node of a graph or else 0, stream and name.
    cuda_emulator_timeline = |driver| driver.timeline();
}
